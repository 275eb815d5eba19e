//! The routes of AG-UI and `CopilotKit`.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use everturn_agent::{SessionId, erase_streams_in};
use everturn_core::stream_log::{MemoryStreamLog, StreamLog};
use everturn_core::{Context, Error, Registry, Result, Status};
use everturn_server::{ProtocolAdapter, ServedAgent, Server, exposure_of, json_response};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use crate::active_runs::{ActiveRuns, Thread};
use crate::connect::connect;
use crate::plan::is_active;
use crate::run::run;

/// The maximum size of a request's body. Clients send the whole conversation, pictures included, with every
/// message.
const BODY_BYTES: usize = 16 * 1024 * 1024;

/// The memory for recorded runs on a server without a stream log.
const KEPT_BYTES: usize = 16 * 1024 * 1024;

/// Serves agents over AG-UI.
///
/// ```
/// use everturn_agui::ServeAgui;
/// use everturn_core::{Registry, Result};
/// use everturn_server::Server;
///
/// # fn main() -> Result<()> {
/// let registry = Registry::new();
/// let server = Server::new(&registry).agui();
/// // new HttpAgent({ url: "http://…/agui/chef" }), or <CopilotKit runtimeUrl="http://…/copilotkit">
/// # server.router().map(|_| ())
/// # }
/// ```
pub trait ServeAgui: Sized {
    /// Serves every agent at `/agui/{agent}`, and to `CopilotKit`'s browser code at `/copilotkit`.
    #[must_use]
    fn agui(self) -> Self {
        self.agui_at("/agui", "/copilotkit")
    }

    /// Serves every agent below one path, and to `CopilotKit`'s browser code below another.
    #[must_use]
    fn agui_at(self, prefix: &str, copilotkit: &str) -> Self;
}

impl ServeAgui for Server {
    fn agui_at(self, prefix: &str, copilotkit: &str) -> Self {
        let shared = Shared {
            registry: self.registry().clone(),
            log: Arc::new(MemoryStreamLog::options().max_bytes(KEPT_BYTES).build()),
            runs: ActiveRuns::default(),
        };
        erase_streams_in(&shared.registry, &shared.log);
        let opened = |prefix: &str, protocol| AguiAdapter {
            shared: shared.clone(),
            prefix: prefix.trim_end_matches('/').to_owned(),
            protocol,
        };
        let (agui, copilotkit) = (
            opened(prefix, Protocol::Agui),
            opened(copilotkit, Protocol::CopilotKit),
        );
        self.adapter(format!("{}/{{*path}}", agui.prefix), agui)
            .adapter(format!("{}/{{*path}}", copilotkit.prefix), copilotkit)
    }
}

#[derive(Clone)]
struct Shared {
    registry: Registry,
    /// Records runs on a server without a stream log.
    log: Arc<dyn StreamLog>,
    runs: ActiveRuns,
}

/// The set of routes of an adapter.
#[derive(Clone, Copy)]
enum Protocol {
    Agui,
    CopilotKit,
}

struct AguiAdapter {
    shared: Shared,
    prefix: String,
    protocol: Protocol,
}

/// A request to an agent.
enum Asked {
    Run,
    Connect,
    Capabilities,
    Stop(String),
}

#[async_trait::async_trait]
impl ProtocolAdapter for AguiAdapter {
    async fn handle(&self, request: Request<Bytes>, context: Context) -> Response<Body> {
        let exposure = exposure_of(&context);
        match self.route(&request, context).await {
            Ok(response) => response,
            Err(error) => {
                let error = error.to_wire(exposure);
                let status = error.status.unwrap_or(Status::Unknown).http_status();
                let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                json_response(code, &json!(error))
            }
        }
    }

    fn body_bytes(&self) -> Option<usize> {
        Some(BODY_BYTES)
    }

    fn reads_storage(&self, request: &Request<Bytes>) -> bool {
        request.uri().path().ends_with("/connect")
    }
}

impl AguiAdapter {
    async fn route(&self, request: &Request<Bytes>, context: Context) -> Result<Response<Body>> {
        let path = request.uri().path();
        let path = path.strip_prefix(self.prefix.as_str()).unwrap_or(path);
        let segments: Vec<String> = path.split('/').skip(1).map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if let (Protocol::CopilotKit, &Method::GET, ["info"]) =
            (self.protocol, request.method(), segments.as_slice())
        {
            return Ok(json_response(StatusCode::OK, &self.info(&context).await));
        }
        let (name, asked) = self.asked(request.method(), &segments).ok_or_else(|| {
            Error::not_found(format!(
                "nothing is served at {} {}",
                request.method(),
                request.uri().path()
            ))
            .with_public()
        })?;
        let agent = ServedAgent::admitted(&self.shared.registry, &name, &context).await;
        let agent =
            agent.ok_or_else(|| Error::not_found(format!("there is no agent '{name}'")).with_public())?;
        match asked {
            Asked::Run => {
                run(
                    &agent,
                    request.body(),
                    (&self.shared.log, &self.shared.runs),
                    context,
                )
                .await
            }
            Asked::Connect => connect(&agent, request.body(), context).await,
            Asked::Capabilities => Ok(json_response(StatusCode::OK, &capabilities(&agent))),
            Asked::Stop(thread) => {
                let stopped = self.stop(&agent, &thread, &context).await?;
                Ok(json_response(StatusCode::OK, &json!({ "stopped": stopped })))
            }
        }
    }

    /// Returns the agent and the request to it. Names of agents may contain slashes.
    fn asked(&self, method: &Method, segments: &[&str]) -> Option<(String, Asked)> {
        let (name, asked) = match (self.protocol, method, segments) {
            (Protocol::Agui, &Method::POST, [name @ .., "connect"]) if !name.is_empty() => {
                (name, Asked::Connect)
            }
            (Protocol::CopilotKit, &Method::POST, ["agent", name @ .., "run"])
            | (Protocol::Agui, &Method::POST, name) => (name, Asked::Run),
            (Protocol::Agui, &Method::GET, name) => (name, Asked::Capabilities),
            (Protocol::CopilotKit, &Method::POST, ["agent", name @ .., "connect"]) => (name, Asked::Connect),
            (Protocol::CopilotKit, &Method::POST, ["agent", name @ .., "stop", thread]) => {
                (name, Asked::Stop((*thread).to_owned()))
            }
            _ => return None,
        };
        Some((name.join("/"), asked))
    }

    /// Returns the description of all agents, the first request of `CopilotKit`'s browser code.
    async fn info(&self, context: &Context) -> Value {
        let mut agents = Map::new();
        for agent in ServedAgent::all(&self.shared.registry, context).await {
            let info = json!({
                "name": agent.name(),
                "description": agent.description().unwrap_or_default(),
                "className": "Everturn",
                "capabilities": capabilities(&agent),
            });
            agents.insert(agent.name().to_owned(), info);
        }
        json!({ "version": env!("CARGO_PKG_VERSION"), "mode": "sse", "agents": agents })
    }

    /// Stops the active work of a thread: runs of this process, or a background run.
    async fn stop(&self, agent: &ServedAgent, thread: &str, context: &Context) -> Result<bool> {
        if self.shared.runs.stop(&Thread::of(agent.name(), thread, context)) {
            return Ok(true);
        }
        match agent.tip(&SessionId::from(thread), context).await? {
            Some(tip) if is_active(&tip) => {
                agent.abort(&tip.snapshot_id, context).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// Percent-decodes a segment of a path.
fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

/// Returns the capabilities of an agent.
pub(crate) fn capabilities(agent: &ServedAgent) -> Value {
    let is_kept = agent.has_store();
    let mut identity = json!({ "name": agent.name(), "type": "everturn" });
    if let Some(description) = agent.description() {
        identity["description"] = description.into();
    }
    json!({
        "identity": identity,
        "transport": {
            "streaming": true,
            "websocket": false,
            "httpBinary": false,
            "pushNotifications": false,
            "resumable": false,
        },
        "tools": { "supported": true, "parallelCalls": true, "clientProvided": agent.accepts_tools() },
        "state": { "snapshots": true, "deltas": true, "memory": is_kept, "persistentState": is_kept },
        "multiAgent": { "supported": true, "delegation": true, "handoffs": false },
        "reasoning": { "supported": true, "streaming": true },
        "multimodal": {
            "input": { "image": true, "audio": true, "video": true, "pdf": true, "file": true },
        },
        "humanInTheLoop": {
            "supported": true,
            "approvals": true,
            "interrupts": true,
            "approveWithEdits": false,
        },
    })
}
