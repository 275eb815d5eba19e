//! Conversion of other crates' errors, with a status for each.

use std::cell::RefCell;
use std::error::Error as StdError;
use std::sync::Arc;

use super::chain;
use crate::{Error, Reason};

impl Error {
    /// Converts any other error to an `Error`.
    ///
    /// An `Error` inside it is kept: the outermost one gives its status, reason, public message and details.
    /// A timeout is `DEADLINE_EXCEEDED`, aborted work is `CANCELLED`, and the panic of a task has
    /// [`Reason::PANIC`]. Anything else is `INTERNAL` and counts as unclassified (see
    /// [`Error::is_classified`]).
    pub fn foreign(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let foreign = match error.into().downcast::<Self>() {
            Ok(own) => return *own,
            Err(foreign) => foreign,
        };
        let (message, inside) = display(foreign.as_ref());
        let unclassified = || Self::internal("").edit(|inner| inner.classified = false);
        inside
            .or_else(|| chain(foreign.as_ref()).find_map(known))
            .unwrap_or_else(unclassified)
            .edit(|inner| {
                inner.message = message;
                inner.source = Some(Arc::from(foreign));
            })
    }
}

/// Returns the status and reason for one error of a chain, as an `Error` without a message.
fn known(error: &(dyn StdError + 'static)) -> Option<Error> {
    if let Some(own) = error.downcast_ref::<Error>() {
        return Some(own.clone());
    }
    if is_timeout(error) {
        return Some(Error::deadline_exceeded(""));
    }
    if error.is::<futures::future::Aborted>() {
        return Some(Error::cancelled(""));
    }
    let task = error.downcast_ref::<tokio::task::JoinError>()?;
    Some(if task.is_panic() {
        Error::internal("").with_reason(Reason::PANIC)
    } else {
        Error::cancelled("")
    })
}

fn is_timeout(error: &(dyn StdError + 'static)) -> bool {
    error.is::<tokio::time::error::Elapsed>()
        || error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
}

/// Whether this thread is displaying a foreign error, and the first `Error` displayed as part of it.
enum Display {
    Idle,
    Going,
    Met(Error),
}

thread_local! {
    static DISPLAY: RefCell<Display> = const { RefCell::new(Display::Idle) };
}

/// Returns the text of a foreign error, and the `Error` whose text is part of it.
///
/// Transparent wrappers (`anyhow::Error` in a box, `#[error(transparent)]`, `io::Error::other`) omit the
/// error that they hold from the chain of sources: their `source` is the source of that error. They forward
/// `Display`, so an `Error` records itself here when it is displayed as part of a foreign error.
fn display(foreign: &(dyn StdError + 'static)) -> (String, Option<Error>) {
    let outer = DISPLAY.replace(Display::Going);
    let message = foreign.to_string();
    let inside = match DISPLAY.replace(outer) {
        Display::Met(error) => Some(error),
        Display::Idle | Display::Going => None,
    };
    (message, inside)
}

/// Records that `error` is being displayed; called by its `Display`.
pub(super) fn displayed(error: &Error) {
    DISPLAY.with_borrow_mut(|display| {
        if matches!(display, Display::Going) {
            *display = Display::Met(error.clone());
        }
    });
}

/// Implements `From`, so that `?` works on errors that are common in these crates.
macro_rules! from_foreign {
    ($($foreign:ty),* $(,)?) => {
        $(
            impl From<$foreign> for Error {
                fn from(error: $foreign) -> Self {
                    Self::foreign(error)
                }
            }
        )*
    };
}

from_foreign! {
    futures::future::Aborted,
    serde_json::Error,
    std::io::Error,
    tokio::sync::AcquireError,
    tokio::task::JoinError,
    tokio::time::error::Elapsed,
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;
    use crate::Status;

    /// Wraps an error as `#[source]` does: with its own text.
    #[derive(Debug)]
    struct Wrapper(Error);

    impl fmt::Display for Wrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("dinner is off")
        }
    }

    impl StdError for Wrapper {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    fn store_down() -> Error {
        let inner = Error::not_found("no such row").with_reason(Reason::ACTION_NOT_FOUND);
        Error::unavailable("store down").with_public().with_source(inner)
    }

    #[test]
    fn the_outermost_status_in_a_foreign_chain_wins() {
        let error = Error::foreign(Wrapper(store_down()));

        assert_eq!(error.status(), Status::Unavailable);
        assert_eq!(error.message(), "dinner is off");
        assert_eq!(error.public_message(), Some("store down"));
        assert!(error.is_classified());
        assert!(error.find_source::<Wrapper>().is_some());
    }

    #[test]
    fn an_error_inside_a_transparent_wrapper_is_found() {
        let error = Error::foreign(std::io::Error::other(store_down()));

        assert_eq!(error.status(), Status::Unavailable);
        assert_eq!(error.message(), "store down");
        assert_eq!(error.public_message(), Some("store down"));
    }

    #[test]
    fn an_error_that_is_displayed_elsewhere_is_in_no_other() {
        assert_eq!(store_down().to_string(), "store down");

        let error = Error::foreign("no more leeks");

        assert_eq!(
            (error.status(), error.message()),
            (Status::Internal, "no more leeks")
        );
    }

    #[test]
    fn a_foreign_error_is_internal_and_unclassified() {
        let error = Error::foreign("x".parse::<u8>().unwrap_err());

        assert_eq!(error.status(), Status::Internal);
        assert!(!error.is_classified());
        assert!(error.find_source::<std::num::ParseIntError>().is_some());
    }

    #[test]
    fn a_timeout_is_a_deadline() {
        let error = Error::from(std::io::Error::from(std::io::ErrorKind::TimedOut));

        assert_eq!(error.status(), Status::DeadlineExceeded);
        assert!(error.is_classified());
    }

    #[tokio::test]
    async fn a_task_error_distinguishes_aborts_from_panics() {
        let aborted = tokio::spawn(std::future::pending::<()>());
        aborted.abort();
        let panicked = tokio::spawn(async { panic!("burnt") });

        let (aborted, panicked) = (
            Error::from(aborted.await.unwrap_err()),
            Error::from(panicked.await.unwrap_err()),
        );

        assert_eq!(aborted.status(), Status::Cancelled);
        assert_eq!(panicked.status(), Status::Internal);
        assert!(panicked.is(Reason::PANIC) && panicked.is_classified());
    }

    #[test]
    fn a_round_trip_through_a_box_keeps_everything() {
        let boxed: Box<dyn StdError + Send + Sync> = store_down().with_reason(Reason::PANIC).into();

        let error = Error::foreign(boxed);

        assert!(error.is(Reason::PANIC));
        assert_eq!(
            format!("{error:?}"),
            "UNAVAILABLE: store down\n  caused by: no such row"
        );
    }
}
