//! Calls that a server continues as tasks, and that are polled until they have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everturn_ai::ToolContext;
use everturn_core::{Error, Result};
use rmcp::model::{
    CallToolResult, CancelTaskParams, CancelTaskRequest, ClientRequest, ErrorData, GetTaskParams,
    GetTaskRequest, ServerResult, TaskPayload, UpdateTaskParams, UpdateTaskRequest,
};
use serde_json::Value;

use super::RemoteServer;
use crate::fault;
use crate::question::Question;

/// The default poll interval, if the server sets none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest and the longest poll interval that a server may set.
const POLL_BOUNDS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_mins(1));

/// A task of a server. Dropping it while it is awaited requests its cancellation.
pub(crate) struct RemoteTask {
    server: Arc<RemoteServer>,
    id: String,
}

impl RemoteTask {
    pub(crate) fn new(server: &Arc<RemoteServer>, id: &str) -> Self {
        Self {
            server: Arc::clone(server),
            id: id.to_owned(),
        }
    }

    /// Sends answers to the task.
    pub(crate) async fn answer(&self, answers: BTreeMap<String, Value>, context: &ToolContext) -> Result<()> {
        let params = UpdateTaskParams::new(self.id.as_str(), answers);
        let request = ClientRequest::UpdateTaskRequest(UpdateTaskRequest::new(params));
        let result = self.server.request(request, context.context(), None).await?;
        match result {
            ServerResult::TaskAckResult(_) | ServerResult::EmptyResult(_) => Ok(()),
            _ => Err(fault::unexpected(&self.server.name, "an acknowledgement")),
        }
    }

    /// Waits until the task has ended or asks a question. A connection that fails between two polls is made
    /// again.
    pub(crate) async fn finish(self, context: &ToolContext) -> Result<CallToolResult> {
        let mut waited_for = WaitedFor(Some(&self));
        let result = self.poll(context).await;
        waited_for.0 = None;
        result
    }

    async fn poll(&self, context: &ToolContext) -> Result<CallToolResult> {
        let name = &self.server.name;
        loop {
            let request =
                ClientRequest::GetTaskRequest(GetTaskRequest::new(GetTaskParams::new(self.id.as_str())));
            let result = self.server.request(request, context.context(), None).await?;
            let ServerResult::GetTaskResult(result) = result else {
                return Err(fault::unexpected(name, "the state of a task"));
            };
            let task = result.task;
            match task.payload {
                TaskPayload::Completed { result } => {
                    return serde_json::from_value(Value::Object(result)).map_err(|error| {
                        Error::internal(format!(
                            "MCP server '{name}': the result of a task cannot be read: {error}"
                        ))
                    });
                }
                TaskPayload::Failed { error } => {
                    let error = serde_json::from_value::<ErrorData>(Value::Object(error));
                    let unknown = |_| Error::internal(format!("MCP server '{name}': the task failed"));
                    return Err(error.map_or_else(unknown, |error| fault::protocol_error(name, &error)));
                }
                TaskPayload::Cancelled => {
                    return Err(Error::cancelled(format!(
                        "MCP server '{name}' cancelled the task"
                    )));
                }
                TaskPayload::InputRequired { input_requests } => {
                    let mut question = Question::new(name, Some(input_requests))?;
                    question.task_id = Some(self.id.clone());
                    return Err(question.interrupt());
                }
                _ => {}
            }
            if let Some(message) = &task.task.status_message {
                context
                    .send_partial(serde_json::json!({ "message": message }))
                    .await;
            }
            let asked_for = task.task.poll_interval_ms.map(Duration::from_millis);
            let (shortest, longest) = POLL_BOUNDS;
            tokio::time::sleep(asked_for.unwrap_or(POLL_INTERVAL).clamp(shortest, longest)).await;
        }
    }
}

struct WaitedFor<'a>(Option<&'a RemoteTask>);

impl Drop for WaitedFor<'_> {
    fn drop(&mut self) {
        let (Some(task), Ok(runtime)) = (self.0, tokio::runtime::Handle::try_current()) else {
            return;
        };
        let (server, id) = (Arc::clone(&task.server), task.id.clone());
        runtime.spawn(async move {
            let request = ClientRequest::CancelTaskRequest(CancelTaskRequest::new(CancelTaskParams::new(id)));
            // Cancelling is best effort: an unreachable server does not receive it.
            let context = everturn_core::Context::new();
            let _ = server.request(request, &context, None).await;
        });
    }
}
