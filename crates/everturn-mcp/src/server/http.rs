//! The server at a path of Everturn's HTTP server.

use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use everturn_core::Context;
use everturn_server::ProtocolAdapter;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use super::McpServer;
use super::session::Session;

/// The hosts of a server on this machine.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

impl McpServer {
    /// Accepts requests for this host too, such as `tools.example.com`. By default only names of the loopback
    /// interface are accepted, so that a page whose name resolves to this machine cannot use the server.
    pub fn allowed_host(self, host: impl Into<String>) -> Self {
        self.edit(|exposed| exposed.hosts.push(host.into()))
    }

    /// Accepts requests of pages of this origin too, such as `https://app.example.com`. By default requests
    /// that a browser makes for a page are rejected.
    pub fn allowed_origin(self, origin: impl Into<String>) -> Self {
        self.edit(|exposed| exposed.origins.push(origin.into()))
    }
}

/// Streamable HTTP without sessions: each request identifies its caller, and any process can serve it.
#[async_trait]
impl ProtocolAdapter for McpServer {
    async fn handle(&self, mut request: Request<Bytes>, context: Context) -> Response<Body> {
        let exposed = Arc::clone(&self.0);
        let hosts = LOOPBACK.into_iter().map(str::to_owned);
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_allowed_hosts(hosts.chain(exposed.hosts.iter().cloned()))
            .with_allowed_origins(exposed.origins.iter().cloned())
            .enforce_origin_validation()
            // The HTTP server has read the body, within its own limit.
            .with_max_request_body_bytes(usize::MAX)
            .with_cancellation_token(context.cancellation().clone());
        let session = move || Ok(Session::new(Arc::clone(&exposed)));
        let service = StreamableHttpService::new(session, Arc::new(NeverSessionManager::default()), config);
        request.extensions_mut().insert(context);
        service.handle(request.map(Body::from)).await.map(Body::new)
    }
}
