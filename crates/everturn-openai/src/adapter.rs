//! The routes of OpenAI's HTTP API.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode, Uri};
use bytes::Bytes;
use everturn_agent::erase_streams_in;
use everturn_core::offload::{HEAVY, offload};
use everturn_core::stream_log::{MemoryStreamLog, StreamLog};
use everturn_core::{Context, Registry, RuntimeError, Status};
use everturn_server::{ProtocolAdapter, ServedAgent, Server, json_response};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use crate::client_transcript::text;
use crate::completions::complete;
use crate::conversations::{self, ConversationRequest, NewConversations};
use crate::fault::Fault;
use crate::page::{Page, Query, number};
use crate::response::parse_response_id;
use crate::responses::{ResponseRequest, StoredResponse, create, not_found};

/// The maximum size of a request's body. Clients send the whole conversation, pictures included, with every
/// message.
const BODY_BYTES: usize = 16 * 1024 * 1024;

/// The memory for new conversations on a server without a stream log.
const KEPT_BYTES: usize = 1024 * 1024;

/// Serves agents over OpenAI's HTTP API.
///
/// ```
/// use everturn_core::{Registry, Result};
/// use everturn_openai::ServeOpenAi;
/// use everturn_server::Server;
///
/// # fn main() -> Result<()> {
/// let registry = Registry::new();
/// let server = Server::new(&registry).openai();
/// // OPENAI_BASE_URL=http://…/v1
/// # server.router().map(|_| ())
/// # }
/// ```
pub trait ServeOpenAi: Sized {
    /// Serves the API at `/v1`.
    #[must_use]
    fn openai(self) -> Self {
        self.openai_at("/v1")
    }

    /// Serves the API below a path.
    #[must_use]
    fn openai_at(self, prefix: &str) -> Self;
}

impl ServeOpenAi for Server {
    fn openai_at(self, prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/').to_owned();
        let log: Arc<dyn StreamLog> = Arc::new(MemoryStreamLog::options().max_bytes(KEPT_BYTES).build());
        erase_streams_in(self.registry(), &log);
        let adapter = OpenAiAdapter {
            registry: self.registry().clone(),
            log,
            prefix: prefix.clone(),
        };
        self.adapter(format!("{prefix}/{{*path}}"), adapter)
    }
}

struct OpenAiAdapter {
    registry: Registry,
    /// Stores new conversations on a server without a stream log.
    log: Arc<dyn StreamLog>,
    prefix: String,
}

#[async_trait::async_trait]
impl ProtocolAdapter for OpenAiAdapter {
    async fn handle(&self, request: Request<Bytes>, context: Context) -> Response<Body> {
        match self.route(&request, context).await {
            Ok(response) => response,
            Err(fault) => fault.respond(),
        }
    }

    fn body_bytes(&self) -> Option<usize> {
        Some(BODY_BYTES)
    }

    fn reads_storage(&self, request: &Request<Bytes>) -> bool {
        request.method() == Method::GET
    }

    fn refuse(&self, code: StatusCode, error: &RuntimeError) -> Option<Response<Body>> {
        let status = error.status.unwrap_or(Status::Unknown);
        Some(Fault::of(code, status, error.message.clone()).respond())
    }
}

impl OpenAiAdapter {
    async fn route(&self, request: &Request<Bytes>, context: Context) -> Result<Response<Body>, Fault> {
        let path = request.uri().path();
        let path = path.strip_prefix(self.prefix.as_str()).unwrap_or(path);
        let segments: Vec<String> = path.split('/').skip(1).map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let method = request.method();
        match (method, segments.as_slice()) {
            (&Method::GET, ["models"]) => {
                let agents = ServedAgent::all(&self.registry, &context).await;
                let models: Vec<Value> = agents.iter().map(|agent| model(agent.name())).collect();
                Ok(ok(&json!({ "object": "list", "data": models })))
            }
            (&Method::GET, ["models", name @ ..]) => {
                let agent = self.agent(&name.join("/"), &context).await?;
                Ok(ok(&model(agent.name())))
            }
            (&Method::POST, ["chat", "completions"]) => {
                let body = object(request).await?;
                let agent = self.agent_of(&body, &context).await?;
                complete(&agent, &body, request.headers(), context).await
            }
            (&Method::POST, ["responses"]) => {
                let body = object(request).await?;
                let agent = self.agent_of(&body, &context).await?;
                create(&agent, &body, (request.headers(), request.body()), context).await
            }
            (_, ["responses", id, rest @ ..]) => self.afterwards(request, id, rest, context).await,
            (&Method::POST, ["conversations"]) => {
                let is_empty = request.body().is_empty();
                let body = if is_empty {
                    Map::new()
                } else {
                    object(request).await?
                };
                let new = NewConversations::of(&self.log, &context);
                conversations::create(&body, &new).await
            }
            (_, ["conversations", id, rest @ ..]) => {
                let asked = match (method, rest) {
                    (&Method::GET, []) => ConversationRequest::Object,
                    (&Method::DELETE, []) => ConversationRequest::Delete,
                    (&Method::GET, ["items"]) => {
                        ConversationRequest::Items(Page::of_query(&query(request.uri()))?)
                    }
                    _ => return Err(unknown_url(request)),
                };
                let agents = ServedAgent::all(&self.registry, &context).await;
                let new = NewConversations::of(&self.log, &context);
                conversations::answer(&agents, id, asked, &new, &context).await
            }
            _ => Err(unknown_url(request)),
        }
    }

    async fn afterwards(
        &self,
        request: &Request<Bytes>,
        id: &str,
        rest: &[&str],
        context: Context,
    ) -> Result<Response<Body>, Fault> {
        let query = query(request.uri());
        let asked = match (request.method(), rest) {
            (&Method::GET, []) => match query.get("stream").map(String::as_str) {
                Some("true" | "1") => ResponseRequest::Stream {
                    after: number(&query, "starting_after")?,
                },
                _ => ResponseRequest::Object,
            },
            (&Method::DELETE, []) => ResponseRequest::Delete,
            (&Method::POST, ["cancel"]) => ResponseRequest::Cancel,
            (&Method::GET, ["input_items"]) => ResponseRequest::Inputs(Page::of_query(&query)?),
            _ => return Err(unknown_url(request)),
        };
        let missing = || not_found(id);
        let (turn, name) = parse_response_id(id).ok_or_else(missing)?;
        // The response of an agent that the caller may not use is reported as missing.
        let agent = ServedAgent::admitted(&self.registry, &name, &context)
            .await
            .ok_or_else(missing)?;
        StoredResponse::answer(&agent, turn, asked, context).await
    }

    async fn agent_of(&self, body: &Map<String, Value>, context: &Context) -> Result<ServedAgent, Fault> {
        let name = text(body, "model")?.ok_or_else(|| Fault::missing("model"))?;
        self.agent(name, context).await
    }

    async fn agent(&self, name: &str, context: &Context) -> Result<ServedAgent, Fault> {
        let found = ServedAgent::admitted(&self.registry, name, context).await;
        found.ok_or_else(|| {
            Fault::not_found(
                "model_not_found",
                format!("The model '{name}' does not exist or you do not have access to it."),
            )
            .at("model")
        })
    }
}

fn ok(body: &Value) -> Response<Body> {
    json_response(StatusCode::OK, body)
}

fn model(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "everturn" })
}

fn unknown_url(request: &Request<Bytes>) -> Fault {
    let (method, path) = (request.method(), request.uri().path());
    Fault::not_found("unknown_url", format!("Unknown request URL: {method} {path}."))
}

/// Reads the body as a JSON object.
async fn object(request: &Request<Bytes>) -> Result<Map<String, Value>, Fault> {
    let invalid = |message: String| Fault {
        param: None,
        ..Fault::invalid("invalid_json", "", message)
    };
    let body = request.body().clone();
    let is_heavy = body.len() > HEAVY;
    let parse = move || serde_json::from_slice(&body);
    match if is_heavy { offload(parse).await } else { parse() } {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(invalid("The body must be a JSON object.".into())),
        Err(error) => Err(invalid(format!(
            "We could not parse the JSON body of your request: {error}."
        ))),
    }
}

/// Percent-decodes a segment of a path.
fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

fn query(uri: &Uri) -> Query {
    uri.query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}
