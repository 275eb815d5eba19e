//! The reasons of this crate's errors, for callers that match on more than a status.
//!
//! ```
//! use everturn_ai::{interrupt, reason};
//!
//! let error = interrupt("may I?");
//! assert!(error.is(reason::TOOL_INTERRUPT));
//! ```

use everturn_core::Reason;

/// No model of that name is registered: `NOT_FOUND`.
pub const MODEL_NOT_FOUND: Reason = Reason::new("model-not-found");
/// A tool that was declared or asked for does not exist: `NOT_FOUND`.
pub const TOOL_NOT_FOUND: Reason = Reason::new("tool-not-found");
/// No middleware of that name is registered: `NOT_FOUND`.
pub const MIDDLEWARE_NOT_FOUND: Reason = Reason::new("middleware-not-found");
/// No resource has the URI that a message links to: `NOT_FOUND`.
pub const RESOURCE_NOT_FOUND: Reason = Reason::new("resource-not-found");
/// A tool failed, and the generation with it: `INTERNAL`; the source is the tool's own error.
pub const TOOL_FAILED: Reason = Reason::new("tool-failed");
/// Two tools of a generation have one name: `INVALID_ARGUMENT`.
pub const TOOL_NAME_TAKEN: Reason = Reason::new("tool-name-taken");
/// A tool interrupted. Callers of generate never see this error; they get an interrupted response instead.
pub const TOOL_INTERRUPT: Reason = Reason::new("tool-interrupt");
/// The model asked for tools in more rounds than allowed: `ABORTED`. The text keeps the wire's word for a
/// round.
pub const MAX_ROUNDS_EXCEEDED: Reason = Reason::new("max-turns-exceeded");
/// The request needs an ability that the model does not declare: `INVALID_ARGUMENT`.
pub const UNSUPPORTED_BY_MODEL: Reason = Reason::new("unsupported-by-model");
/// The answers left an interrupted tool request unanswered: `INVALID_ARGUMENT`.
pub const UNRESOLVED_TOOL_REQUEST: Reason = Reason::new("unresolved-tool-request");
/// An answer came after the time until which its question could be answered: `FAILED_PRECONDITION`.
pub const QUESTION_EXPIRED: Reason = Reason::new("question-expired");
/// An answer to an interrupted tool request was rejected before anything ran; the status gives the cause.
pub const ANSWER_REFUSED: Reason = Reason::new("answer-refused");
/// The provider blocked the response: `FAILED_PRECONDITION`; the error contains the response.
pub const GENERATION_BLOCKED: Reason = Reason::new("generation-blocked");
/// The model returned neither a message nor an operation: `FAILED_PRECONDITION`; the error carries the
/// response.
pub const NO_MESSAGE: Reason = Reason::new("no-message");
/// No prompt is defined under the name: `NOT_FOUND`.
pub const PROMPT_NOT_FOUND: Reason = Reason::new("prompt-not-found");
/// A call that must not happen twice was started, and its outcome is unknown: `FAILED_PRECONDITION`.
pub const OUTCOME_UNKNOWN: Reason = Reason::new("outcome-unknown");
/// A limit is reached, and the call that would have exceeded it was not made: `RESOURCE_EXHAUSTED`; the
/// details name the limit.
pub const LIMIT_REACHED: Reason = Reason::new("limit-reached");
/// The model repeated a call with the same arguments, also after it got a warning: `RESOURCE_EXHAUSTED`.
pub const REPEATED_CALL: Reason = Reason::new("repeated-call");
/// The request has more tokens than the model accepts: `INVALID_ARGUMENT`. A [window](crate::window) retries
/// with a smaller request.
pub const REQUEST_TOO_LONG: Reason = Reason::new("request-too-long");
