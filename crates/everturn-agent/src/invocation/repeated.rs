//! A call that is repeated: its turn is stored, and is returned or continued instead of being run again.

use std::sync::Arc;

use everturn_ai::history::awaiting;
use everturn_ai::{Message, ModelResponseChunk, Role};
use everturn_core::{Context, Emitter, Error, Result};
use serde_json::json;

use super::Definition;
use super::prompt_turn::awaits_model;
use crate::invocation::cursor::InvocationCursor;
use crate::policy::transform::shown_chunk;
use crate::storage::stored_session::TenantStore;
use crate::store::Detail;
use crate::{
    AddedMessages, AgentOutput, AgentStreamChunk, IdempotencyKey, SessionId, SessionState, Snapshot,
    SnapshotId, SnapshotStatus, TurnDetails, TurnEnd, TurnStarted,
};

/// The stored turn of a call.
pub(super) struct Repeated {
    session_id: SessionId,
    snapshot: Snapshot,
    state: SessionState,
    /// The number of the session's messages before the turn.
    position: usize,
}

/// The turn of a call, as the session has it.
pub(super) enum Found {
    /// It ended.
    Ended(Box<Repeated>),
    /// It failed, and this snapshot holds its message: the turn continues there without one.
    Failed(SnapshotId),
}

impl Repeated {
    /// Reads the turn that answered the call with this mark, where `last` or a turn before it did.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the turn failed and the conversation continued with another message; the
    /// store's own errors.
    pub(super) async fn find(
        session_id: SessionId,
        mark: &str,
        (tenant, last): (TenantStore, SnapshotId),
    ) -> Result<Option<Found>> {
        let Some(mut snapshot) = tenant.get(&last, Detail::Whole).await? else {
            return Ok(None);
        };
        if snapshot.status != SnapshotStatus::Completed {
            let awaits = snapshot.state.is_some_and(|state| awaits_model(&state.messages));
            return Ok(awaits.then_some(Found::Failed(last)));
        }
        let parent = loop {
            let parent = match &snapshot.parent_id {
                Some(parent) => tenant.get(parent, Detail::Whole).await?,
                None => None,
            };
            match parent {
                // Later turns have the mark too: the first one that ended answered the call.
                Some(parent) if parent.answers_call(mark) && parent.status == SnapshotStatus::Completed => {
                    snapshot = parent;
                }
                parent => break parent,
            }
        };
        let state = snapshot.state.take().unwrap_or_default();
        let has_failed = parent.as_ref().is_some_and(|parent| parent.answers_call(mark));
        let before = parent.and_then(|parent| parent.state);
        let position = before.map_or(0, |before| before.messages.len());
        // A turn may have shortened the history.
        let position = position.min(state.messages.len());
        let mut added = state.messages.since(position);
        if has_failed && added.any(|message| message.role() == Role::User) {
            return Err(gone_on(&snapshot.snapshot_id));
        }
        Ok(Some(Found::Ended(Box::new(Self {
            session_id,
            snapshot,
            state,
            position,
        }))))
    }

    /// Sends the turn's chunks, with the whole answer in one, and returns its output.
    pub(super) async fn replay(
        self,
        definition: &Definition,
        emitter: &Emitter<AgentStreamChunk>,
        context: &Context,
    ) -> Result<AgentOutput> {
        let messages = &self.state.messages;
        let asking = awaiting(messages).and_then(|place| messages.get(place));
        let message = asking.or_else(|| messages.last()).cloned();
        for chunk in self.chunks(message.as_ref(), context) {
            if let Some(chunk) = shown_chunk(definition.stream_transform.as_ref(), chunk, context)? {
                emitter.send(chunk).await?;
            }
        }
        let artifacts = Arc::unwrap_or_clone(self.state.artifacts);
        Ok(AgentOutput {
            session_id: Some(self.session_id),
            snapshot_id: Some(self.snapshot.snapshot_id),
            message,
            artifacts: (!artifacts.is_empty()).then_some(artifacts),
            finish_reason: self.snapshot.finish_reason,
            ..AgentOutput::default()
        })
    }

    fn chunks(&self, message: Option<&Message>, context: &Context) -> Vec<AgentStreamChunk> {
        let detailed = context.extension::<TurnDetails>().is_some();
        let id = Some(self.snapshot.snapshot_id.clone());
        let mut chunks = Vec::new();
        if detailed {
            chunks.push(AgentStreamChunk::turn_start(TurnStarted {
                session_id: self.session_id.clone(),
                snapshot_id: id.clone(),
                position: self.position,
            }));
        }
        if let Some(message) = message {
            let place = self.state.messages.len().checked_sub(1).filter(|_| detailed);
            let answer = ModelResponseChunk::new(message.content().to_vec());
            chunks.push(AgentStreamChunk::model(answer).at(place));
        }
        let added = detailed.then(|| AddedMessages {
            position: self.position,
            messages: self.state.messages.since(self.position).cloned().collect(),
        });
        chunks.push(AgentStreamChunk::turn_end(TurnEnd {
            snapshot_id: id.filter(|_| !self.snapshot.is_head()),
            finish_reason: self.snapshot.finish_reason,
            usage: None,
            added,
        }));
        chunks
    }
}

/// Creates the error of a call whose turn failed, and whose conversation has continued.
fn gone_on(next: &SnapshotId) -> Error {
    Error::failed_precondition(format!(
        "the turn of this call failed, and the conversation has gone on with snapshot '{next}': send the message with another \
         request id if it is still meant"
    ))
    .with_public()
}

/// Creates the error of a call whose turn was stored while the call waited for its session.
pub(super) fn answered_meanwhile(cursor: Option<&InvocationCursor>) -> Error {
    let snapshot = cursor.and_then(InvocationCursor::last);
    let name = snapshot.map_or_else(String::new, |id| format!(" before snapshot '{id}'"));
    Error::aborted(format!(
        "the turn of this call was stored{name} while the call was repeated: repeat it to read the turn"
    ))
    .with_public()
}

/// Tells the client of a turn whose save was not answered how to find out.
pub(super) fn unknown_to_client(
    error: Error,
    context: &Context,
    session: &SessionId,
    snapshot: &SnapshotId,
) -> Error {
    let key = context.extension::<IdempotencyKey>();
    let mut details = json!({"reason": "outcome-unknown", "sessionId": session, "snapshotId": snapshot});
    let advice = match &key {
        Some(key) => {
            details["requestId"] = key.as_str().into();
            "resend the request with the same request id and session id: a saved turn is returned, not run again"
        }
        None => "read the snapshot to find out",
    };
    error
        .with_public_message(format!("whether the turn was saved is not known; {advice}"))
        .with_details(details)
}
