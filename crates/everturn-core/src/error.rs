//! The one error type: a status, a message for the operator, and at most a second message for the client.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Status;

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Arc<dyn StdError + Send + Sync + 'static>;

/// A failure with a canonical [`Status`] and two audiences.
///
/// The *message* is for whoever runs the program. What a remote client sees is decided by [`Error::to_wire`]: the
/// public message if there is one, otherwise only the status's label, unless everything may be shown.
///
/// Any standard error converts with `?`. If its source chain holds an [`Error`], the outermost one keeps its status;
/// otherwise the status is [`Status::Internal`] and the error counts as *unclassified*, which retrying code treats
/// differently. For that conversion to exist `Error` cannot itself implement [`std::error::Error`]; it turns into a
/// boxed standard error with `into()`.
///
/// Cloning is cheap.
///
/// ```
/// use everturn_core::{Error, Result, Status};
///
/// fn parse(text: &str) -> Result<u32> {
///     Ok(text.parse::<u32>()?)
/// }
///
/// let error = parse("seven").unwrap_err();
/// assert_eq!(error.status(), Status::Internal);
/// assert!(!error.is_classified());
///
/// let error = Error::not_found("no recipe 'soup'").with_public();
/// assert_eq!(error.public_message(), Some("no recipe 'soup'"));
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    status: Status,
    message: String,
    public: Option<String>,
    details: Option<Value>,
    source: Option<Source>,
    reason: Option<Reason>,
    classified: bool,
    /// Whether a span has already been marked as the place of this failure.
    traced: bool,
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
    /// Sending on a connection whose action has completed.
    pub const ACTION_COMPLETED: Self = Self("action-completed");
    /// Sending on a connection whose input was closed.
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

    /// A reason of one's own; the name is the identity.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name given to [`Reason::new`].
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// An error as it travels: `{status, message, details?}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeError {
    /// The canonical status; absent in errors written by older peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// What went wrong, for a person.
    pub message: String,
    /// Anything machine-readable that helps the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// How much of an error may leave the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Public messages only; everything else becomes its status's label and loses its details.
    Public,
    /// The whole message and details: development, logs, stored rows.
    Full,
}

impl Error {
    /// An error with a status and a message for the operator.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            status,
            message: message.into(),
            public: None,
            details: None,
            source: None,
            reason: None,
            classified: true,
            traced: false,
        }))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Shows the message to clients as it is.
    pub fn with_public(self) -> Self {
        self.edit(|inner| inner.public = Some(inner.message.clone()))
    }

    /// Shows another text to clients than to the operator.
    pub fn with_public_message(self, message: impl Into<String>) -> Self {
        self.edit(|inner| inner.public = Some(message.into()))
    }

    /// Attaches machine-readable details.
    pub fn with_details(self, details: impl Into<Value>) -> Self {
        self.edit(|inner| inner.details = Some(details.into()))
    }

    /// Records what caused this error.
    pub fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.edit(|inner| inner.source = Some(Arc::from(source.into())))
    }

    /// Gives the error an identity to match on.
    pub fn with_reason(self, reason: Reason) -> Self {
        self.edit(|inner| inner.reason = Some(reason))
    }

    /// Puts `prefix: ` before the message and keeps everything else.
    pub fn context(self, prefix: impl fmt::Display) -> Self {
        self.edit(|inner| inner.message = format!("{prefix}: {}", inner.message))
    }

    /// The canonical status.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// The message for the operator.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The message for clients, if there is one.
    pub fn public_message(&self) -> Option<&str> {
        self.0.public.as_deref()
    }

    /// Machine-readable details, if any.
    pub fn details(&self) -> Option<&Value> {
        self.0.details.as_ref()
    }

    /// The identity to match on, if any.
    pub fn reason(&self) -> Option<Reason> {
        self.0.reason
    }

    /// Whether this error has the given identity.
    pub fn is(&self, reason: Reason) -> bool {
        self.0.reason == Some(reason)
    }

    /// Whether someone chose the status, as opposed to a foreign error that became `INTERNAL` for want of better.
    pub fn is_classified(&self) -> bool {
        self.0.classified
    }

    /// Whether a span was blamed for this failure or for what caused it.
    pub(crate) fn is_traced(&self) -> bool {
        let blamed = |cause: &(dyn StdError + 'static)| {
            let own = cause.downcast_ref::<Boxed>();
            own.is_some_and(|own| own.0.0.traced)
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

    /// What caused this error.
    pub fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.0.source.as_deref()
    }

    /// The cause as a concrete type, looked for through the whole source chain.
    pub fn find_source<E: StdError + 'static>(&self) -> Option<&E> {
        self.causes().find_map(|cause| cause.downcast_ref())
    }

    fn causes(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .into_iter()
            .flat_map(|source| chain(source))
    }

    /// The form that travels, with private text withheld unless `exposure` allows it.
    ///
    /// `OK` is not an error: an error that claims it leaves as `INTERNAL`.
    pub fn to_wire(&self, exposure: Exposure) -> RuntimeError {
        let status = match self.0.status {
            Status::Ok => Status::Internal,
            status => status,
        };
        let (message, details) = match (exposure, &self.0.public) {
            (Exposure::Full, None) => (self.0.message.clone(), self.0.details.clone()),
            (_, Some(public)) => (public.clone(), self.0.details.clone()),
            (Exposure::Public, None) => (status.label().to_owned(), None),
        };
        RuntimeError {
            status: Some(status),
            message,
            details,
        }
    }

    /// Classifies any standard error: the outermost [`Error`] in its chain wins, timeouts are `DEADLINE_EXCEEDED`,
    /// aborted work is `CANCELLED`, a task's panic is one, anything else is an unclassified `INTERNAL`.
    fn classify(foreign: Box<dyn StdError + Send + Sync>) -> Self {
        let foreign = match foreign.downcast::<Boxed>() {
            Ok(own) => return own.0,
            Err(foreign) => foreign,
        };
        let message = foreign.to_string();
        let known = chain(foreign.as_ref()).find_map(|error| {
            if let Some(own) = error.downcast_ref::<Boxed>() {
                return Some(own.0.clone().edit(|inner| inner.message.clone_from(&message)));
            }
            if is_timeout(error) {
                return Some(Self::deadline_exceeded(message.clone()));
            }
            if error.is::<futures::future::Aborted>() {
                return Some(Self::cancelled(message.clone()));
            }
            let task = error.downcast_ref::<tokio::task::JoinError>()?;
            Some(if task.is_panic() {
                Self::internal(message.clone()).with_reason(Reason::PANIC)
            } else {
                Self::cancelled(message.clone())
            })
        });
        known
            .unwrap_or_else(|| Self::internal(message).edit(|inner| inner.classified = false))
            .edit(|inner| inner.source = Some(Arc::from(foreign)))
    }
}

fn is_timeout(error: &(dyn StdError + 'static)) -> bool {
    error.is::<tokio::time::error::Elapsed>()
        || error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
}

fn chain<'a>(first: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(first), |error| (*error).source())
}

macro_rules! constructors {
    ($($name:ident => $status:ident,)*) => {
        impl Error {
            $(
                #[doc = concat!("An error with [`Status::", stringify!($status), "`].")]
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

impl<E> From<E> for Error
where
    E: StdError + Send + Sync + 'static,
{
    fn from(foreign: E) -> Self {
        Self::classify(Box::new(foreign))
    }
}

impl From<RuntimeError> for Error {
    fn from(wire: RuntimeError) -> Self {
        let error = Self::new(wire.status.unwrap_or(Status::Unknown), wire.message);
        match wire.details {
            Some(details) => error.with_details(details),
            None => error,
        }
    }
}

/// An [`Error`] where a standard error is asked for.
struct Boxed(Error);

impl fmt::Display for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Boxed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.0.source.as_deref().map(|source| source as _)
    }
}

impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        Box::new(Boxed(error))
    }
}

impl From<Error> for Box<dyn StdError> {
    fn from(error: Error) -> Self {
        Box::new(Boxed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapper(Box<dyn StdError + Send + Sync>);

    impl fmt::Display for Wrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "wrapped: {}", self.0)
        }
    }

    impl StdError for Wrapper {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(self.0.as_ref())
        }
    }

    #[test]
    fn the_outermost_status_in_a_foreign_chain_wins() {
        let inner = Error::not_found("no such row").with_reason(Reason::ACTION_NOT_FOUND);
        let outer = Error::unavailable("store down").with_source(inner);

        let error = Error::from(Wrapper(outer.into()));

        assert_eq!(error.status(), Status::Unavailable);
        assert_eq!(error.message(), "wrapped: store down");
        assert!(error.is_classified());
    }

    #[test]
    fn a_foreign_error_is_internal_and_unclassified() {
        let error = Error::from("x".parse::<u8>().unwrap_err());

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
    async fn a_task_that_was_aborted_or_panicked_says_which() {
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
    fn private_text_stays_inside_unless_allowed() {
        let error = Error::failed_precondition("agent 'x' has no store").with_details("table t");

        let outside = error.to_wire(Exposure::Public);
        let inside = error.to_wire(Exposure::Full);

        assert_eq!(outside.message, "failed precondition");
        assert_eq!(outside.details, None);
        assert_eq!(inside.message, "agent 'x' has no store");
        assert_eq!(
            serde_json::to_value(inside).unwrap(),
            serde_json::json!({"status": "FAILED_PRECONDITION", "message": "agent 'x' has no store", "details": "table t"})
        );
    }

    #[test]
    fn a_public_message_is_all_any_audience_sees() {
        let error = Error::not_found("row 17 of tenant 4").with_public_message("snapshot not found");

        assert_eq!(error.to_wire(Exposure::Public).message, "snapshot not found");
        assert_eq!(error.to_wire(Exposure::Full).message, "snapshot not found");
        assert_eq!(error.message(), "row 17 of tenant 4");
    }

    #[test]
    fn an_error_that_claims_ok_leaves_as_internal() {
        let wire = Error::new(Status::Ok, "?").to_wire(Exposure::Public);

        assert_eq!(wire.status, Some(Status::Internal));
    }

    #[test]
    fn a_round_trip_through_a_box_keeps_everything() {
        let boxed: Box<dyn StdError + Send + Sync> = Error::aborted("held").with_reason(Reason::PANIC).into();

        let error = Error::classify(boxed);

        assert!(error.is(Reason::PANIC));
        assert_eq!(format!("{error:?}"), "ABORTED: held");
    }
}
