//! `/conversations`: sessions.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use everturn_agent::archive::DeleteRequest;
use everturn_agent::{SessionId, Snapshot};
use everturn_core::Context;
use serde_json::{Map, Value, json};

use crate::agents::ServedAgent;
use crate::fault::{Fault, json_response};
use crate::page::Page;
use crate::plan::exposure;
use crate::responses::StoredResponse;
use crate::said::field;

/// What is asked of a conversation.
pub(crate) enum Asked {
    Object,
    Delete,
    Items(Page),
}

/// Names a conversation that does not exist yet. Its first turn creates it.
pub(crate) fn mint(body: &Map<String, Value>) -> Result<Response<Body>, Fault> {
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
    let new = object(SessionId::fresh().as_str(), now, metadata);
    Ok(json_response(StatusCode::OK, &new))
}

/// Answers for a session, which may be any agent's.
pub(crate) async fn answer(
    agents: &[ServedAgent],
    id: &str,
    asked: Asked,
    context: &Context,
) -> Result<Response<Body>, Fault> {
    let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure(context));
    let session = SessionId::from(id);
    for agent in agents {
        let Some(tip) = agent.tip(&session, context).await.map_err(failed)? else {
            continue;
        };
        let body = match asked {
            Asked::Object => object(id, tip.created_at.as_second(), None),
            Asked::Items(page) => page.of(items(&agent.among(agents), tip, context).await?),
            Asked::Delete => {
                let request = DeleteRequest {
                    session_id: Some(session),
                    snapshot_id: None,
                    branch: false,
                };
                agent.delete(request, context).await.map_err(failed)?;
                json!({ "id": id, "object": "conversation.deleted", "deleted": true })
            }
        };
        return Ok(json_response(StatusCode::OK, &body));
    }
    Err(Fault::not_found(
        "conversation_not_found",
        format!("Conversation with id '{id}' not found."),
    ))
}

/// Returns the items of the turns up to the tip, under the ids that their responses gave them.
async fn items(agent: &ServedAgent, tip: Snapshot, context: &Context) -> Result<Vec<Value>, Fault> {
    let mut turns = Vec::new();
    let mut next = Some(tip.snapshot_id);
    while let Some(id) = next {
        // An older snapshot may have been deleted: the rest cannot be named.
        let Ok(turn) = StoredResponse::find(agent, &id, context).await else {
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
