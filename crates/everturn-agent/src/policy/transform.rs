//! Transforms of the states and chunks that clients see.
//!
//! A *state transform* changes every state that leaves the agent: snapshot reads, client-managed outputs, and
//! the value behind every custom-state patch. A *stream transform* sees every chunk. Both fail closed: when
//! one fails or panics, its state or chunk is withheld, and the read or the invocation fails. Stored
//! snapshots and the agent's own view stay raw.

use std::any::type_name;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use everturn_core::{Context, Error, HandlerResult, Result, panic_error};
use serde::Serialize;

use crate::storage::session_state::{decode_custom, unreadable};
use crate::{AgentStreamChunk, CustomState, SessionId, SessionState};

pub(crate) type StateTransform =
    Arc<dyn Fn(SessionState, &Context) -> HandlerResult<Option<SessionState>> + Send + Sync>;

pub(crate) type StreamTransform =
    Arc<dyn Fn(AgentStreamChunk, &Context) -> HandlerResult<Option<AgentStreamChunk>> + Send + Sync>;

/// Creates a transform of whole states from one of the typed custom state.
pub(crate) fn over_custom_state<S: CustomState, T: Serialize>(
    transform: impl Fn(S, &Context) -> HandlerResult<Option<T>> + Send + Sync + 'static,
) -> StateTransform {
    Arc::new(move |state, context| {
        // A custom state that was never set is not shown.
        let Some(custom) = &state.custom else {
            return Ok(Some(state));
        };
        let custom = decode_custom(Some(custom.as_ref())).map_err(|error| {
            let error = unreadable(&error, type_name::<S>());
            let session = state.session_id.as_ref().map(SessionId::as_str);
            if error.claim_report() {
                tracing::error!(session, %error, "reading the stored state failed");
            }
            error
        })?;
        let shown = transform(custom, context)?;
        let custom = shown.map(serde_json::to_value).transpose()?.map(Arc::new);
        Ok(Some(SessionState { custom, ..state }))
    })
}

/// Creates the transform that applies `first` and then `second`.
pub(crate) fn one_after_another(
    first: Option<StateTransform>,
    second: Option<StateTransform>,
) -> Option<StateTransform> {
    match (first, second) {
        (Some(first), Some(second)) => Some(Arc::new(move |state, context| {
            first(state, context)?.map_or(Ok(None), |shown| second(shown, context))
        })),
        (first, second) => first.or(second),
    }
}

/// Returns the state that clients see, or `None` if they see none. The session id survives any transform.
pub(crate) fn shown_state(
    transform: Option<&StateTransform>,
    state: SessionState,
    session_id: Option<&SessionId>,
    context: &Context,
) -> Result<Option<SessionState>> {
    let shown = match transform {
        Some(transform) => guarded("the state transform", || transform(state, context))?,
        None => Some(state),
    };
    Ok(shown.map(|shown| SessionState {
        session_id: session_id.cloned(),
        ..shown
    }))
}

/// Returns the chunk that clients see, or `None` if they do not see it.
pub(crate) fn shown_chunk(
    transform: Option<&StreamTransform>,
    chunk: AgentStreamChunk,
    context: &Context,
) -> Result<Option<AgentStreamChunk>> {
    match transform {
        Some(transform) => guarded("the stream transform", || transform(chunk, context)),
        None => Ok(Some(chunk)),
    }
}

/// Runs a transform; its panic becomes an `INTERNAL` error. Its arguments are not used again after a panic.
fn guarded<T>(what: &str, transform: impl FnOnce() -> HandlerResult<Option<T>>) -> Result<Option<T>> {
    match catch_unwind(AssertUnwindSafe(transform)) {
        Ok(result) => result.map_err(|error| Error::from(error).context(format_args!("{what} failed"))),
        Err(payload) => Err(panic_error(what, payload.as_ref())),
    }
}
