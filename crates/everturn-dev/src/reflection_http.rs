//! The reflection API over HTTP, version 1: the program is the server, and the tools call it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use everturn_core::offload::{HEAVY, offload, parsed_size};
use everturn_core::{Error, Result, Status};
use futures::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::runs::{Run, RunRequest, Runs};
use crate::{TraceLog, wire};

/// The maximum size of a request body.
const MAX_BODY: usize = 30 * 1024 * 1024;

/// The maximum memory of the values in a body.
const MAX_VALUES: usize = 128 * 1024 * 1024;

/// The first port to try, and the number of ports.
const PORTS: std::ops::Range<u16> = 3100..3200;

/// The server before it accepts connections.
pub(crate) struct ReflectionServer {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl ReflectionServer {
    /// Binds the given port, or the first free one.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the port is taken, or all of them are.
    pub(crate) async fn bind(host: &str, port: Option<u16>) -> Result<Self> {
        let ports = port.map_or(PORTS, |port| port..port.saturating_add(1));
        for port in ports.clone() {
            if let Ok(listener) = TcpListener::bind((host, port)).await {
                let address = listener.local_addr().map_err(|error| {
                    Error::unavailable(format!("no address for the developer tools: {error}"))
                })?;
                return Ok(Self { listener, address });
            }
        }
        Err(Error::unavailable(format!(
            "no port for the developer tools: {host} has none free from {} to {}",
            ports.start,
            ports.end - 1
        )))
    }

    /// Serves until `over` is cancelled.
    pub(crate) async fn serve(self, api: Api, over: CancellationToken) {
        let router = api.router();
        let serving = axum::serve(self.listener, router).with_graceful_shutdown(over.cancelled_owned());
        // The tools notice the end of the program themselves.
        let _ = serving.await;
    }
}

/// The state behind the routes.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) runs: Runs,
    pub(crate) traces: TraceLog,
    /// The ids that the tools may use for the program.
    pub(crate) ids: Arc<[String]>,
    /// The host name that was bound, in addition to the loopback names.
    pub(crate) host: Arc<str>,
    /// Stops serving and removes the runtime file.
    pub(crate) quit: CancellationToken,
}

impl Api {
    fn router(self) -> Router {
        Router::new()
            .route("/api/__health", get(health))
            .route("/api/__quitquitquit", get(quit))
            .route(
                "/api/envs",
                get(async || json_text(StatusCode::OK, &json!(["dev"]))),
            )
            .route("/api/notify", post(notify))
            .route("/api/actions", get(actions))
            .route("/api/values", get(values))
            .route("/api/runAction", post(run_action))
            .route("/api/cancelAction", post(cancel_action))
            .route("/api/dev/{*path}", get(dev))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(middleware::from_fn_with_state(self.clone(), guard))
            .with_state(self)
    }
}

/// Rejects pages of other origins and foreign host names, and adds the version to every response.
///
/// The tools send no `Origin`. A page that sends one could run any action, and a foreign `Host` indicates DNS
/// rebinding.
async fn guard(State(api): State<Api>, request: Request, next: Next) -> Response {
    let mut response = if request.headers().contains_key(ORIGIN) || !is_ours(request.headers(), &api.host) {
        let text = "only the developer tools of this machine may call";
        (StatusCode::FORBIDDEN, text).into_response()
    } else {
        next.run(request).await
    };
    response
        .headers_mut()
        .insert("x-genkit-version", HeaderValue::from_static(wire::VERSION));
    response
}

fn is_ours(headers: &HeaderMap, bound: &str) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].contains(&name) || name == bound
}

/// A decoded query parameter.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let query = uri.query()?.as_bytes();
    let found = form_urlencoded::parse(query).find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned())
}

fn json_text(status: StatusCode, value: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// An error outside a run, in the form that the tools print.
fn refusal(status: StatusCode, error: &Error) -> Response {
    json_text(status, &wire::failure(error, None))
}

async fn read<T>(body: Bytes) -> std::result::Result<T, Box<Response>>
where
    T: for<'de> Deserialize<'de> + Send + 'static,
{
    let is_heavy = body.len() > HEAVY;
    let parse = move || {
        let size = parsed_size(&body);
        if size > MAX_VALUES {
            return Err(format!(
                "its values would take about {size} bytes of memory and may take {MAX_VALUES}"
            ));
        }
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    };
    let parsed = if is_heavy { offload(parse).await } else { parse() };
    parsed.map_err(|why| {
        let error = Error::invalid_argument(format!("the request cannot be read: {why}"));
        Box::new(refusal(StatusCode::BAD_REQUEST, &error))
    })
}

async fn health(State(api): State<Api>, uri: Uri) -> Response {
    match parameter(&uri, "id") {
        // A previous program used this port.
        Some(id) if !api.ids.contains(&id) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the request is for another program",
        )
            .into_response(),
        _ => "OK".into_response(),
    }
}

async fn quit(State(api): State<Api>) -> &'static str {
    api.quit.cancel();
    "OK"
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notification {
    #[serde(default)]
    telemetry_server_url: Option<String>,
}

async fn notify(State(api): State<Api>, body: Bytes) -> Response {
    match read::<Notification>(body).await {
        Ok(notification) => {
            if let Some(url) = notification.telemetry_server_url {
                api.runs.exporter().use_server(&url);
            }
            "OK".into_response()
        }
        Err(refused) => *refused,
    }
}

async fn actions(State(api): State<Api>) -> Response {
    match wire::actions(api.runs.registry()).await {
        Ok(actions) => json_text(StatusCode::OK, &actions.into()),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error),
    }
}

async fn values(State(api): State<Api>, uri: Uri) -> Response {
    let kind = parameter(&uri, "type").unwrap_or_default();
    if let Some(values) = wire::values(api.runs.registry(), &kind) {
        return json_text(StatusCode::OK, &values);
    }
    let error = Error::invalid_argument(format!(
        "'{kind}' is no type of values: ask for 'defaultModel' or 'middleware'"
    ));
    refusal(StatusCode::BAD_REQUEST, &error)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancellation {
    #[serde(default)]
    trace_id: Option<String>,
}

async fn cancel_action(State(api): State<Api>, body: Bytes) -> Response {
    let cancellation: Cancellation = match read(body).await {
        Ok(cancellation) => cancellation,
        Err(refused) => return *refused,
    };
    let Some(trace) = cancellation.trace_id else {
        return json_text(
            StatusCode::BAD_REQUEST,
            &json!({ "error": "traceId is required" }),
        );
    };
    if api.runs.cancel(&trace) {
        json_text(StatusCode::OK, &json!({ "message": "Action cancelled" }))
    } else {
        let message = "Action not found or already completed";
        json_text(StatusCode::NOT_FOUND, &json!({ "message": message }))
    }
}

async fn dev(State(api): State<Api>, uri: Uri) -> Response {
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    match api.traces.answer(path.trim_start_matches("/api/dev/")) {
        Some(answer) => json_text(StatusCode::OK, &answer),
        None => refusal(StatusCode::NOT_FOUND, &Error::not_found("there is no such trace")),
    }
}

async fn run_action(State(api): State<Api>, uri: Uri, body: Bytes) -> Response {
    let mut request: RunRequest = match read(body).await {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    let stream = parameter(&uri, "stream").is_some_and(|stream| stream == "true");
    request.stream = stream;
    let mut run = match api.runs.start(request, None).await {
        Ok(run) => run,
        Err(error) if error.status() == Status::NotFound => return refusal(StatusCode::NOT_FOUND, &error),
        Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, &error),
    };
    // The response head is sent as soon as the trace id is known: the tools display it, and can cancel the
    // run.
    let ids = (&mut run.started).await.ok();
    let mut response = Response::new(body_of(run));
    let content_type = if stream { "text/plain" } else { "application/json" };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(ids) = ids {
        let header =
            |id: String| HeaderValue::from_str(&id).expect("hexadecimal digits can stand in a header");
        headers.insert("x-genkit-trace-id", header(ids.trace.to_string()));
        headers.insert("x-genkit-span-id", header(ids.span.to_string()));
    }
    response
}

/// Returns the chunks, one per line, and the final object without a newline, which would crash the tools.
fn body_of(run: Run) -> Body {
    let lines = stream::unfold(Some(run), |run| async {
        let mut run = run?;
        if let Some(chunk) = run.chunks.recv().await {
            return Some((format!("{chunk}\n"), Some(run)));
        }
        let last = match run.ended.await {
            Ok(ended) => ended.into_json(),
            Err(_) => json!({ "error": wire::failure(&Error::cancelled("the program ends"), None) }),
        };
        Some((last.to_string(), None))
    });
    Body::from_stream(futures::StreamExt::map(lines, Ok::<_, Infallible>))
}
