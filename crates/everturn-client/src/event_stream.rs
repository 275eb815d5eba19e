//! One stream of events, over as many connections as it needs.
//!
//! A server that names a stream keeps it, so that a client can reconnect after its connection was lost. The
//! client then requests the events after the last one with an id. A server without ids starts over, and the
//! client skips the chunks that it has already delivered. A stream without a name ends with its connection:
//! the request that started it is never sent twice.

use std::sync::Arc;

use everturn_core::sse::{Decoder, TooLarge};
use everturn_core::{Context, Emitter, Error, Reason, Result};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Settings;
use crate::events::Event;
use crate::request::{Failed, FailureKind, Repeat, Request, content_type, decoded, result_in, too_large};

/// The reason of an error for a connection that ended before its stream did, where the server does not keep
/// the stream. The outcome of the work is unknown: read the session before starting the work again.
pub const STREAM_BROKEN: Reason = Reason::new("stream-broken");

pub(crate) const STREAM_ID: HeaderName = HeaderName::from_static("x-genkit-stream-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Requests numbered events of an Everturn server; other servers ignore it.
const EVENT_IDS: HeaderName = HeaderName::from_static("x-everturn-event-ids");

/// A running stream.
#[derive(Debug)]
pub(crate) struct EventStream {
    settings: Arc<Settings>,
    request: Request,
    context: Context,
    connection: Connection,
    /// The stream's name, if the server keeps it.
    id: Option<Arc<str>>,
    last_event: Option<Arc<str>>,
    delivered: u64,
    /// How many of the next chunks were already delivered.
    repeated: u64,
    /// How often in a row the client reconnected without receiving an event.
    failures: u32,
}

impl EventStream {
    /// Starts a streamed call.
    pub(crate) async fn start(
        settings: &Arc<Settings>,
        url: &Url,
        body: &impl Serialize,
        context: &Context,
    ) -> Result<Self> {
        Self::open(settings, url, body, context, None, Repeat::Unsent).await
    }

    /// Reconnects to a stream, from its beginning.
    ///
    /// # Errors
    /// `NOT_FOUND` if the server has no such stream, or no longer.
    pub(crate) async fn attach(
        settings: &Arc<Settings>,
        url: &Url,
        id: Arc<str>,
        context: &Context,
    ) -> Result<Self> {
        let body = serde_json::json!({ "data": null });
        Self::open(settings, url, &body, context, Some(id), Repeat::Always).await
    }

    pub(crate) async fn open(
        settings: &Arc<Settings>,
        url: &Url,
        body: &impl Serialize,
        context: &Context,
        id: Option<Arc<str>>,
        repeat: Repeat,
    ) -> Result<Self> {
        let mut request = Request::new(url, body)?;
        // Some servers stream only if no other type is accepted.
        request.accept = "text/event-stream";
        request.extra = headers_for(id.as_deref(), None)?;
        let mut failures = 0;
        let response = loop {
            match settings.send(&request, context).await {
                Ok(response) => break response,
                Err(failed) => settings.wait_after(failed, &mut failures, repeat).await?,
            }
        };
        let id = named_in(response.headers()).or(id);
        Ok(Self {
            connection: Connection::new(settings, response)?,
            settings: Arc::clone(settings),
            request,
            context: context.clone(),
            id,
            last_event: None,
            delivered: 0,
            repeated: 0,
            failures: 0,
        })
    }

    /// Returns the stream's name if the server keeps it.
    pub(crate) fn id(&self) -> Option<&Arc<str>> {
        self.id.as_ref()
    }

    /// Returns the next event. An output or a failure is the last event; do not call this again after it.
    ///
    /// # Errors
    /// The error that ends the stream; [`STREAM_BROKEN`] if the server does not keep the stream.
    pub(crate) async fn next(&mut self) -> Result<Event> {
        loop {
            let (event, id) = match self.connection.next(&self.settings).await {
                Ok(next) => next,
                Err(failed) if failed.kind == FailureKind::Refused => return Err(failed.error),
                Err(lost) => {
                    self.reconnect(lost.error).await?;
                    continue;
                }
            };
            if matches!(event, Event::Chunk(_)) {
                // The server started over; the consumer has this chunk already.
                if self.repeated > 0 {
                    self.repeated -= 1;
                    continue;
                }
                self.delivered += 1;
            }
            // An event without an id resets the position, and the server has to start over.
            self.last_event = id;
            self.failures = 0;
            return Ok(event);
        }
    }

    /// Sends every chunk to `emitter` and returns the output.
    ///
    /// # Errors
    /// The failure that ended the stream; as [`EventStream::next`].
    pub(crate) async fn relay<O: DeserializeOwned, C: DeserializeOwned + Send + 'static>(
        &mut self,
        emitter: &Emitter<C>,
    ) -> Result<O> {
        loop {
            match self.next().await? {
                Event::Chunk(chunk) => emitter.send(decoded(chunk)?).await?,
                Event::Output(output) => return decoded(output),
                Event::Failure(error) => return Err(error),
            }
        }
    }

    /// Reconnects and requests the rest of the stream.
    async fn reconnect(&mut self, mut cause: Error) -> Result<()> {
        // Repeating the request would repeat the work.
        let Some(id) = self.id.clone() else {
            return Err(cause.with_reason(STREAM_BROKEN));
        };
        self.request.extra = headers_for(Some(&id), self.last_event.as_deref())?;
        while let Some(delay) = self.settings.retries.delay(self.failures) {
            tokio::time::sleep(delay).await;
            self.failures += 1;
            match self.settings.send(&self.request, &self.context).await {
                Ok(response) => {
                    self.connection = Connection::new(&self.settings, response)?;
                    // A server that sent an id continues after it; any other starts over.
                    self.repeated = if self.last_event.is_some() {
                        0
                    } else {
                        self.delivered
                    };
                    return Ok(());
                }
                Err(failed) if failed.may_repeat(Repeat::Always) => cause = failed.error,
                Err(refused) => return Err(refused.error),
            }
        }
        Err(cause)
    }
}

/// The part of a stream that one connection carries.
#[derive(Debug)]
struct Connection {
    source: Source,
    decoder: Decoder,
}

/// The source of further bytes.
#[derive(Debug)]
enum Source {
    /// A stream of records.
    Stream(Response),
    /// One document instead of a stream; some servers do not stream.
    Document(Response),
    /// The stream has ended.
    Ended,
}

impl Connection {
    fn new(settings: &Settings, response: Response) -> Result<Self> {
        if response.status() == StatusCode::NO_CONTENT {
            return Err(Error::not_found("the server has no such stream, or no longer"));
        }
        Ok(Self {
            decoder: Decoder::new(settings.max_bytes).with_variants(),
            source: if content_type(&response).starts_with("application/json") {
                Source::Document(response)
            } else {
                Source::Stream(response)
            },
        })
    }

    /// Returns the next event and its id.
    async fn next(&mut self, settings: &Settings) -> Result<(Event, Option<Arc<str>>), Failed> {
        loop {
            let too_large = |TooLarge| refused(too_large(settings.max_bytes));
            while let Some(record) = self.decoder.pop().map_err(too_large)? {
                match Event::of(&record) {
                    Ok(Some(event)) => return Ok((event, record.id)),
                    Ok(None) => {}
                    // The last record of a broken connection may be incomplete.
                    Err(_) if matches!(self.source, Source::Ended) => {}
                    Err(error) => return Err(refused(error)),
                }
            }
            match &mut self.source {
                Source::Stream(response) => {
                    if let Some(bytes) = settings.next_bytes(response).await? {
                        self.decoder.feed(&bytes);
                    } else {
                        self.decoder.finish();
                        self.source = Source::Ended;
                    }
                }
                Source::Document(response) => {
                    let body = settings.read(response).await?;
                    self.source = Source::Ended;
                    return Ok((Event::Output(result_in(&body).map_err(refused)?), None));
                }
                Source::Ended => return Err(ended()),
            }
        }
    }
}

fn refused(error: Error) -> Failed {
    Failed::new(FailureKind::Refused, error)
}

fn ended() -> Failed {
    let error = Error::unavailable("the server ended the stream without an output or an error");
    Failed::new(FailureKind::Lost, error)
}

fn named_in(headers: &HeaderMap) -> Option<Arc<str>> {
    let id = headers.get(STREAM_ID)?.to_str().ok()?;
    (!id.is_empty()).then(|| Arc::from(id))
}

/// Returns the headers with the stream's id and the id of the last event.
///
/// # Errors
/// `INVALID_ARGUMENT` if an id cannot be sent.
fn headers_for(stream: Option<&str>, last_event: Option<&str>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::from_iter([(EVENT_IDS, HeaderValue::from_static("1"))]);
    for (name, value) in [(STREAM_ID, stream), (LAST_EVENT_ID, last_event)] {
        if let Some(value) = value {
            let value = HeaderValue::from_str(value).map_err(|_| {
                Error::invalid_argument(format!("'{}' is not the id of a stream", value.escape_debug()))
            })?;
            headers.insert(name, value);
        }
    }
    Ok(headers)
}
