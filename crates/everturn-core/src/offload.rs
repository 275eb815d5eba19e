//! Running work that would block a runtime thread, such as parsing a large body.
//!
//! A runtime thread that computes for more than a few milliseconds delays all other requests. Transports and
//! actions estimate a value with [`is_heavy`], which is cheap for any value, and pass the work on heavy ones
//! to [`offload`].

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock};

use serde::Serialize;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::schema::visit;

/// The number of bytes of JSON above which a value is heavy: parsing, validating and printing it takes about
/// a millisecond.
pub const HEAVY: usize = 128 * 1024;

/// The cost of a value besides its text, in bytes: validating a small value takes longer than copying it.
const PER_VALUE: usize = 32;

/// The permits for heavy work in the whole process. More would not make it faster, and each one holds values
/// in memory.
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(Semaphore::new(cores.max(2)))
});

/// Runs heavy work on a blocking thread. As many works run at once as there are cores, and at least two;
/// others wait in the order of their arrival.
///
/// Dropping the future does not end work that has started. Outside a Tokio runtime, the work runs at once.
///
/// # Panics
/// If the work panics.
pub async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if Handle::try_current().is_err() {
        return work();
    }
    let place = Arc::clone(&PLACES)
        .acquire_owned()
        .await
        .expect("the semaphore is never closed");
    let working = tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    });
    match working.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime is shutting down, and this future will not be polled again.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Returns whether work on a value should be [offloaded](offload).
pub fn is_heavy(value: &Value) -> bool {
    let mut weight = 0;
    let weighed = visit(value, |value| {
        weight += PER_VALUE + value.as_str().map_or(0, str::len);
        if weight < HEAVY {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    // A value that is nested too deeply counts as heavy.
    weighed.is_break()
}

/// Returns whether work on a value that is to be serialised should be [offloaded](offload). The value is
/// printed until it is known to be heavy.
pub fn is_heavy_to_serialize(value: &(impl Serialize + ?Sized)) -> bool {
    // A value that cannot be serialised is light: printing it returns the error.
    serde_json::to_writer(Scale(HEAVY), value).is_err_and(|error| error.is_io())
}

/// Weighs the JSON that is written to it and fails once that is heavy.
struct Scale(usize);

impl Write for Scale {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Each value follows one of these, and the serializer writes them on their own.
        let is_before_value = matches!(bytes, b"[" | b"," | b":");
        let weight = bytes.len() + if is_before_value { PER_VALUE } else { 0 };
        self.0 = self.0.checked_sub(weight).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The approximate memory of a value in bytes, and the additional memory of an object with members.
const VALUE: usize = 80;
const OBJECT: usize = 512;

/// Returns the approximate memory in bytes that the values of a JSON text take once they are parsed. A text
/// of many small objects grows a hundredfold.
pub fn parsed_size(text: &[u8]) -> usize {
    // Values are counted by the characters that begin or separate them, outside strings.
    let (mut values, mut objects) = (0, 0);
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => {
                while let Some(byte) = rest.next() {
                    match byte {
                        b'\\' => drop(rest.next()),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            b'{' => objects += 1,
            b'[' | b',' | b':' => values += 1,
            _ => {}
        }
    }
    text.len() + VALUE * values + (VALUE + OBJECT) * objects
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_heavy_by_its_text_or_by_its_members() {
        let text = json!({ "text": "x".repeat(HEAVY) });
        let members = json!(vec![0; HEAVY / PER_VALUE]);

        for heavy in [text, members] {
            assert!(is_heavy(&heavy) && is_heavy_to_serialize(&heavy));
        }
        let light = json!({ "text": "leek", "list": [1, 2, [3]] });
        assert!(!is_heavy(&light) && !is_heavy_to_serialize(&light));
    }

    #[test]
    fn measuring_a_deep_value_does_not_overflow_the_stack() {
        let deep = (0..100_000).fold(Value::Null, |inner, _| Value::Array(vec![inner]));

        assert!(is_heavy(&deep));

        crate::schema::dismantle(deep);
    }

    #[tokio::test]
    async fn no_more_works_run_at_once_than_there_are_places() {
        let places = std::thread::available_parallelism().map_or(1, usize::from).max(2);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        // As many works as may run at once wait for each other.
        let all = Arc::new(std::sync::Barrier::new(places));

        let works = (0..4 * places).map(|_| {
            let (running, most, all) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&all));
            offload(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                all.wait();
                running.fetch_sub(1, Ordering::SeqCst);
            })
        });
        futures::future::join_all(works).await;

        assert_eq!(most.load(Ordering::SeqCst), places);
    }

    #[tokio::test]
    #[should_panic(expected = "no leeks")]
    async fn a_panic_reaches_the_caller() {
        offload::<()>(|| panic!("no leeks")).await;
    }

    #[test]
    fn texts_of_many_small_values_are_larger_than_long_strings() {
        let objects = format!("[{}]", vec![r#"{"":0}"#; 20_000].join(","));
        let string = format!(r#"["{}"]"#, r#"{[,:\"]}"#.repeat(20_000));

        assert!(parsed_size(objects.as_bytes()) > 70 * objects.len());
        assert!(parsed_size(string.as_bytes()) < string.len() + 200);
    }
}
