//! Tools of a server, registered as tools.

use std::sync::Arc;

use everturn_agent::TurnEffect;
use everturn_ai::{JsonObject, Reconciliation, Replay, Tool, ToolContext, interrupt_data};
use everturn_core::{Error, Registry, Result, Schema, Status};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ServerResult, ToolAnnotations,
};
use serde_json::{Value, json};

use super::RemoteServer;
use super::task::RemoteTask;
use crate::question::Question;
use crate::{content, fault};

/// Registers a listed tool.
pub(crate) fn register(
    server: &Arc<RemoteServer>,
    listed: &rmcp::model::Tool,
    registry: &Registry,
) -> Result<()> {
    tool(server, listed).register(registry)
}

fn tool(server: &Arc<RemoteServer>, listed: &rmcp::model::Tool) -> Tool {
    let name = server.name_of(&listed.name);
    let schema = Schema::from_json(Value::Object((*listed.input_schema).clone()));
    if let Err(error) = &schema {
        tracing::warn!(tool = %name, %error, "the schema of an MCP tool is not used");
    }
    let description = listed.description.clone().unwrap_or_default();
    let call = {
        let (server, tool) = (Arc::clone(server), listed.name.to_string());
        move |input: Value, context: ToolContext| {
            let (server, tool) = (Arc::clone(&server), tool.clone());
            async move { Ok(call(&server, &tool, input, &context).await?) }
        }
    };
    let reconcile = {
        let server = Arc::clone(server);
        move |_: Value, context: ToolContext| {
            let server = Arc::clone(&server);
            async move { Ok(reconcile(&server, &context).await?) }
        }
    };
    Tool::dynamic(name, description, schema.ok(), call)
        .with_replay(replay(listed.annotations.as_ref()))
        .with_reconcile(reconcile)
        .with_metadata(metadata(server, listed))
}

/// Returns how a call may be repeated, by the server's hints. A wrong hint repeats a call; it does not lose
/// one.
fn replay(annotations: Option<&ToolAnnotations>) -> Replay {
    let Some(hints) = annotations else {
        return Replay::Once;
    };
    if hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true) {
        Replay::Idempotent
    } else {
        Replay::Once
    }
}

fn metadata(server: &RemoteServer, listed: &rmcp::model::Tool) -> JsonObject {
    let mut entries = JsonObject::new();
    let origin = json!({ "server": server.name.as_ref(), "tool": listed.name, "title": listed.title });
    entries.insert("mcp".to_owned(), origin);
    entries.insert("originalName".to_owned(), listed.name.as_ref().into());
    if let Some(annotations) = &listed.annotations {
        entries.insert("annotations".to_owned(), json!(annotations));
    }
    entries
}

/// Calls the tool, or continues a call that asked a question.
async fn call(server: &Arc<RemoteServer>, tool: &str, input: Value, context: &ToolContext) -> Result<Value> {
    let question = Question::answered_by(context, &server.name);
    let answer = context.answer_value().cloned().unwrap_or_default();
    if let Some(question) = &question
        && let Some(task) = &question.task_id
    {
        let task = RemoteTask::new(server, task);
        task.answer(question.answers(&answer)?, context).await?;
        return Ok(output(task.finish(context).await?, context));
    }
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = arguments(tool, input)?;
    if let Some(question) = question {
        params.input_responses = Some(question.answers(&answer)?);
        params.request_state = question.request_state;
    }
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    // An unreachable server was not called.
    server.link().await.map_err(Error::nothing_happened)?;
    let mut answered = None;
    let created: Result<String> = task_of(context)
        .run(|_| async {
            let result = server.request(request, context.context(), Some(context)).await;
            match result.map_err(refused)? {
                ServerResult::CreateTaskResult(created) => Ok(created.task.task_id),
                other => {
                    answered = Some(other);
                    Err(no_task().into())
                }
            }
        })
        .await;
    match (answered, created) {
        (Some(ServerResult::CallToolResult(result)), _) => Ok(output(result, context)),
        (Some(ServerResult::InputRequiredResult(asked)), _) => {
            let mut question = Question::new(&server.name, asked.input_requests)?;
            question.request_state = asked.request_state;
            Err(question.interrupt())
        }
        (Some(_), _) => Err(fault::unexpected(&server.name, "the result of a tool")),
        (None, created) => {
            let task = created?;
            server.note_task(context.effect_id(), &task).await;
            let result = RemoteTask::new(server, &task).finish(context).await;
            let has_failed = |error: &Error| interrupt_data(error).is_none();
            if !result.as_ref().is_err_and(has_failed) {
                server.forget_task(context.effect_id()).await;
            }
            Ok(output(result?, context))
        }
    }
}

/// Waits for the task of a call, which is journaled first: a turn that runs again continues to wait and does
/// not repeat the call.
fn task_of(context: &ToolContext) -> TurnEffect {
    let name = format!("MCP task of {}", context.effect_id());
    TurnEffect::within(context.context(), name, Replay::Idempotent)
}

/// Marks the error as without effect if the server rejected the request itself.
fn refused(error: Error) -> Error {
    match error.status() {
        Status::InvalidArgument
        | Status::NotFound
        | Status::Unauthenticated
        | Status::PermissionDenied
        | Status::ResourceExhausted => error.nothing_happened(),
        _ => error,
    }
}

fn no_task() -> Error {
    Error::not_found("the call did not become a task")
}

/// Returns the outcome of a call whose process died: if it became a task, the task has the outcome.
async fn reconcile(server: &Arc<RemoteServer>, context: &ToolContext) -> Result<Reconciliation<Value>> {
    let task: String = match server.task_of(context.effect_id()).await {
        // The call failed in this process.
        Some(task) => task,
        None => match task_of(context).run(|_| async { Err(no_task().into()) }).await {
            Ok(task) => task,
            Err(error) if error.status() == Status::NotFound => return Ok(Reconciliation::Unknown),
            Err(error) => return Err(error),
        },
    };
    let result = RemoteTask::new(server, &task).finish(context).await?;
    server.forget_task(context.effect_id()).await;
    Ok(Reconciliation::Happened(output(result, context)))
}

fn arguments(tool: &str, input: Value) -> Result<Option<JsonObject>> {
    match input {
        Value::Null => Ok(None),
        Value::Object(arguments) => Ok(Some(arguments)),
        other => Err(Error::invalid_argument(format!(
            "the MCP tool '{tool}' takes an object of arguments, not {other}"
        ))
        .nothing_happened()),
    }
}

/// Returns the output of a call; content other than text is attached.
fn output(result: CallToolResult, context: &ToolContext) -> Value {
    let (text, rest) = content::text_and_rest(result.content);
    for part in rest {
        context.attach(part);
    }
    if result.is_error == Some(true) {
        return json!({ "error": text.unwrap_or_else(|| "the tool failed".to_owned()) });
    }
    let structured = result.structured_content;
    structured.unwrap_or_else(|| text.map_or(Value::Null, content::read_text))
}
