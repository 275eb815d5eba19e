//! Handling of failed tool calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use everturn_core::{Context, Error, Exposure, Reason, Status};
use serde_json::{Value, json};

use crate::metadata::is_outcome_unknown;
use crate::{JsonObject, MultipartToolResponse, Tool, interrupt_data, metadata, reason};

/// The number of rounds in which the model gets its own mistakes back before they end the generation.
const MAX_MISTAKEN_ROUNDS: u32 = 3;

/// Whether the error of a failed tool call is returned to the model, or ends the generation.
///
/// | the call fails because | `Strict` | `Fail` | `Tell` |
/// |---|---|---|---|
/// | the tool does not exist, or the arguments do not fit | ends | returned, up to three rounds | as `Fail` |
/// | the tool returns an error [for the model](Error::for_model) | ends | returned | returned |
/// | the tool fails in any other way, or panics | ends | ends | returned |
/// | the work is cancelled or its deadline passes | ends | ends | ends |
///
/// An error with a client's status is for the model, too.
///
/// A client's status is one of `INVALID_ARGUMENT`, `NOT_FOUND`, `ALREADY_EXISTS`, `PERMISSION_DENIED`,
/// `UNAUTHENTICATED`, `FAILED_PRECONDITION` and `OUT_OF_RANGE`. The model reads the status and the public
/// message of the error, never the operator's.
///
/// ```
/// use everturn_ai::{Generate, ModelInfo, ModelResponse, ToolErrors, define_model};
/// # use everturn_core::{Registry, Result};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let registry = Registry::new();
/// # define_model(&registry, "cook", ModelInfo::default(), |_request, _emitter, _context| async {
/// #     Ok(ModelResponse::text_of("Leek soup."))
/// # })?;
/// let reply = Generate::new(&registry).model("cook").prompt("Leeks?").tool_errors(ToolErrors::Tell).await?;
/// # assert_eq!(reply.text(), "Leek soup.");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolErrors {
    /// Every failure ends the generation, as `INTERNAL`. The default of [`Generate`](crate::Generate).
    #[default]
    Strict,
    /// Errors that the model can act on are returned to it; any other ends the generation with the error's
    /// own status. The default of agents.
    Fail,
    /// All errors are returned to the model.
    Tell,
}

impl ToolErrors {
    /// Returns the setting of a context for the generations in it.
    pub(super) fn of(context: &Context) -> Self {
        context
            .extension::<Self>()
            .map_or_else(Self::default, |choice| *choice)
    }

    fn returns(self, error: &Error) -> bool {
        let for_model = is_mistake(error) || error.is_for_model() || is_clients(error.status());
        match self {
            Self::Strict => false,
            Self::Fail => for_model,
            Self::Tell => true,
        }
    }

    /// Returns the error of a generation that a failed tool ends.
    pub(super) fn failure(self, tool: &str, error: Error, context: &Context) -> Error {
        if context.is_cancelled() || error.is(reason::LIMIT_REACHED) {
            return error;
        }
        let prefix = format_args!("tool '{tool}' failed");
        if self != Self::Strict {
            return match error.reason() {
                None => error.context(prefix).with_reason(reason::TOOL_FAILED),
                // Added to the details, because the reason itself is not part of the wire's error.
                Some(reason) => with_detail(error.context(prefix), "reason", reason.name()),
            };
        }
        let failure = Error::internal(format!("{prefix}: {error}")).with_reason(reason::TOOL_FAILED);
        let failure = match error.public_message() {
            Some(public) => failure.with_public_message(public),
            None => failure,
        };
        failure.with_source(error)
    }
}

/// Adds an entry to the details of an error, unless they are no object.
fn with_detail(error: Error, name: &str, value: &str) -> Error {
    let mut details = match error.details() {
        None => JsonObject::new(),
        Some(Value::Object(details)) => details.clone(),
        Some(_) => return error,
    };
    details.insert(name.to_owned(), value.into());
    error.with_details(details)
}

/// Sets a context's default for the generations in it.
pub fn with_tool_errors(context: Context, choice: ToolErrors) -> Context {
    context.with_extension(Arc::new(choice))
}

/// The number of rounds in which the model got its mistakes back.
#[derive(Default)]
pub(super) struct Mistakes {
    rounds: AtomicU32,
    in_this_round: AtomicBool,
}

impl Mistakes {
    /// Records the end of a round's tool calls.
    pub(super) fn end_round(&self) {
        if self.in_this_round.swap(false, Ordering::Relaxed) {
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the answer to the model about a failed call, or the error if it ends the generation.
    pub(super) fn answer_to(
        &self,
        choice: ToolErrors,
        error: Error,
        context: &Context,
    ) -> Result<MultipartToolResponse, Error> {
        // If a limit were returned to the model, it would only call again.
        if context.is_over() || error.is(reason::LIMIT_REACHED) || !choice.returns(&error) {
            return Err(error);
        }
        if is_mistake(&error) {
            if self.rounds.load(Ordering::Relaxed) >= MAX_MISTAKEN_ROUNDS {
                return Err(error);
            }
            self.in_this_round.store(true, Ordering::Relaxed);
        }
        tracing::debug!(%error, "the error of a tool call is returned to the model");
        Ok(answer(&error))
    }
}

/// Returns whether the error is a limit of the generation or of its context: too many rounds, calls or
/// tokens, or too much time.
pub fn is_limit(error: &Error) -> bool {
    [
        reason::LIMIT_REACHED,
        reason::REPEATED_CALL,
        reason::MAX_ROUNDS_EXCEEDED,
    ]
    .into_iter()
    .any(|limit| error.is(limit))
}

/// Returns the error of a call of a tool that the model was not given.
pub(super) fn no_such_tool<'a>(name: &str, tools: impl Iterator<Item = &'a Tool>) -> Error {
    let known: Vec<&str> = tools.map(Tool::short_name).collect();
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    };
    Error::not_found(format!(
        "the model asked for a tool '{name}', which it was not given"
    ))
    .with_public_message(format!("there is no tool '{name}'; the tools are: {known}"))
    .with_reason(reason::TOOL_NOT_FOUND)
}

/// Returns whether the model made the mistake: the tool does not exist, or its arguments do not fit.
fn is_mistake(error: &Error) -> bool {
    error.is(reason::TOOL_NOT_FOUND) || error.is(Reason::INVALID_INPUT)
}

/// Returns whether an error of a tool's own code proves that the call had no effect.
///
/// The error of a tool that declares [`Replay::Once`](crate::Replay::Once) must state it. The error of a tool
/// without a declaration may also have a status that rejects the request, or be one for the model, because
/// most such tools only read. An error for the model whose status leaves the outcome open proves nothing.
pub(super) fn had_no_effect(tool: &Tool, error: &Error) -> bool {
    if let Some(data) = interrupt_data(error) {
        return !is_outcome_unknown(data);
    }
    let refuses = || {
        let status = error.status();
        is_clients(status) || (error.is_for_model() && !leaves_open(status))
    };
    error.had_no_effect() || (!tool.declares_once() && refuses())
}

fn is_clients(status: Status) -> bool {
    matches!(
        status,
        Status::InvalidArgument
            | Status::NotFound
            | Status::AlreadyExists
            | Status::PermissionDenied
            | Status::Unauthenticated
            | Status::FailedPrecondition
            | Status::OutOfRange
    )
}

/// Returns whether a call that failed with this status may have taken effect.
fn leaves_open(status: Status) -> bool {
    matches!(
        status,
        Status::Cancelled
            | Status::Unknown
            | Status::DeadlineExceeded
            | Status::Aborted
            | Status::Internal
            | Status::Unavailable
    )
}

fn answer(error: &Error) -> MultipartToolResponse {
    // An error about arguments contains only the model's own text and the schema that it was given.
    let is_readable = error.is(Reason::INVALID_INPUT) || error.is_for_model();
    let exposure = if is_readable {
        Exposure::Full
    } else {
        Exposure::Public
    };
    let wire = error.to_wire(exposure);
    failed_call_answer(wire.status, &wire.message)
}

/// Returns the model-facing answer of a call that failed or was not made.
pub(super) fn failed_call_answer(status: Option<Status>, message: &str) -> MultipartToolResponse {
    let mark = JsonObject::from_iter([(metadata::IS_ERROR.to_owned(), Value::Bool(true))]);
    MultipartToolResponse {
        output: Some(json!({ "error": { "status": status, "message": message } })),
        metadata: Some(mark),
        ..MultipartToolResponse::default()
    }
}
