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

/// The hosts under which a server on this machine is reached.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

impl McpServer {
    /// Answers requests for this host too, such as `tools.example.com`. Without it the server is reached under the names
    /// of the loopback interface only, so that a page in a browser cannot trick it by a name of its own.
    pub fn allowed_host(self, host: impl Into<String>) -> Self {
        self.edit(|exposed| exposed.hosts.push(host.into()))
    }

    /// Answers requests of pages of this origin too, such as `https://app.example.com`. Without it requests that a
    /// browser makes for a page are refused.
    pub fn allowed_origin(self, origin: impl Into<String>) -> Self {
        self.edit(|exposed| exposed.origins.push(origin.into()))
    }
}

/// Streamable HTTP without sessions: each request says who makes it, and is served by whichever process it reaches.
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
            // The server around has read the body already, within its own limit.
            .with_max_request_body_bytes(usize::MAX)
            .with_cancellation_token(context.cancellation().clone());
        let session = move || Ok(Session::new(Arc::clone(&exposed)));
        let service = StreamableHttpService::new(session, Arc::new(NeverSessionManager::default()), config);
        request.extensions_mut().insert(context);
        service.handle(request.map(Body::from)).await.map(Body::new)
    }
}
