//! Errors: the framework returns [`Error`], users' functions return [`HandlerError`].

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

pub use self::wire::{Exposure, RuntimeError};
use crate::Status;

mod foreign;
mod wire;

/// The result of the framework's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Arc<dyn StdError + Send + Sync + 'static>;

/// A failure with a canonical [`Status`] and two audiences.
///
/// The *message* is for the operator, who runs the program. A remote client sees the result of
/// [`Error::to_wire`]: the public message if there is one, otherwise only the status's label, unless
/// [`Exposure::Full`] is chosen.
///
/// It implements [`std::error::Error`]. [`Error::foreign`] converts an error of another crate; in functions
/// that are passed to the framework `?` does the same, because they return [`HandlerError`].
///
/// Cloning is cheap.
///
/// ```
/// use everturn_core::{Error, Status};
///
/// let error = Error::not_found("no recipe 'soup'").with_public();
/// assert_eq!(error.status(), Status::NotFound);
/// assert_eq!(error.public_message(), Some("no recipe 'soup'"));
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one failure"
)]
struct Inner {
    status: Status,
    message: String,
    public: Option<String>,
    details: Option<Value>,
    source: Option<Source>,
    reason: Option<Reason>,
    classified: bool,
    /// Whether the message may be returned to a model that called a tool.
    for_model: bool,
    /// Whether the work that returned the error states that it had no effect.
    had_no_effect: bool,
    /// Whether a span has already been marked as the origin of this failure.
    traced: bool,
    /// Whether the failure was reported to the operator. Clones share the flag.
    reported: Arc<AtomicBool>,
}

impl Error {
    /// Creates an error with a status and a message for the operator.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            status,
            message: message.into(),
            public: None,
            details: None,
            source: None,
            reason: None,
            classified: true,
            for_model: false,
            had_no_effect: false,
            traced: false,
            reported: Arc::default(),
        }))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Makes the operator's message the public message too.
    pub fn with_public(self) -> Self {
        self.edit(|inner| inner.public = Some(inner.message.clone()))
    }

    /// Sets the public message, which clients see instead of the operator's message.
    pub fn with_public_message(self, message: impl Into<String>) -> Self {
        self.edit(|inner| inner.public = Some(message.into()))
    }

    /// Attaches machine-readable details.
    pub fn with_details(self, details: impl Into<Value>) -> Self {
        self.edit(|inner| inner.details = Some(details.into()))
    }

    /// Sets the error that caused this one.
    pub fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.edit(|inner| inner.source = Some(Arc::from(source.into())))
    }

    /// Marks the error as one that a model can act on. If a tool that a model called returns it, its public
    /// message, or else its message, becomes the tool's answer to the model, in agents and wherever tool
    /// errors are returned to the model.
    pub fn for_model(self) -> Self {
        self.edit(|inner| inner.for_model = true)
    }

    /// Returns whether the error is marked as one that a model can act on.
    pub fn is_for_model(&self) -> bool {
        self.0.for_model
    }

    /// States that the work which returns this error had no effect and can be repeated: the service rejected
    /// the request, or it was never sent.
    ///
    /// A tool that must not run twice marks such errors with this method. The outcome of a call that fails
    /// with any other error is unknown, and the call is not repeated.
    pub fn nothing_happened(self) -> Self {
        self.edit(|inner| inner.had_no_effect = true)
    }

    /// Returns whether the error states that [nothing happened](Error::nothing_happened).
    pub fn had_no_effect(&self) -> bool {
        self.0.had_no_effect
    }

    /// Sets the reason, an identity that callers can match on.
    pub fn with_reason(self, reason: Reason) -> Self {
        self.edit(|inner| inner.reason = Some(reason))
    }

    /// Puts `prefix: ` before the message and keeps everything else.
    pub fn context(self, prefix: impl fmt::Display) -> Self {
        self.edit(|inner| inner.message = format!("{prefix}: {}", inner.message))
    }

    /// Returns the canonical status.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// Returns the message for the operator.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the message for clients, if there is one.
    pub fn public_message(&self) -> Option<&str> {
        self.0.public.as_deref()
    }

    /// Returns the machine-readable details, if any.
    pub fn details(&self) -> Option<&Value> {
        self.0.details.as_ref()
    }

    /// Returns the reason, if any.
    pub fn reason(&self) -> Option<Reason> {
        self.0.reason
    }

    /// Returns whether this error has the given reason.
    pub fn is(&self, reason: Reason) -> bool {
        self.0.reason == Some(reason)
    }

    /// Returns whether the status was chosen on purpose; `false` for a foreign error that became `INTERNAL`
    /// by default.
    pub fn is_classified(&self) -> bool {
        self.0.classified
    }

    /// Returns whether a span was marked as the origin of this failure or of its cause.
    pub(crate) fn is_traced(&self) -> bool {
        let blamed = |cause: &(dyn StdError + 'static)| {
            let own = cause.downcast_ref::<Self>();
            own.is_some_and(|own| own.0.traced)
        };
        self.0.traced || self.causes().any(blamed)
    }

    pub(crate) fn traced(self) -> Self {
        if self.0.traced {
            self
        } else {
            self.edit(|inner| inner.traced = true)
        }
    }

    /// Claims the report of this failure to the operator. Returns `true` for the first caller only, across
    /// all clones of the error and errors made from it.
    pub fn claim_report(&self) -> bool {
        let claimed = |cause: &(dyn StdError + 'static)| {
            let own = cause.downcast_ref::<Self>();
            own.is_some_and(|own| own.0.reported.swap(true, Ordering::Relaxed))
        };
        // Every error of the chain is marked, because another may be made from any of them.
        !chain(self).map(claimed).fold(false, |any, claimed| any | claimed)
    }

    /// Returns the message and those of its causes on one line, for a log.
    pub fn with_causes(&self) -> impl fmt::Display {
        let mut line = self.0.message.clone();
        for cause in self.causes() {
            let text = cause.to_string();
            // Many errors repeat their cause in their own message.
            if !line.contains(&text) {
                line.push_str("; caused by: ");
                line.push_str(&text);
            }
        }
        line
    }

    /// Returns the first error of type `E` in the chain of sources.
    pub fn find_source<E: StdError + 'static>(&self) -> Option<&E> {
        self.causes().find_map(|cause| cause.downcast_ref())
    }

    fn causes(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        chain(self).skip(1)
    }
}

fn chain<'a>(first: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(first), |error| (*error).source())
}

macro_rules! constructors {
    ($($name:ident => $status:ident,)*) => {
        impl Error {
            $(
                #[doc = concat!("Creates an error with [`Status::", stringify!($status), "`].")]
                pub fn $name(message: impl Into<String>) -> Self {
                    Self::new(Status::$status, message)
                }
            )*
        }
    };
}

constructors! {
    cancelled => Cancelled,
    unknown => Unknown,
    invalid_argument => InvalidArgument,
    deadline_exceeded => DeadlineExceeded,
    not_found => NotFound,
    already_exists => AlreadyExists,
    permission_denied => PermissionDenied,
    resource_exhausted => ResourceExhausted,
    failed_precondition => FailedPrecondition,
    aborted => Aborted,
    out_of_range => OutOfRange,
    unimplemented => Unimplemented,
    internal => Internal,
    unavailable => Unavailable,
    data_loss => DataLoss,
    unauthenticated => Unauthenticated,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        foreign::displayed(self);
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.status, self.0.message)?;
        if let Some(details) = &self.0.details {
            write!(f, " {details}")?;
        }
        for cause in self.causes() {
            let text = cause.to_string();
            if text != self.0.message {
                write!(f, "\n  caused by: {text}")?;
            }
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// The identity of a failure that callers match on, finer than a status and stable across message wording.
///
/// ```
/// use everturn_core::{Error, Reason};
///
/// const OUT_OF_STOCK: Reason = Reason::new("out-of-stock");
///
/// let error = Error::failed_precondition("no leeks left").with_reason(OUT_OF_STOCK);
/// assert!(error.is(OUT_OF_STOCK));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(&'static str);

impl Reason {
    /// An input was sent on a connection whose action has completed.
    pub const ACTION_COMPLETED: Self = Self("action-completed");
    /// An input was sent on a connection whose input was closed.
    pub const CONNECTION_CLOSED: Self = Self("connection-closed");
    /// No action is registered under the key.
    pub const ACTION_NOT_FOUND: Self = Self("action-not-found");
    /// The input does not match the action's schema.
    pub const INVALID_INPUT: Self = Self("invalid-input");
    /// The output does not match the action's schema.
    pub const INVALID_OUTPUT: Self = Self("invalid-output");
    /// A schema is not a valid JSON Schema.
    pub const INVALID_SCHEMA: Self = Self("invalid-schema");
    /// User code panicked.
    pub const PANIC: Self = Self("panic");

    /// Creates a reason; two reasons with the same name are equal.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the name given to [`Reason::new`].
    pub const fn name(self) -> &'static str {
        self.0
    }
}

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
