//! Recent traces as routes of the application's own server, in development.

use everturn_core::{Context, async_trait};
use everturn_dev::TraceLog;
use everturn_server::axum::body::{Body, Bytes};
use everturn_server::axum::http::{Request, Response, StatusCode, header};
use everturn_server::{Audience, ProtocolAdapter, Server};

/// Serves recent traces; [`Everturn::serve`](crate::Everturn::serve) does so in development.
pub trait ServeTraces {
    /// Adds the routes `/dev/traces` and `/dev/traces/{id}` to a server.
    fn traces(self, traces: &TraceLog) -> Self;
}

impl ServeTraces for Server {
    fn traces(self, traces: &TraceLog) -> Self {
        let adapter = || Traces(traces.clone());
        self.adapter("/dev/traces", adapter())
            .adapter("/dev/traces/{id}", adapter())
    }
}

struct Traces(TraceLog);

#[async_trait]
impl ProtocolAdapter for Traces {
    // Traces contain the texts of all callers.
    fn audience(&self) -> Audience {
        Audience::Operators
    }

    async fn handle(&self, request: Request<Bytes>, _context: Context) -> Response<Body> {
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        let (status, body) = match self.0.answer(path.trim_start_matches("/dev/")) {
            Some(answer) => (StatusCode::OK, answer.to_string()),
            None => (
                StatusCode::NOT_FOUND,
                r#"{"message":"there is no such trace"}"#.to_owned(),
            ),
        };
        let response = Response::builder()
            .status(status)
            .header(header::CONTENT_TYPE, "application/json");
        response
            .body(Body::from(body))
            .expect("status and header are constants")
    }
}
