//! A remote flow.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use everturn_core::{Connection, Context, Emitter, Result};
use futures::Stream;
use reqwest::Url;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use crate::Client;
use crate::event_stream::EventStream;
use crate::remote_agent::http_url;
use crate::request::{Repeat, Request, decoded};

/// A flow on another server, with input `I`, output `O` and chunks `C`. Cloning is cheap.
///
/// A call is one request, which is never sent twice.
pub struct RemoteFlow<I = Value, O = Value, C = Value> {
    client: Client,
    url: Url,
    types: PhantomData<fn(I) -> (O, C)>,
}

#[derive(Serialize)]
struct Envelope<I> {
    data: I,
}

impl Client {
    /// Returns the flow at `url`, with input `I`, output `O` and chunks `C`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `url` is not an HTTP address.
    pub fn flow<I, O, C>(&self, url: &str) -> Result<RemoteFlow<I, O, C>> {
        RemoteFlow::reached_by(self.clone(), url)
    }
}

impl<I, O, C> RemoteFlow<I, O, C> {
    /// Returns the flow at `url`, with a default client. Use [`Client::flow`] for other settings.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `url` is not an HTTP address.
    pub fn new(url: &str) -> Result<Self> {
        Self::reached_by(Client::new()?, url)
    }

    pub(crate) fn reached_by(client: Client, url: &str) -> Result<Self> {
        Ok(Self {
            client,
            url: http_url(url)?,
            types: PhantomData,
        })
    }

    /// Returns the address of the flow.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }
}

impl<I, O, C> RemoteFlow<I, O, C>
where
    I: Serialize,
    O: DeserializeOwned + Send + 'static,
    C: DeserializeOwned + Send + 'static,
{
    /// Runs the flow and returns its output.
    ///
    /// # Errors
    /// The error of the flow; `UNAVAILABLE` if the server cannot be reached.
    pub async fn run(&self, input: I) -> Result<O> {
        let context = Context::current();
        let request = Request::new(&self.url, &Envelope { data: input })?;
        let calling = self.client.0.call_with(&request, &context, Repeat::Unsent, None);
        decoded(context.guard(calling).await?)
    }

    /// Runs the flow and streams its chunks.
    ///
    /// # Errors
    /// `INTERNAL` if the input has no JSON form. The stream reports all other errors: see
    /// [`FlowStream::output`].
    pub fn stream(&self, input: I) -> Result<FlowStream<O, C>> {
        let body = serde_json::to_value(Envelope { data: input })?;
        let (client, url) = (self.client.clone(), self.url.clone());
        Ok(FlowStream::follow(&self.url, |context| async move {
            EventStream::start(&client.0, &url, &body, &context).await
        }))
    }

    /// Requests that the server stop the work behind a kept stream.
    ///
    /// # Errors
    /// `NOT_FOUND` if the server has no such stream or cannot stop streams; the server's own error.
    pub async fn stop(&self, stream_id: &str) -> Result<()> {
        let context = Context::current();
        let stopping = self.client.0.stop(&self.url, stream_id, &context);
        context.guard(stopping).await
    }

    /// Reconnects to a stream that was started before, here or in another process, from its beginning:
    /// earlier chunks are sent again, then new ones. Its output is `NOT_FOUND` if the server does not keep
    /// the stream, or no longer.
    pub fn reattach(&self, stream_id: &str) -> FlowStream<O, C> {
        let (client, url) = (self.client.clone(), self.url.clone());
        let stream_id = Arc::from(stream_id);
        FlowStream::follow(&self.url, |context| async move {
            EventStream::attach(&client.0, &url, stream_id, &context).await
        })
    }
}

/// A running flow: chunks, then one output. Dropping it closes the connection. A server that does not keep
/// the stream then cancels the flow. On a server that keeps it, the flow continues until
/// [`RemoteFlow::stop`].
pub struct FlowStream<O, C> {
    connection: Connection<(), O, C>,
    answer: watch::Receiver<Answer>,
}

/// The server's name for a stream.
#[derive(Debug)]
enum Answer {
    /// The server has not answered yet.
    Awaited,
    /// The server does not keep the stream.
    Unnamed,
    /// The stream has this name.
    Named(Arc<str>),
}

impl<O, C> FlowStream<O, C>
where
    O: DeserializeOwned + Send + 'static,
    C: DeserializeOwned + Send + 'static,
{
    fn follow<F, Fut>(url: &Url, open: F) -> Self
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Result<EventStream>> + Send + 'static,
    {
        let (answered, answer) = watch::channel(Answer::Awaited);
        let connection = Connection::open(
            url.path(),
            &Context::current(),
            |_, emitter: Emitter<C>, context| async move {
                let mut events = open(context).await?;
                answered.send_replace(events.id().cloned().map_or(Answer::Unnamed, Answer::Named));
                Ok(events.relay(&emitter).await?)
            },
        );
        Self { connection, answer }
    }

    /// Waits for the server's response and returns the name of this stream for [`RemoteFlow::reattach`];
    /// `None` if the server does not keep the stream or did not respond.
    pub async fn stream_id(&mut self) -> Option<String> {
        let is_answered = |answer: &Answer| !matches!(answer, Answer::Awaited);
        match &*self.answer.wait_for(is_answered).await.ok()? {
            Answer::Named(id) => Some(id.as_ref().to_owned()),
            Answer::Awaited | Answer::Unnamed => None,
        }
    }

    /// Returns the next chunk; `None` after the last.
    pub async fn next(&mut self) -> Option<C> {
        self.connection.receive().next().await
    }

    /// Drops unread chunks and waits for the output.
    ///
    /// # Errors
    /// The error of the flow, or the error that ended the stream.
    pub async fn output(self) -> Result<O> {
        self.connection.into_output().await
    }

    /// Closes the connection.
    pub fn cancel(&self) {
        self.connection.cancel();
    }
}

impl<O, C> Stream for FlowStream<O, C>
where
    O: Send + 'static,
    C: Send + 'static,
{
    type Item = C;

    fn poll_next(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<C>> {
        Pin::new(&mut self.get_mut().connection.receive()).poll_next(cx)
    }
}

impl<I, O, C> Clone for RemoteFlow<I, O, C> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            url: self.url.clone(),
            types: PhantomData,
        }
    }
}

everturn_core::opaque_debug!(RemoteFlow<I, O, C>, url);

everturn_core::opaque_debug!(FlowStream<O, C>, connection);
