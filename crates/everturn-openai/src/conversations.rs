//! `/conversations`: sessions.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use everturn_agent::archive::DeleteRequest;
use everturn_agent::{SessionId, Snapshot};
use everturn_core::Context;
use everturn_core::offload::offload;
use everturn_core::stream_log::{Position, StreamEvent, StreamKey, StreamLog};
use everturn_server::{
    CallerStreams, RecordedStream, ServedAgent, ServerStreamLog, exposure_of, json_response,
};
use futures::StreamExt;
use serde_json::{Map, Value, json};

use crate::client_transcript::field;
use crate::fault::Fault;
use crate::page::Page;
use crate::responses::StoredResponse;

/// A request for a conversation.
pub(crate) enum ConversationRequest {
    Object,
    Delete,
    Items(Page),
}

/// Creates a conversation. Its first turn creates the session; until then the stream log stores the
/// conversation.
pub(crate) async fn create(
    body: &Map<String, Value>,
    unstarted: &NewConversations,
) -> Result<Response<Body>, Fault> {
    let is_begun = field(body, "items")
        .and_then(Value::as_array)
        .is_some_and(|items| !items.is_empty());
    if is_begun {
        return Err(Fault::invalid(
            "unsupported_parameter",
            "items",
            "A conversation begins with its first turn: send the items to 'responses'.",
        ));
    }
    let metadata = field(body, "metadata").filter(|metadata| metadata.is_object());
    let now = jiff::Timestamp::now().as_second();
    let session = SessionId::generate();
    let new = object(session.as_str(), now, metadata);
    unstarted.remember(session.as_str(), &new).await;
    Ok(json_response(StatusCode::OK, &new))
}

/// The conversations of a caller that have no session yet.
pub(crate) struct NewConversations {
    log: Arc<dyn StreamLog>,
    streams: CallerStreams,
}

impl NewConversations {
    /// Returns the conversations in the server's log, or else in the adapter's own.
    pub(crate) fn of(own: &Arc<dyn StreamLog>, context: &Context) -> Self {
        Self {
            log: ServerStreamLog::or_own(own, context),
            streams: CallerStreams::of("openai", context),
        }
    }

    fn key(&self, id: &str) -> StreamKey {
        let key = self.streams.key("conversations", id);
        key.about(self.streams.session(id))
    }

    async fn remember(&self, id: &str, new: &Value) {
        // A full log does not store the conversation. It can start nevertheless.
        let mut stream = RecordedStream::open(&*self.log, &self.key(id)).await;
        stream.finish(new).await;
    }

    async fn recall(&self, id: &str) -> Option<Value> {
        let mut entries = self.log.read(&self.key(id), Position::START).await.ok()?;
        match entries.next().await?.ok()?.event {
            StreamEvent::Done(note) => note.read().ok(),
            _ => None,
        }
    }

    async fn forget(&self, id: &str) {
        // Remaining entries expire with the log.
        let _ = self.log.erase(&self.streams.session(id)).await;
    }
}

fn deleted(id: &str) -> Value {
    json!({ "id": id, "object": "conversation.deleted", "deleted": true })
}

/// Responds with a session of any agent.
pub(crate) async fn answer(
    agents: &[ServedAgent],
    id: &str,
    asked: ConversationRequest,
    unstarted: &NewConversations,
    context: &Context,
) -> Result<Response<Body>, Fault> {
    let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure_of(context));
    let session = SessionId::from(id);
    for agent in agents {
        let Some(tip) = agent.tip(&session, context).await.map_err(failed)? else {
            continue;
        };
        let is_long = matches!(asked, ConversationRequest::Items(_));
        let body = match asked {
            ConversationRequest::Object => {
                let known = unstarted.recall(id).await;
                known.unwrap_or_else(|| object(id, tip.created_at.as_second(), None))
            }
            ConversationRequest::Items(page) => page.of(items(agent, agents, tip, context).await?),
            ConversationRequest::Delete => {
                let request = DeleteRequest {
                    session_id: Some(session),
                    snapshot_id: None,
                    branch: false,
                };
                agent.delete(request, context).await.map_err(failed)?;
                unstarted.forget(id).await;
                deleted(id)
            }
        };
        let answer = move || json_response(StatusCode::OK, &body);
        return Ok(if is_long { offload(answer).await } else { answer() });
    }
    if let Some(new) = unstarted.recall(id).await {
        let body = match asked {
            ConversationRequest::Object => new,
            ConversationRequest::Items(page) => page.of(Vec::new()),
            ConversationRequest::Delete => {
                unstarted.forget(id).await;
                deleted(id)
            }
        };
        return Ok(json_response(StatusCode::OK, &body));
    }
    Err(Fault::not_found(
        "conversation_not_found",
        format!("Conversation with id '{id}' not found."),
    ))
}

/// Returns the items of the turns up to the latest snapshot, under the ids that their responses gave them.
async fn items(
    agent: &ServedAgent,
    agents: &[ServedAgent],
    tip: Snapshot,
    context: &Context,
) -> Result<Vec<Value>, Fault> {
    // Agents with the same store share its sessions.
    let respond_only: Vec<String> = agents.iter().flat_map(ServedAgent::respond_only).collect();
    let mut turns = Vec::new();
    let mut next = Some(tip.snapshot_id);
    while let Some(id) = next {
        // An older snapshot may have been deleted: the earlier items have no ids.
        let Ok(turn) = StoredResponse::find_with(agent, id.as_str(), &respond_only, context).await else {
            break;
        };
        next = turn.base();
        turns.push(turn.items());
    }
    Ok(turns.into_iter().rev().flatten().collect())
}

fn object(id: &str, created: i64, metadata: Option<&Value>) -> Value {
    json!({
        "id": id,
        "object": "conversation",
        "created_at": created,
        "metadata": metadata.cloned().unwrap_or_else(|| json!({})),
    })
}
