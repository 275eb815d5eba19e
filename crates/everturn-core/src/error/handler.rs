//! The error that users' functions return.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;

use crate::Error;

/// The result of a function or closure that a user writes: a tool, a flow, a turn, a model, a middleware.
pub type HandlerResult<T> = Result<T, HandlerError>;

/// The error of a function or closure that a user writes.
///
/// Anything that can be boxed as a standard error converts with `?`: errors of the standard library and of
/// other crates, `anyhow::Error`, strings, and [`Error`], which keeps its status, its reason, its public
/// message and its details, also when another error wraps it. A `HandlerError` dereferences to [`Error`], and
/// the caller of the function gets an [`Error`]. [`Error::foreign`] documents the status of other errors.
///
/// Like `anyhow::Error`, it does not implement [`std::error::Error`]: the conversion would overlap with the
/// reflexive `From`.
///
/// ```
/// use everturn_core::{Error, HandlerResult, Status};
///
/// fn servings(text: &str) -> HandlerResult<u32> {
///     let servings = text.parse()?;
///     if servings == 0 {
///         return Err(Error::invalid_argument("nobody is hungry").with_public().into());
///     }
///     Ok(servings)
/// }
///
/// assert_eq!(servings("seven").unwrap_err().status(), Status::Internal);
/// assert_eq!(servings("0").unwrap_err().status(), Status::InvalidArgument);
/// ```
#[derive(Clone)]
pub struct HandlerError(Error);

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self(Error::foreign(error))
    }
}

impl From<HandlerError> for Error {
    fn from(error: HandlerError) -> Self {
        error.0
    }
}

impl Deref for HandlerError {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.0
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
