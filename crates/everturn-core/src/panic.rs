//! Panics of user code become errors at the boundary.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use crate::{Error, Reason, Result};

/// Runs `future` to its end and turns a panic inside it into an `INTERNAL` error with [`Reason::PANIC`].
///
/// The future is dropped after the panic and nothing it owned is looked at again, so no broken invariant is observed.
/// What runs before there is a future is not covered: make it part of one with an `async` block.
pub async fn catch_panic<T>(what: &str, future: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(result) => result,
        Err(payload) => Err(panic_error(what, payload.as_ref())),
    }
}

/// As [`catch_panic`], for code that does not wait.
pub(crate) fn catch_panic_now<T>(what: &str, function: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(function))
        .unwrap_or_else(|payload| Err(panic_error(what, payload.as_ref())))
}

/// The error for a panic payload, naming what panicked.
pub fn panic_error(what: &str, payload: &(dyn Any + Send)) -> Error {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Error::internal(format!("{what} panicked: {text}")).with_reason(Reason::PANIC)
}
