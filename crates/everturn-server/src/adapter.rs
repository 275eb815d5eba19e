//! Adapters: other protocols at a path of a server, behind its authentication and its limits.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use axum::BoxError;
use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode, header};
use bytes::Bytes;
use everturn_core::offload::{HEAVY, offload};
use everturn_core::stream_log::StreamLog;
use everturn_core::{Context, Exposure, RequestId, RuntimeError};
use hyper::body::{Frame, SizeHint};
use serde_json::Value;

use crate::body;
use crate::context_provider::Provided;
use crate::correlation::Correlation;
use crate::envelope::check_content_type;
use crate::error_body::Refusal;
use crate::handler::{Held, Shared, caller_of};
use crate::metrics::{CallMeter, RouteMetrics};
use crate::permits::ReadingPlace;

/// Another protocol at one path of a server; see [`Server::adapter`](crate::Server::adapter).
///
/// The server reads the request's body, identifies the caller and counts the call. The adapter interprets the request and
/// makes the response. It must not reveal the private text of errors.
#[async_trait]
pub trait ProtocolAdapter: Send + Sync + 'static {
    /// Answers a request. `context` holds the caller's identity and the deadline, and is cancelled when the server
    /// shuts down; actions that run in it see only the caller's own sessions. Its extension of the type
    /// [`ServerHandle`](crate::ServerHandle) tells when the shutdown starts.
    ///
    /// Its extension of the type [`ServedAgents`] are the agents that the caller may use. On a server with a
    /// [stream log](crate::Server::stream_log) its extension of the type [`ServerStreamLog`] is that log.
    async fn handle(&self, request: Request<Bytes>, context: Context) -> Response<Body>;

    /// Returns the greatest size of a request's body, if it is not the [server's](crate::Limits::body_bytes).
    fn body_bytes(&self) -> Option<usize> {
        None
    }

    /// Returns who may call; identified callers by default.
    fn audience(&self) -> Audience {
        Audience::Callers
    }

    /// Returns whether a request reads what is stored, however large that is. A server answers few such requests at once.
    fn reads_storage(&self, request: &Request<Bytes>) -> bool {
        let _ = request;
        false
    }

    /// Returns the response to a request that the server refuses before the adapter sees it, in the protocol's own form. The
    /// error has only what the caller may see. `None` is the form of the server's other routes.
    fn refuse(&self, code: StatusCode, error: &RuntimeError) -> Option<Response<Body>> {
        let _ = (code, error);
        None
    }
}

/// Who may call a [`ProtocolAdapter`] of a server with a context provider. Without a provider everybody may call all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Audience {
    /// Everybody, without being identified: for content that is public, such as the files of a page.
    Everyone,
    /// Callers that the context provider identifies.
    Callers,
    /// Callers that are [operators](crate::Server::operators).
    Operators,
}

/// Returns how much of an error the caller of an adapter may see, whose call has this context.
pub fn exposure_of(context: &Context) -> Exposure {
    let exposure = context.extension::<Exposure>();
    exposure.map_or(Exposure::Public, |exposure| *exposure)
}

/// The stream log of a server, as its adapters find it in the context of a call.
#[derive(Debug, Clone)]
pub struct ServerStreamLog(Arc<dyn StreamLog>);

impl ServerStreamLog {
    /// Returns the log.
    pub fn log(&self) -> Arc<dyn StreamLog> {
        Arc::clone(&self.0)
    }
}

/// The agents of a server, as the caller of an adapter may use them; an extension of the call's context.
///
/// An adapter serves no agent that has no route, and nobody whom a [provider](crate::ContextProvider) refuses at the agent's own path.
#[derive(Clone)]
pub struct ServedAgents(Arc<Served>);

struct Served {
    shared: Arc<Shared>,
    /// The path of each agent.
    paths: Arc<BTreeMap<String, String>>,
    /// The request as providers see it; `None` if the server has none.
    asked: Option<(Parts, Option<Value>)>,
}

impl ServedAgents {
    /// Returns the names of all agents that have a route, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.paths.keys().map(String::as_str)
    }

    /// Returns whether the caller may use the agent.
    pub async fn admit(&self, agent: &str) -> bool {
        let Some(path) = self.0.paths.get(agent) else {
            return false;
        };
        let Some((head, input)) = &self.0.asked else {
            return true;
        };
        let identified = self.0.shared.identify_at(path, head, input.as_ref()).await;
        identified.is_ok()
    }
}

impl fmt::Debug for ServedAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// An adapter at its path.
pub(crate) struct MountedAdapter {
    pub(crate) adapter: Arc<dyn ProtocolAdapter>,
    pub(crate) metrics: RouteMetrics,
    pub(crate) shared: Arc<Shared>,
    /// The path of each agent that has a route.
    pub(crate) agents: Arc<BTreeMap<String, String>>,
}

/// Answers a request at an adapter.
pub(crate) async fn handle(
    State(mounted): State<Arc<MountedAdapter>>,
    request: Request<Body>,
) -> Response<Body> {
    let meter = mounted.metrics.call();
    let id = request.extensions().get::<RequestId>().cloned();
    let path = request.uri().path().to_owned();
    let response = match mounted.answer(request, meter).await {
        Ok(response) => response,
        Err(refusal) => {
            refusal.log(&path, id);
            let exposure = mounted.shared.exposure;
            let own = mounted.adapter.refuse(refusal.code(), &refusal.wire(exposure));
            own.unwrap_or_else(|| refusal.respond(exposure))
        }
    };
    mounted.metrics.answered(response.status());
    response
}

impl MountedAdapter {
    async fn answer(&self, request: Request<Body>, meter: CallMeter) -> Result<Response<Body>, Refusal> {
        let (head, body) = request.into_parts();
        let mut permit = self.shared.permits.enter();
        let own = self
            .adapter
            .body_bytes()
            .map(|bytes| self.shared.limits.clone().body_bytes(bytes));
        let limits = own.as_ref().unwrap_or(&self.shared.limits);
        let bytes = body::read(&head.headers, body, limits, &self.shared.handle, &mut permit).await?;
        // Clients of OpenAI cancel a response without a body and without a content type.
        if !bytes.is_empty() || head.headers.contains_key(header::CONTENT_TYPE) {
            check_content_type(&head.headers)?;
        }
        let audience = self.adapter.audience();
        let is_asked = self.shared.provider.is_some() && audience != Audience::Everyone;
        // The input is read by the provider alone.
        let input: Option<Value> = match is_asked {
            true if bytes.len() > HEAVY => {
                let bytes = bytes.clone();
                offload(move || serde_json::from_slice(&bytes).ok()).await
            }
            true => serde_json::from_slice(&bytes).ok(),
            false => None,
        };
        let caller = if is_asked {
            self.shared.identify(&head, input.as_ref()).await?
        } else {
            Provided::new()
        };
        permit.assign(caller_of(&caller, &head))?;
        let mut counted = Held { meter, permit };
        let handle = Arc::new(self.shared.handle.clone());
        let correlation = Correlation::of(&head);
        let agents = ServedAgents(Arc::new(Served {
            shared: Arc::clone(&self.shared),
            paths: Arc::clone(&self.agents),
            asked: self.shared.provider.is_some().then(|| (head.clone(), input)),
        }));
        let context = self
            .shared
            .context(caller, &correlation)
            .with_extension(handle)
            .with_extension(Arc::new(agents));
        if audience == Audience::Operators {
            self.shared.check_operator(&context)?;
        }
        let context = match &self.shared.durable {
            Some(durable) => context.with_extension(Arc::new(ServerStreamLog(durable.log()))),
            None => context,
        };
        let request = Request::from_parts(head, bytes);
        let reading = if self.adapter.reads_storage(&request) {
            counted.permit.reading().await
        } else {
            None
        };
        let response = self.adapter.handle(request, context).await;
        drop(counted.permit.split_parsed());
        // An answer of known length is refused as a whole, before its head is sent.
        let length = hyper::body::Body::size_hint(response.body()).exact();
        let ahead = length.map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
        counted.permit.take(ahead)?;
        Ok(response.map(|body| {
            Body::new(CountedBody {
                body,
                counted,
                reading,
                ahead,
                last: 0,
            })
        }))
    }
}

/// The answer of an adapter. The call counts as running, and its bytes as its caller's, until they are sent.
struct CountedBody {
    body: Body,
    counted: Held,
    /// Kept until the answer begins, which is made of what was read.
    reading: Option<ReadingPlace>,
    /// The bytes that are counted and yet to come.
    ahead: usize,
    /// The size of the piece that is being sent.
    last: usize,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        this.counted.permit.give_back(std::mem::take(&mut this.last));
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(cx));
        this.reading = None;
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            let length = frame.data_ref().map_or(0, Bytes::len);
            let counted = length.min(this.ahead);
            this.counted.permit.take(length - counted)?;
            this.ahead -= counted;
            this.last = length;
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
