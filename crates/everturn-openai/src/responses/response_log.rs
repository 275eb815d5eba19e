//! The events of responses in the server's stream log, indexed by response and by request.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Response as HttpResponse, StatusCode};
use everturn_core::stream_log::{Entries, JsonText, Position, StreamEvent, StreamKey, StreamLog};
use everturn_core::{Context, hex};
use everturn_server::{CallerStreams, RecordedStream, ServedAgent, ServerStreamLog, json_response};
use futures::StreamExt;
use futures::future::ready;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::StoredResponse;
use crate::event::{Event, event_stream};
use crate::fault::Fault;
use crate::response::{Response, parse_response_id};

/// The header with the number of a client's earlier attempts.
const TRIES: &str = "x-stainless-retry-count";

/// The maximum number of equal requests that are distinguished while their responses are recorded.
const EQUAL_REQUESTS: usize = 8;

/// The stream log as one request sees it.
pub(crate) struct ResponseLog {
    log: Option<Arc<dyn StreamLog>>,
    streams: CallerStreams,
    /// The digest of the request.
    request: String,
    /// The client's earlier attempts; `None` for clients that do not retry automatically.
    tries: Option<u32>,
}

impl ResponseLog {
    pub(crate) fn of(agent: &ServedAgent, (headers, body): (&HeaderMap, &[u8]), context: &Context) -> Self {
        let mut digest = Sha256::new();
        digest.update(agent.name().as_bytes());
        digest.update([0]);
        digest.update(body);
        let digest = digest.finalize();
        let tries = headers.get(TRIES).and_then(|value| value.to_str().ok());
        Self {
            log: ServerStreamLog::of(context),
            streams: CallerStreams::of("openai", context),
            request: hex(&digest),
            tries: tries.and_then(|tries| tries.parse().ok()),
        }
    }

    /// Returns the response to a request whose first response was lost; `None` if the request must run.
    pub(crate) async fn earlier_answer(
        &self,
        agent: &ServedAgent,
        streams: bool,
        context: &Context,
    ) -> Result<Option<HttpResponse<Body>>, Fault> {
        let (Some(1..), Some(log)) = (self.tries, &self.log) else {
            return Ok(None);
        };
        let Some(id) = self.noted(log.as_ref()).await else {
            return Ok(None);
        };
        if streams {
            return Ok(read_again(&id, 0, context).await.ok());
        }
        if let Ok(entries) = log
            .read(&self.streams.key("responses", &id), Position::START)
            .await
        {
            // A turn whose client disconnected was cancelled and runs again.
            let last = last_event(entries).await;
            return Ok(last.map(|last| json_response(StatusCode::OK, &last["response"])));
        }
        let Some((turn, _)) = parse_response_id(&id) else {
            return Ok(None);
        };
        match StoredResponse::find(agent, turn, context).await {
            Ok(stored) => Ok(Some(json_response(StatusCode::OK, &stored.object()))),
            Err(_) => Ok(None),
        }
    }

    /// Returns the id of the response to the latest of the equal requests.
    async fn noted(&self, log: &dyn StreamLog) -> Option<String> {
        let mut notes: Vec<(i64, String)> = Vec::new();
        for number in 0..EQUAL_REQUESTS {
            let Ok(mut entries) = log.read(&self.note_key(number), Position::START).await else {
                continue;
            };
            if let StreamEvent::Done(note) = entries.next().await?.ok()?.event {
                notes.push(note.read().ok()?);
            }
        }
        // If all notes are taken, the latest request may not be among them.
        let is_told_apart = notes.len() < EQUAL_REQUESTS;
        let latest = notes.into_iter().max().filter(|_| is_told_apart);
        latest.map(|(_, id)| id)
    }

    /// Notes the response of the request for a client that may retry.
    pub(crate) async fn note(&self, response: &Response) {
        let (Some(_), Some(log), true) = (self.tries, &self.log, response.is_stored) else {
            return;
        };
        let now = jiff::Timestamp::now().as_microsecond();
        for number in 0..EQUAL_REQUESTS {
            let mut stream = RecordedStream::open(log.as_ref(), &self.note_key(number)).await;
            if stream.is_recorded() {
                // Without the note a retry runs the turn again, as it would without a log.
                return stream.finish(&(now, &response.id)).await;
            }
        }
    }

    /// Opens the stream of the response's events.
    pub(crate) async fn recording(&self, response: &Response) -> RecordedStream {
        let Some(log) = self.log.as_ref().filter(|_| response.is_stored) else {
            return RecordedStream::default();
        };
        let key = self.streams.key("responses", &response.id);
        let key = match &response.session {
            Some(session) => key.about(self.streams.session(session.as_str())),
            None => key,
        };
        RecordedStream::open(log.as_ref(), &key).await
    }

    fn note_key(&self, number: usize) -> StreamKey {
        self.streams
            .key("requests", &format!("{}.{number}", self.request))
    }
}

/// Waits for the end of a stream and returns its last event; `None` if the stream failed.
async fn last_event(mut entries: Entries) -> Option<Value> {
    let mut last = None;
    while let Some(entry) = entries.next().await {
        match entry.ok()?.event {
            StreamEvent::Chunk(text) => last = Some(text),
            StreamEvent::Done(_) => return last?.read().ok(),
            StreamEvent::Failed(_) => return None,
        }
    }
    None
}

/// Returns the recorded events of a response from this number on, and then each as it occurs.
///
/// # Errors
/// `stream_expired` if the log does not have them.
pub(crate) async fn read_again(id: &str, from: u64, context: &Context) -> Result<HttpResponse<Body>, Fault> {
    let expired = || {
        Fault::invalid(
            "stream_expired",
            "stream",
            format!("The stream of response '{id}' is no longer stored; the response itself may be."),
        )
    };
    let log = ServerStreamLog::of(context).ok_or_else(expired)?;
    let key = CallerStreams::of("openai", context).key("responses", id);
    let entries = log.read(&key, Position::new(from)).await.map_err(|_| expired())?;
    let mut next = from;
    let events = entries.filter_map(move |entry| {
        let event = match entry.map(|entry| entry.event) {
            Ok(StreamEvent::Chunk(text)) => recorded_event(text),
            Ok(StreamEvent::Failed(_)) => Some(Event::error(
                next,
                "stream_broken",
                "The stream broke off: the turn was cancelled, or its server was lost.",
            )),
            Ok(StreamEvent::Done(_)) | Err(_) => None,
        };
        next = event.as_ref().map_or(next, |event| event.number + 1);
        ready(event.map(|event| vec![event]))
    });
    Ok(event_stream(events))
}

fn recorded_event(data: JsonText) -> Option<Event> {
    let event: Value = data.read().ok()?;
    Some(Event {
        name: event["type"].as_str()?.to_owned().into(),
        number: event["sequence_number"].as_u64()?,
        data,
    })
}
