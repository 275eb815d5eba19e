//! Protocol adapters: other protocols at a path of a server, with its authentication and limits.
//!
//! An adapter converts a request into the init and input of a turn, and chunks into events of its protocol,
//! by pure functions. The stored history is authoritative: of a conversation that a client resends, only new
//! messages are appended. Ids of events contain the name of the turn and the position of the message. Both
//! are known before the first chunk, so adapters keep no index.

mod caller_streams;
mod event_encoder;
mod ids;
mod served_agent;
mod served_turn;
mod sse_response;
mod turn_plan;
mod waiting_call;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode, header};
use bytes::Bytes;
use everturn_core::offload::{HEAVY, offload};
use everturn_core::{Context, Exposure, RequestId, RuntimeError};
use serde_json::Value;

pub use self::caller_streams::{CallerStreams, RecordedStream, ServerStreamLog};
pub use self::event_encoder::{EncodedTurn, EventEncoder, TurnChunks};
pub use self::ids::{MessagePosition, hex, text_of_hex, turn_name};
pub use self::served_agent::ServedAgent;
pub use self::served_turn::ServedTurn;
pub use self::sse_response::sse_response;
pub use self::turn_plan::TurnPlan;
pub use self::waiting_call::{
    CallAnswers, WaitingCall, WaitingKind, messages_of, waiting_message, with_waiting_calls,
};
use crate::context_provider::Provided;
use crate::correlation::Correlation;
use crate::counted_body::{CountedBody, Held};
use crate::error_body::Refusal;
use crate::handler::{Shared, caller_of};
use crate::metrics::{CallMeter, RouteMetrics};
use crate::request_body;
use crate::request_body::check_content_type;

/// Serves another protocol at one path of a server; see [`Server::adapter`](crate::Server::adapter).
///
/// The server reads the request's body, identifies the caller and counts the call. The adapter interprets the
/// request and creates the response. It must not reveal the private text of errors.
#[async_trait]
pub trait ProtocolAdapter: Send + Sync + 'static {
    /// Handles a request. `context` holds the caller's identity and the deadline, and is cancelled when the
    /// server shuts down. Actions that run in it see only the caller's own sessions. Its extension
    /// [`ServerHandle`](crate::ServerHandle) reports the start of the shutdown.
    ///
    /// Its extension [`ServedAgents`] holds the agents that the caller may use. On a server with a [stream
    /// log](crate::Server::stream_log), its extension [`ServerStreamLog`] holds that log.
    async fn handle(&self, request: Request<Bytes>, context: Context) -> Response<Body>;

    /// Returns the maximum size of a request's body, if it differs from the
    /// [server's](crate::Limits::body_bytes).
    fn body_bytes(&self) -> Option<usize> {
        None
    }

    /// Returns who may call; identified callers by default.
    fn audience(&self) -> Audience {
        Audience::Callers
    }

    /// Returns whether a request reads stored data of any size. A server handles few such requests at once.
    fn reads_storage(&self, request: &Request<Bytes>) -> bool {
        let _ = request;
        false
    }

    /// Returns the response to a request that the server rejects before the adapter receives it, in the
    /// protocol's own form. `error` contains only public text. `None` selects the form of the server's other
    /// routes.
    fn refuse(&self, code: StatusCode, error: &RuntimeError) -> Option<Response<Body>> {
        let _ = (code, error);
        None
    }
}

/// The callers of a [`ProtocolAdapter`] on a server with a context provider. Without a provider, every
/// adapter accepts every caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Audience {
    /// Every caller, without identification: for public content, such as the files of a page.
    Everyone,
    /// Callers that the context provider identifies.
    Callers,
    /// Callers that are [operators](crate::Server::operators).
    Operators,
}

/// Returns how much of an error may be sent to the caller whose call has this context.
pub fn exposure_of(context: &Context) -> Exposure {
    let exposure = context.extension::<Exposure>();
    exposure.map_or(Exposure::Public, |exposure| *exposure)
}

/// The agents of a server that the caller of an adapter may use; an extension of the call's context.
///
/// An adapter serves only agents that have a route, and only to callers that the
/// [provider](crate::ContextProvider) accepts at the agent's own path.
#[derive(Clone)]
pub struct ServedAgents(Arc<Served>);

struct Served {
    shared: Arc<Shared>,
    /// The path of each agent.
    paths: Arc<BTreeMap<String, String>>,
    /// The request for the context provider; `None` if the server has no provider.
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

/// An adapter mounted at its path.
pub(crate) struct MountedAdapter {
    pub(crate) adapter: Arc<dyn ProtocolAdapter>,
    pub(crate) metrics: RouteMetrics,
    pub(crate) shared: Arc<Shared>,
    /// The path of each agent that has a route.
    pub(crate) agents: Arc<BTreeMap<String, String>>,
}

/// Handles a request for an adapter.
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
        let bytes = request_body::read(&head.headers, body, limits, &self.shared.handle, &mut permit).await?;
        // OpenAI's clients cancel a response with a request that has neither body nor content type.
        if !bytes.is_empty() || head.headers.contains_key(header::CONTENT_TYPE) {
            check_content_type(&head.headers)?;
        }
        let audience = self.adapter.audience();
        let is_asked = self.shared.provider.is_some() && audience != Audience::Everyone;
        // Only the provider reads the input.
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
        let context = match &self.shared.logged_calls {
            Some(logged_calls) => context.with_extension(Arc::new(ServerStreamLog(logged_calls.log()))),
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
        // A response of known length is rejected as a whole, before its head is sent.
        let length = hyper::body::Body::size_hint(response.body()).exact();
        let ahead = length.map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
        counted.permit.take(ahead)?;
        Ok(response.map(|body| CountedBody::wrap(body, counted, reading, ahead)))
    }
}
