//! Requests and notifications from a server.

// Sampling and logging are deprecated by the protocol; servers of older versions still use them.
#![allow(deprecated)]

use std::sync::Arc;

use everturn_ai::Message;
use everturn_core::{Error, Exposure, HandlerError};
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestMethod, CreateMessageRequestParams,
    CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    ErrorData, FormElicitationCapability, Implementation, LoggingMessageNotificationParam,
    ProgressNotificationParam, Role, SamplingCapability, SamplingContent, SamplingMessage,
    SamplingMessageContentBlock, TASKS_EXTENSION_ID, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::broadcast;

use crate::fault;
use crate::settings::{Answer, Elicitation, Sampling, Settings};

/// The maximum number of progress notifications that wait for a call; further ones are dropped.
const PROGRESS_WAITING: usize = 256;

pub(crate) type Changed = Arc<dyn Fn() + Send + Sync>;

/// The client side of one connection.
pub(crate) struct Handler {
    name: Arc<str>,
    settings: Arc<Settings>,
    /// Notified when the server's lists have changed.
    changed: Changed,
    pub(crate) progress: broadcast::Sender<ProgressNotificationParam>,
}

impl Handler {
    pub(crate) fn new(name: &Arc<str>, settings: &Arc<Settings>, changed: Changed) -> Self {
        Self {
            name: Arc::clone(name),
            settings: Arc::clone(settings),
            changed,
            progress: broadcast::channel(PROGRESS_WAITING).0,
        }
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(
            ElicitationCapability::new()
                .with_form(FormElicitationCapability::new())
                .with_url(UrlElicitationCapability::new()),
        );
        capabilities.sampling = self.settings.sampling.is_some().then(SamplingCapability::default);
        let tasks = (TASKS_EXTENSION_ID.to_owned(), serde_json::Map::new());
        capabilities.extensions = Some([tasks].into_iter().collect());
        let us = Implementation::new("everturn", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, us)
    }

    /// Servers of older versions ask during the call. Without a handler the request is declined.
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let Some(handler) = &self.settings.elicitation else {
            tracing::warn!(server = %self.name, "declined what an MCP server asked: no handler for elicitation is set");
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        let answer = handler(elicitation(&self.name, request)).await;
        let answer = answer.map_err(refused)?;
        Ok(match answer {
            Answer::Accept(serde_json::Value::Null) => ElicitResult::new(ElicitationAction::Accept),
            Answer::Accept(content) => ElicitResult::new(ElicitationAction::Accept).with_content(content),
            Answer::Decline => ElicitResult::new(ElicitationAction::Decline),
            Answer::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let Some(handler) = &self.settings.sampling else {
            return Err(ErrorData::method_not_found::<CreateMessageRequestMethod>());
        };
        let sampled = handler(sampling(&self.name, params)).await;
        let sampled = sampled.map_err(refused)?;
        let text = SamplingMessageContentBlock::text(sampled.message.text());
        let message = SamplingMessage::new(Role::Assistant, text);
        Ok(CreateMessageResult::new(message, sampled.model)
            .with_stop_reason(CreateMessageResult::STOP_REASON_END_TURN))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        // Without an active call, notifications have no reader.
        let _ = self.progress.send(params);
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        tracing::info!(server = %self.name, level = ?params.level, "{}", params.data);
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        (self.changed)();
    }

    async fn on_prompt_list_changed(&self, _context: NotificationContext<RoleClient>) {
        (self.changed)();
    }

    async fn on_resource_list_changed(&self, _context: NotificationContext<RoleClient>) {
        (self.changed)();
    }
}

/// Returns the error response for a failed handler.
fn refused(error: HandlerError) -> ErrorData {
    fault::to_protocol(&Error::from(error), Exposure::Public)
}

pub(crate) fn elicitation(server: &str, request: ElicitRequestParams) -> Elicitation {
    match request {
        ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } => Elicitation {
            schema: serde_json::to_value(requested_schema).ok(),
            ..Elicitation::new(server, message)
        },
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => Elicitation {
            url: Some(url),
            ..Elicitation::new(server, message)
        },
        other => Elicitation {
            schema: serde_json::to_value(other).ok(),
            ..Elicitation::new(server, String::new())
        },
    }
}

fn sampling(server: &str, params: CreateMessageRequestParams) -> Sampling {
    let hints = params.model_preferences.and_then(|preferences| preferences.hints);
    Sampling {
        system: params.system_prompt,
        messages: params.messages.into_iter().map(sampling_message).collect(),
        temperature: params.temperature,
        stop_sequences: params.stop_sequences.unwrap_or_default(),
        models: hints
            .unwrap_or_default()
            .into_iter()
            .filter_map(|hint| hint.name)
            .collect(),
        ..Sampling::new(server, params.max_tokens)
    }
}

fn sampling_message(message: SamplingMessage) -> Message {
    let blocks = match message.content {
        SamplingContent::Single(block) => vec![block],
        SamplingContent::Multiple(blocks) => blocks,
    };
    let parts: Vec<_> = blocks
        .into_iter()
        .map(|block| {
            // Except for tool calls, the two kinds of content have the same form.
            let written = serde_json::to_value(&block).unwrap_or_default();
            serde_json::from_value(written.clone())
                .map_or_else(|_| everturn_ai::Part::data(written), crate::content::part)
        })
        .collect();
    match message.role {
        Role::Assistant => Message::model(parts),
        Role::User => Message::user(parts),
    }
}
