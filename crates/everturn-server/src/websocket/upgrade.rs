//! The request that opens a WebSocket.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use everturn_core::{DynAction, Error, RequestId};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::socket::{Socket, buffers};
use super::{PROTOCOL, Stream, WebSockets};
use crate::correlation::Correlation;
use crate::counted_body::Held;
use crate::error_body::Refusal;
use crate::event::AnswerForm;
use crate::handler::{Mounted, caller_of};
use crate::request_body::Envelope;

/// An agent and the path of its WebSocket.
pub(crate) struct Endpoint {
    pub(crate) mounted: Arc<Mounted>,
    /// The action that aborts the agent's background runs, if it is offered.
    pub(crate) abort: Option<Arc<dyn DynAction>>,
    pub(crate) settings: WebSockets,
}

/// Answers a request to open a WebSocket.
pub(crate) async fn converse(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response<Body> {
    let shared = &endpoint.mounted.shared;
    let id = request.extensions().get::<RequestId>().cloned();
    let response = match endpoint.open(request).await {
        Ok(response) => response,
        Err(refusal) => {
            refusal.log(&endpoint.mounted.route.path, id);
            refusal.respond(shared.exposure)
        }
    };
    endpoint.mounted.metrics.answered(response.status());
    response
}

impl Endpoint {
    async fn open(&self, request: Request) -> Result<Response<Body>, Refusal> {
        let meter = self.mounted.metrics.call();
        let (mut head, _body) = request.into_parts();
        self.check_origin(&head.headers)?;
        let form = AnswerForm::of(&head.headers, &self.mounted.action.descriptor().action_type)?;
        let handshake = Handshake::of(&mut head)?;
        let caller = self.mounted.identify(&head, &Envelope::default()).await?;
        let shared = &self.mounted.shared;
        let mut permit = shared.permits.enter();
        permit.assign(caller_of(&caller, &head))?;
        let socket = Socket {
            mounted: Arc::clone(&self.mounted),
            abort: self.abort.clone(),
            caller,
            correlation: Correlation::of(&head),
            form,
            settings: self.settings.clone(),
            held: Held { meter, permit },
        };
        let buffers = buffers(shared.limits.body_bytes);
        // The shutdown waits for the conversation, which outlives the request and ends with its connection.
        shared.handle.tasks().spawn(async move {
            if let Ok(upgraded) = handshake.upgrade.await {
                let io = TokioIo::new(upgraded);
                socket
                    .serve(Stream::from_raw_socket(io, Role::Server, Some(buffers)).await)
                    .await;
            }
        });
        Ok(switching_protocols(&handshake.accept))
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(origin) = headers.get(header::ORIGIN) else {
            return Ok(());
        };
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let allowed = origin
            .to_str()
            .is_ok_and(|origin| self.settings.allows(origin, host));
        if allowed {
            return Ok(());
        }
        let message = "pages of this origin may not open connections; the server can allow them";
        Err(Error::permission_denied(message).with_public().into())
    }
}

/// The handshake of a request that opens a WebSocket.
struct Handshake {
    upgrade: OnUpgrade,
    /// The proof that the server speaks the protocol.
    accept: String,
}

impl Handshake {
    /// Returns the handshake that a request asks for.
    ///
    /// Fails with `426` if it asks for none that the server can make.
    fn of(head: &mut Parts) -> Result<Self, Refusal> {
        let headers = &head.headers;
        let refused = |why: &str| Err(upgrade_required(format!("this path is a WebSocket: {why}")));
        if !names(headers, &header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL) {
            return refused(&format!("open it with the subprotocol '{PROTOCOL}'"));
        }
        if head.method != Method::GET {
            return refused("open it with GET");
        }
        if !names(headers, &header::CONNECTION, "upgrade") || !names(headers, &header::UPGRADE, "websocket") {
            return refused("send 'Connection: Upgrade' and 'Upgrade: websocket'");
        }
        if headers
            .get(header::SEC_WEBSOCKET_VERSION)
            .map(HeaderValue::as_bytes)
            != Some(b"13")
        {
            return refused("send 'Sec-WebSocket-Version: 13'");
        }
        let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY) else {
            return refused("send a 'Sec-WebSocket-Key'");
        };
        let accept = derive_accept_key(key.as_bytes());
        match head.extensions.remove::<OnUpgrade>() {
            Some(upgrade) => Ok(Self { upgrade, accept }),
            None => refused("this connection cannot be upgraded"),
        }
    }
}

fn switching_protocols(accept: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    let accept = HeaderValue::from_str(accept).expect("base64 is a header's text");
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    response
}

fn upgrade_required(message: String) -> Refusal {
    let websocket = HeaderValue::from_static("websocket");
    Refusal::new(StatusCode::UPGRADE_REQUIRED, Error::failed_precondition(message))
        .with_header(header::UPGRADE, websocket)
}

/// Returns whether a header's list has a word, in any case.
fn names(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter();
    let mut words = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    words.any(|listed| listed.trim().eq_ignore_ascii_case(word))
}
