//! Servers of versions before 2026-07-28 ask while they work.
#![allow(
    deprecated,
    reason = "sampling is deprecated by the protocol, and still asked for by older servers"
)]

use everturn_ai::Message;
use everturn_core::{Registry, Result};
use everturn_mcp::{Answer, McpServers, Sampled};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateMessageRequestParams,
    DiscoverRequestMethod, DiscoverResult, ElicitRequest, ElicitRequestParams, ErrorData, ListToolsResult,
    PaginatedRequestParams, Role, SamplingMessage, SamplingMessageContentBlock, ServerCapabilities,
    ServerConfig, ServerRequest, Tool, ToolsCapability,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};

use crate::support::run;

/// Asks its client for everything it may ask for.
#[derive(Clone)]
struct Curious;

impl ServerHandler for Curious {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = Some(ToolsCapability::default());
        ServerConfig::new(capabilities)
    }

    async fn discover(&self, _context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        Err(ErrorData::method_not_found::<DiscoverRequestMethod>())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools =
            ["elicit", "sample"].map(|name| Tool::new(name, "Asks.", std::sync::Arc::new(Map::new())));
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let answer = if params.name == "elicit" {
            let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
            let asked = ElicitRequestParams::FormElicitationParams {
                meta: None,
                message: "Who?".to_owned(),
                requested_schema: serde_json::from_value(schema).unwrap(),
            };
            let asked = ServerRequest::ElicitRequest(ElicitRequest::new(asked));
            let answer = context.peer.send_request(asked).await;
            answer.map(|answer| json!(answer))
        } else {
            let said = SamplingMessage::new(Role::User, SamplingMessageContentBlock::text("Hello?"));
            let asked = CreateMessageRequestParams::new(vec![said], 10);
            context
                .peer
                .create_message(asked)
                .await
                .map(|answer| json!(answer))
        };
        let answer = answer.unwrap_or_else(|error| json!({ "refused": error.to_string() }));
        Ok(CallToolResult::success(vec![ContentBlock::text(answer.to_string())]).into())
    }
}

async fn ask(servers: McpServers, tool: &str) -> Value {
    let registry = Registry::new();
    let servers = servers.stream("old", || {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move { Curious.serve(theirs).await.unwrap().waiting().await });
        async move { Ok(ours) }
    });
    let _connections = servers.install(&registry).await.unwrap();
    run(&registry, &format!("old/{tool}"), json!({})).await.unwrap()
}

#[tokio::test]
async fn without_a_handler_the_user_declines() {
    assert_eq!(
        ask(McpServers::new(), "elicit").await,
        json!({ "action": "decline" })
    );
}

#[tokio::test]
async fn a_handler_answers_for_the_user() {
    let servers = McpServers::new().on_elicitation(|asked| async move {
        assert_eq!((asked.server.as_str(), asked.message.as_str()), ("old", "Who?"));
        Ok(Answer::Accept(json!({ "name": "Ada" })))
    });

    let answer = ask(servers, "elicit").await;

    assert_eq!(
        answer,
        json!({ "action": "accept", "content": { "name": "Ada" } })
    );
}

#[tokio::test]
async fn nothing_is_generated_for_a_server_without_a_handler() {
    let answer = ask(McpServers::new(), "sample").await;

    assert!(answer.get("refused").is_some(), "{answer}");
}

#[tokio::test]
async fn a_handler_generates_for_a_server() {
    let servers = McpServers::new().on_sampling(|asked| async move {
        let heard = asked.messages[0].text().into_owned();
        Ok(Sampled {
            model: "echo".to_owned(),
            message: Message::model(format!("{heard} {}", asked.max_tokens)),
        })
    });

    let answer = ask(servers, "sample").await;

    assert_eq!(answer["content"]["text"], "Hello? 10");
    assert_eq!(answer["model"], "echo");
}
