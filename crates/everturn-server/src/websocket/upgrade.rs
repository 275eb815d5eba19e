//! The request that opens a WebSocket.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header, request::Parts};
use everturn_core::{DynAction, Error};

use super::PROTOCOL;
use super::options::WebSockets;
use super::socket::Socket;
use crate::envelope::Envelope;
use crate::error_body::Refusal;
use crate::handler::{Held, Mounted};

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
    let response = match endpoint.open(request).await {
        Ok(response) => response,
        Err(refusal) => refusal.respond(shared.exposure),
    };
    endpoint.mounted.metrics.answered(response.status());
    response
}

impl Endpoint {
    async fn open(&self, request: Request) -> Result<Response<Body>, Refusal> {
        let meter = self.mounted.metrics.call();
        let (mut head, _body) = request.into_parts();
        self.check_origin(&head.headers)?;
        let upgrade = upgrade(&mut head).await?;
        let caller = self.mounted.identify(&head, &Envelope::default()).await?;
        let shared = &self.mounted.shared;
        let permit = caller
            .principal
            .as_ref()
            .map(|principal| shared.permits.acquire(principal));
        let counted = Held {
            meter,
            permit: permit.transpose()?,
        };
        // The shutdown waits for the conversation, which outlives the request.
        let awaited = shared.handle.tasks().token();
        let socket = Socket {
            mounted: Arc::clone(&self.mounted),
            abort: self.abort.clone(),
            caller,
            settings: self.settings.clone(),
        };
        let limit = shared.limits.body_bytes;
        let upgrade = upgrade
            .max_message_size(limit)
            .max_frame_size(limit)
            .protocols([PROTOCOL]);
        Ok(upgrade.on_upgrade(move |stream| async move {
            socket.serve(stream).await;
            drop((counted, awaited));
        }))
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

/// Returns the upgrade that a request asks for.
async fn upgrade(head: &mut Parts) -> Result<WebSocketUpgrade, Refusal> {
    if !offers_protocol(&head.headers) {
        let message = format!("this path is a WebSocket: open it with the subprotocol '{PROTOCOL}'");
        return Err(upgrade_required(message));
    }
    WebSocketUpgrade::from_request_parts(head, &())
        .await
        .map_err(|rejection| upgrade_required(format!("this path is a WebSocket: {}", rejection.body_text())))
}

fn upgrade_required(message: String) -> Refusal {
    let websocket = HeaderValue::from_static("websocket");
    Refusal::new(StatusCode::UPGRADE_REQUIRED, Error::failed_precondition(message))
        .with_header(header::UPGRADE, websocket)
}

fn offers_protocol(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let mut offers = offers
        .filter_map(|offer| offer.to_str().ok())
        .flat_map(|offer| offer.split(','));
    offers.any(|offer| offer.trim() == PROTOCOL)
}
