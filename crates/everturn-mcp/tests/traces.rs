//! The metadata that a server receives with a call.
//!
//! A separate program: whether a callsite has a subscriber is decided once for all threads, so every test
//! here has one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use everturn_ai::{ToolContext, lookup_tool};
use everturn_core::{Context, Registry, TraceParent};
use everturn_mcp::McpServers;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolsCapability,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};
use tracing_subscriber::layer::SubscriberExt;

/// Remembers what came with its last call.
#[derive(Clone, Default)]
struct Attentive(Arc<Mutex<Value>>);

impl ServerHandler for Attentive {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = Some(ToolsCapability::default());
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = Tool::new("listen", "Listens.", Arc::new(Map::new()));
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }

    async fn call_tool(
        &self,
        _params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        *self.0.lock().unwrap() = serde_json::to_value(&context.meta).unwrap();
        Ok(CallToolResult::success(Vec::new()).into())
    }
}

/// The metadata that a server receives with a call in this context.
async fn received_in(context: Context) -> Value {
    let server = Attentive::default();
    let registry = Registry::new();
    let servers = McpServers::new().stream("s", {
        let server = server.clone();
        move || {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let server = server.clone();
            tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
            async move { Ok(ours) }
        }
    });
    let _connections = servers.install(&registry).await.unwrap();
    let listen = lookup_tool(&registry, "s/listen").await.unwrap();
    listen.run_in(None, ToolContext::new(context)).await.unwrap();
    server.0.lock().unwrap().clone()
}

#[tokio::test]
async fn the_trace_of_a_caller_is_passed_on_even_if_it_is_not_recorded_here() {
    let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let caller = TraceParent::parse(header).unwrap();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry());

    let heard = received_in(Context::new().with_extension(Arc::new(caller))).await;

    assert_eq!(heard["traceparent"], header);
}

#[tokio::test]
async fn the_contexts_values_and_the_trace_come_along() {
    let provider = SdkTracerProvider::default();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));

    let context = Context::new().with_value("mcp", json!({ "_meta": { "example.org/table": 7 } }));
    let heard = received_in(context).await;

    assert_eq!(heard["example.org/table"], 7);
    let parent = heard["traceparent"].as_str().unwrap();
    assert!(parent.starts_with("00-") && parent.len() == 55, "{parent}");
}
