//! Requests for logged streams, and their answers.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;
use everturn_core::stream_log::{Entries, Entry, StreamEvent};
use everturn_core::{Error, Exposure, Result, Scope};
use futures::{Stream, StreamExt};

use super::{Mounted, event_stream, stream};
use crate::action_call::ActionCall;
use crate::correlation::Correlation;
use crate::counted_body::Held;
use crate::error_body::Refusal;
use crate::event::{AnswerForm, Event};
use crate::logged_calls::{LoggedCalls, LoggedStream, Reconnection, STREAM_ID, stream_id};
use crate::metrics::CallMeter;
use crate::permits::Permit;
use crate::request_body::Envelope;

/// Set to `no` in the response to a call whose stream the log does not record: its client cannot reconnect,
/// and disconnecting ends the call.
const STREAM_KEPT: HeaderName = HeaderName::from_static("x-everturn-stream-kept");

/// A request for a stream: its headers and its form.
pub(super) struct StreamRequest<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) form: AnswerForm,
}

/// Answers a request for a stream: with a new stream, or with an existing one to reattach to.
pub(super) async fn answer(
    mounted: &Mounted,
    logged_calls: &LoggedCalls,
    request: StreamRequest<'_>,
    call: ActionCall,
    held: Held,
) -> Result<Response<Body>, Refusal> {
    let StreamRequest { headers, form } = request;
    let scope = Scope::brought_by(&call.context).unwrap_or_default();
    let reading = Reading {
        ids: Reconnection::wants_ids(headers),
        form,
        exposure: mounted.shared.exposure,
    };
    let Held { meter, permit } = held;
    // The call is active until it has ended and its response has been read.
    let permit = Arc::new(permit);
    let Some(reconnection) = Reconnection::of(headers)? else {
        let (metrics, held) = (mounted.metrics.clone(), Arc::clone(&permit));
        let on_unrecorded = move || metrics.stream_not_kept();
        let started = logged_calls
            .run(&scope, &permit.owner(), call, held, on_unrecorded)
            .await;
        return Ok(match started {
            Ok(opened) => respond(opened, reading, (meter, permit)),
            Err(call) => {
                mounted.metrics.stream_not_kept();
                let mut response =
                    stream(call.start(mounted.shared.exposure, form), form, meter, permit).await;
                let headers = response.headers_mut();
                headers.insert(STREAM_KEPT, HeaderValue::from_static("no"));
                response
            }
        });
    };
    let action = &mounted.route.key;
    Ok(match logged_calls.replay(&scope, action, &reconnection).await? {
        // Reconnecting counts as a call: it uses a connection and reads from the log.
        Some(opened) => respond(opened, reading, (meter, permit)),
        None => unknown(),
    })
}

/// Answers a request to stop a stream.
pub(crate) async fn stop(State(mounted): State<Arc<Mounted>>, request: Request) -> Response<Body> {
    let _meter = mounted.metrics.call();
    let response = match answer_stop(&mounted, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.respond(mounted.shared.exposure),
    };
    mounted.metrics.answered(response.status());
    response
}

async fn answer_stop(mounted: &Mounted, request: Request) -> Result<Response<Body>, Refusal> {
    let (head, _body) = request.into_parts();
    let caller = mounted.identify(&head, &Envelope::default()).await?;
    let context = mounted.shared.context(caller, &Correlation::of(&head));
    let scope = Scope::brought_by(&context).unwrap_or_default();
    let missing = || Error::invalid_argument("the header 'X-Genkit-Stream-Id' must say which stream to stop");
    let id = stream_id(&head.headers)?.ok_or_else(|| missing().with_public())?;
    let logged_calls = mounted.shared.logged_calls.as_ref();
    let logged_calls = logged_calls.ok_or_else(|| Error::not_found("stream not found").with_public())?;
    logged_calls.stop(&scope, &mounted.route.key, &id).await?;
    Ok(no_content())
}

/// Creates the answer for a stream that is unknown, expired or another tenant's.
pub(super) fn unknown() -> Response<Body> {
    no_content()
}

fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Answers with the events of a stream. `held` is dropped when the client has read the last of them.
fn respond(opened: LoggedStream, reading: Reading, mut held: (CallMeter, Arc<Permit>)) -> Response<Body> {
    held.0.stream_opened();
    let frames = frames(opened.entries, reading).map(move |(bytes, is_chunk)| {
        // Named as a whole, so that the closure captures all of it.
        let held = &held;
        if is_chunk {
            held.0.chunk();
        }
        Ok::<_, Infallible>(bytes)
    });
    let mut response = event_stream(Body::from_stream(frames));
    let id = HeaderValue::from_str(&opened.id).expect("an id is what a header held, or a UUID");
    response.headers_mut().insert(STREAM_ID, id);
    response
}

/// How one client reads a stream.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// Whether each event carries its position.
    ids: bool,
    form: AnswerForm,
    exposure: Exposure,
}

/// Encodes entries, each with whether it is a chunk. Entries that the client did not ask for are left out.
fn frames(entries: Entries, reading: Reading) -> impl Stream<Item = (Bytes, bool)> {
    let Reading { ids, form, exposure } = reading;
    entries.filter_map(move |entry| {
        let entry = match entry {
            Ok(Entry { position, event }) => form.recorded(event).map(|event| Ok(Entry { position, event })),
            Err(error) => Some(Err(error)),
        };
        std::future::ready(entry.map(|entry| {
            let is_chunk = entry.as_ref().is_ok_and(|entry| !entry.event.is_end());
            (frame(entry, ids, exposure), is_chunk)
        }))
    })
}

fn frame(entry: Result<Entry>, ids: bool, exposure: Exposure) -> Bytes {
    let Entry { position, event } = match entry {
        Ok(entry) => entry,
        // A failure of the log has no position: a client reattaches after the last event that has one.
        Err(error) => return Event::Error(error.to_wire(exposure)).encode(),
    };
    let data = match event {
        StreamEvent::Chunk(chunk) => Event::Message(chunk).encode(),
        StreamEvent::Done(output) => Event::Result(output).encode(),
        StreamEvent::Failed(error) => Event::Error(error.to_wire(exposure)).encode(),
    };
    if ids {
        [format!("id: {position}\n").as_bytes(), &data].concat().into()
    } else {
        data
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::stream_log::{JsonText, Position};
    use serde_json::json;

    use super::*;

    fn entry(event: StreamEvent) -> Entry {
        Entry {
            position: Position::new(7),
            event,
        }
    }

    #[test]
    fn an_entry_is_written_as_the_event_it_was() {
        let value = json!({"text": "a\nb", "n": 1.10});
        let text = JsonText::of(&value).unwrap();

        let chunk = frame(
            Ok(entry(StreamEvent::Chunk(text.clone()))),
            false,
            Exposure::Public,
        );
        let output = frame(
            Ok(entry(StreamEvent::Done(text.clone()))),
            false,
            Exposure::Public,
        );

        assert_eq!(chunk, Event::Message(text.clone()).encode());
        assert_eq!(output, Event::Result(text).encode());
    }

    #[test]
    fn an_id_goes_before_the_data_and_private_text_stays_inside() {
        let error = Error::internal("row 17");

        let framed = frame(Ok(entry(StreamEvent::Failed(error))), true, Exposure::Public);

        assert_eq!(
            framed,
            "id: 7\ndata: {\"error\":{\"status\":\"INTERNAL\",\"message\":\"internal error\"}}\n\n"
        );
    }
}
