//! The events of responses in the server's stream log, found by response and by request.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::Mutex;

use axum::body::Body;
use axum::http::{HeaderMap, Response as HttpResponse, StatusCode};
use everturn_agent::store::Scope;
use everturn_core::Context;
use everturn_core::stream_log::{JsonText, Position, StreamEvent, StreamKey, StreamLog, StreamWriter};
use everturn_server::KeptStreams;
use futures::StreamExt;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::StoredResponse;
use super::telling::lines;
use crate::agents::ServedAgent;
use crate::event_stream::event_stream;
use crate::fault::{Fault, json_response};
use crate::ids::parse_response_id;
use crate::response::{Event, Response};

/// The header in which clients count how often they tried.
const RETRIES: &str = "x-stainless-retry-count";

/// The log as one request sees it.
pub(crate) struct Kept {
    log: Option<Arc<dyn StreamLog>>,
    scope: String,
    /// The digest of the request.
    request: String,
    is_retry: bool,
    /// The response that the request made.
    response: Mutex<Option<String>>,
}

impl Kept {
    pub(crate) fn of(agent: &ServedAgent, (headers, body): (&HeaderMap, &[u8]), context: &Context) -> Self {
        let mut digest = Sha256::new();
        digest.update(agent.name.as_bytes());
        digest.update([0]);
        digest.update(body);
        let digest = digest.finalize();
        let request: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let tries = headers
            .get(RETRIES)
            .and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
        Self {
            log: context.extension::<KeptStreams>().map(|streams| streams.log()),
            scope: scope(context),
            request,
            is_retry: tries.is_some_and(|tries| tries > 0),
            response: Mutex::default(),
        }
    }

    /// Returns the answer to a request whose first answer was lost on its way; `None` if the request is a new one.
    pub(crate) async fn answered_before(
        &self,
        agent: &ServedAgent,
        streams: bool,
        context: &Context,
    ) -> Result<Option<HttpResponse<Body>>, Fault> {
        let (true, Some(log)) = (self.is_retry, &self.log) else {
            return Ok(None);
        };
        let Some(id) = first_text(log.as_ref(), &self.key("requests", &self.request)).await else {
            return Ok(None);
        };
        if streams {
            return Ok(read_again(&id, 0, context).await.ok());
        }
        // The turn may still run: its events tell when it has ended.
        let mut last = Value::Null;
        if let Ok(mut entries) = log.read(&self.key("responses", &id), Position::START).await {
            while let Some(Ok(entry)) = entries.next().await {
                if let StreamEvent::Chunk(text) = entry.event
                    && let Ok(event) = text.read::<Value>()
                {
                    last = event;
                }
            }
        }
        if last["response"].is_object() {
            return Ok(Some(json_response(StatusCode::OK, &last["response"])));
        }
        let Some((snapshot, _)) = parse_response_id(&id) else {
            return Ok(None);
        };
        match StoredResponse::find(agent, &snapshot, context).await {
            Ok(stored) => Ok(Some(json_response(StatusCode::OK, &stored.object()))),
            Err(_) => Ok(None),
        }
    }

    /// Notes which response the request made.
    pub(crate) async fn note(&self, response: &Response) {
        let Some(log) = self.log.as_ref().filter(|_| response.is_stored) else {
            return;
        };
        *self
            .response
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(response.id.clone());
        // The same words may be meant twice: the first response is the one that retries find, until it expires.
        if let (Ok(writer), Ok(text)) = (
            log.open(&self.key("requests", &self.request)).await,
            JsonText::of(&response.id),
        ) {
            let _ = writer.finish(Ok(text)).await;
        }
    }

    /// Opens the stream of the response's events.
    pub(crate) async fn writer(&self) -> Option<Box<dyn StreamWriter>> {
        let id = self
            .response
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()?;
        let log = self.log.as_ref()?;
        log.open(&self.key("responses", &id)).await.ok()
    }

    fn key(&self, kind: &str, id: &str) -> StreamKey {
        key(&self.scope, kind, id)
    }
}

fn key(scope: &str, kind: &str, id: &str) -> StreamKey {
    StreamKey::new(format!("{scope}/openai/{kind}"), id).owned_by(scope)
}

/// Returns the caller's scope: nobody finds the responses of another.
fn scope(context: &Context) -> String {
    context
        .extension::<Scope>()
        .map(|scope| scope.as_str().to_owned())
        .unwrap_or_default()
}

async fn first_text(log: &dyn StreamLog, key: &StreamKey) -> Option<String> {
    let mut entries = log.read(key, Position::START).await.ok()?;
    match entries.next().await?.ok()?.event {
        StreamEvent::Done(text) => text.read().ok(),
        _ => None,
    }
}

/// Returns the events of a response from the log, from this number on, and then as they come.
///
/// # Errors
/// `stream_expired` if the log does not have them.
pub(crate) async fn read_again(id: &str, from: u64, context: &Context) -> Result<HttpResponse<Body>, Fault> {
    let expired = || {
        Fault::invalid(
            "stream_expired",
            "stream",
            format!("The stream of response '{id}' is no longer kept; the response itself may be."),
        )
    };
    let log = context.extension::<KeptStreams>().ok_or_else(expired)?.log();
    let key = key(&scope(context), "responses", id);
    let entries = log.read(&key, Position::new(from)).await.map_err(|_| expired())?;
    let events = entries.filter_map(|entry| async move {
        let StreamEvent::Chunk(text) = entry.ok()?.event else {
            return None;
        };
        let data: Value = text.read().ok()?;
        let name = data["type"].as_str().unwrap_or_default().to_owned();
        Some(Ok::<_, Infallible>(lines(&Event { name, data })))
    });
    Ok(event_stream(Body::from_stream(events)))
}
