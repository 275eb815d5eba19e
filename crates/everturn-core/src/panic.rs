//! Conversion of panics in user code to errors.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use crate::{Error, Reason, Result};

/// Runs `future` to its end and converts a panic inside it to an `INTERNAL` error with [`Reason::PANIC`].
///
/// The future is dropped after the panic and its data is not read again, so no broken invariant is observed.
/// Code that creates the future is not covered; put it into an `async` block to include it.
pub fn catch_panic<T>(
    what: &str,
    future: impl Future<Output = Result<T>>,
) -> impl Future<Output = Result<T>> {
    // Without an `async` block, which would store the future twice: as a capture and while it is awaited.
    AssertUnwindSafe(future)
        .catch_unwind()
        .map(move |caught| caught.unwrap_or_else(|payload| Err(panic_error(what, payload.as_ref()))))
}

/// Like [`catch_panic`], for a synchronous function.
pub(crate) fn catch_panic_now<T>(what: &str, function: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(function))
        .unwrap_or_else(|payload| Err(panic_error(what, payload.as_ref())))
}

/// Creates the error for a panic's payload; `what` names the code that panicked.
pub fn panic_error(what: &str, payload: &(dyn Any + Send)) -> Error {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Error::internal(format!("{what} panicked: {text}")).with_reason(Reason::PANIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_that_is_guarded_against_panics_is_held_once() {
        let large = async {
            let held = [0_u8; 4096];
            tokio::task::yield_now().await;
            Ok(held.len())
        };
        let size = size_of_val(&large);

        let guarded = catch_panic("large", large);

        assert!(size_of_val(&guarded) < size + size / 2);
    }
}
