//! Agents as tools: a message and a session id in, an answer and a session id out.

use std::sync::Arc;

use everturn_agent::{
    AgentFinishReason, AgentInit, AgentInput, AgentMetadata, AgentOutput, AgentStreamChunk, HandOff,
    SessionId, SnapshotId, StateManagement,
};
use everturn_ai::{Answers, JsonObject, Message, Part};
use everturn_core::stream_log::JsonText;
use everturn_core::{Descriptor, DynAction, Error, JsonCall, Result};
use jiff::Timestamp;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult, Task, TaskStatus,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::asking::{Answered, Asking};
use super::session::{Request, handing_off};
use super::tools::{Step, failed, progress};

/// The message for a client that does not support tasks.
const STILL_WORKING: &str = "The server is shutting down, and the agent goes on with this in the background. Ask it later in this session.";

/// The poll interval for tasks, in milliseconds.
pub(super) const POLL_INTERVAL_MS: u64 = 1_000;

/// The arguments of an agent's tool.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    message: String,
    #[serde(default)]
    session_id: Option<SessionId>,
}

/// The sealed state between an agent's question and its answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Paused {
    snapshot_id: Option<SnapshotId>,
    parts: Vec<Part>,
}

/// Returns an agent as a tool.
pub(super) fn described(descriptor: &Descriptor) -> rmcp::model::Tool {
    let message = json!({ "type": "string", "description": "What to say to the agent." });
    let mut properties = json!({ "message": message });
    if has_store(descriptor) {
        properties["sessionId"] = json!({
            "type": "string",
            "description": "The conversation to go on with; a new one begins if it is not given.",
        });
    }
    let input = json!({
        "type": "object",
        "properties": properties,
        "required": ["message"],
        "additionalProperties": false,
    });
    let text = json!({ "type": "string" });
    let output = json!({
        "type": "object",
        "properties": { "sessionId": text, "snapshotId": text, "finishReason": text },
    });
    let object = |value: Value| Arc::new(value.as_object().cloned().unwrap_or_default());
    let description = descriptor.description.clone();
    let description = description.unwrap_or_else(|| format!("Talks to the agent '{}'.", descriptor.name));
    let mut tool = rmcp::model::Tool::new(descriptor.name.clone(), description, object(input));
    tool.output_schema = Some(object(output));
    tool
}

fn metadata(descriptor: &Descriptor) -> Option<AgentMetadata> {
    AgentMetadata::deserialize(descriptor.metadata.get("agent")?).ok()
}

/// Returns whether the agent has a store.
fn has_store(descriptor: &Descriptor) -> bool {
    metadata(descriptor).is_some_and(|agent| agent.state_management == StateManagement::Server)
}

/// Runs one turn of an agent.
pub(super) async fn call(
    request: &Request<'_>,
    agent: &Arc<dyn DynAction>,
    params: CallToolRequestParams,
) -> Result<CallToolResponse> {
    let name = &agent.descriptor().name;
    let asking = Asking::of_tool(request, name, params.arguments.as_ref());
    let reply = asking.reply(params.request_state.as_deref(), params.input_responses)?;
    let (init, input) = match &reply {
        None => match opening(params.arguments) {
            Ok(opening) => opening,
            Err(error) => return Ok(failed(error.message())),
        },
        Some(reply) => match &reply.answered {
            Answered::Declined(why) => return Ok(failed(why)),
            Answered::With { answers, .. } => {
                let paused = Paused::deserialize(&reply.state)?;
                asking.claim(reply).await?;
                resumption(paused, answers.clone())
            }
        },
    };
    let output = run(request, agent, init, input).await;
    // The agent stores no turn that failed before it started, and finds its earlier effects in its journal.
    let has_failed = |output: &AgentOutput| output.finish_reason == Some(AgentFinishReason::Failed);
    if let Some(reply) = &reply
        && output.as_ref().map_or(true, has_failed)
    {
        asking.give_back(reply).await;
    }
    let output = match output {
        Ok(output) => output,
        Err(error) => return Ok(failed(&error.to_wire(request.exposure()).message)),
    };
    respond(request, &asking, output)
}

fn opening(arguments: Option<JsonObject>) -> Result<(AgentInit, AgentInput)> {
    let arguments = Value::Object(arguments.unwrap_or_default());
    let arguments: Arguments = serde_json::from_value(arguments)
        .map_err(|error| Error::invalid_argument(format!("the arguments cannot be read: {error}")))?;
    let init = AgentInit {
        session_id: arguments.session_id,
        ..AgentInit::default()
    };
    Ok((init, AgentInput::message(arguments.message)))
}

fn resumption(paused: Paused, answers: Vec<Value>) -> (AgentInit, AgentInput) {
    let init = AgentInit {
        snapshot_id: paused.snapshot_id,
        ..AgentInit::default()
    };
    (init, AgentInput::answers(answers_to(&paused.parts, answers)))
}

/// Returns the answers in the agent's form. A call that asked without data accepts only a response; any other
/// call is restarted with the answer.
pub(super) fn answers_to(parts: &[Part], answers: Vec<Value>) -> Answers {
    let mut given = Answers::default();
    for (part, answer) in parts.iter().zip(answers) {
        if part.interrupt() == Some(&Value::Bool(true)) {
            given.respond.extend(part.respond(spoken(answer), None));
        } else {
            given.restart.extend(part.restart(Some(answer), None));
        }
    }
    given
}

/// Returns the answer in a form with a single field.
pub(super) fn spoken(answer: Value) -> Value {
    match answer.get("answer") {
        Some(said) => said.clone(),
        None => answer,
    }
}

/// Returns the questions of interrupted tool calls, by the calls' references.
pub(super) fn questions(parts: &[Part]) -> Vec<(String, Value)> {
    let name = |(number, part): (usize, &Part)| {
        let request = part.as_tool_request();
        let name = request.and_then(|request| request.reference.clone());
        name.unwrap_or_else(|| format!("question{number}"))
    };
    let data = |part: &Part| part.interrupt().cloned().unwrap_or(Value::Bool(true));
    parts
        .iter()
        .enumerate()
        .map(|(number, part)| (name((number, part)), data(part)))
        .collect()
}

/// Returns whether the client supports tasks.
fn supports_tasks(request: &Request<'_>) -> bool {
    let capabilities = request.rmcp.client_capabilities();
    capabilities.is_some_and(|capabilities| capabilities.supports_tasks())
}

/// Runs an agent. A long turn continues in the background if the client supports tasks, and in any case when
/// the server shuts down.
async fn run(
    request: &Request<'_>,
    agent: &Arc<dyn DynAction>,
    init: AgentInit,
    input: AgentInput,
) -> Result<AgentOutput> {
    let can_detach = metadata(agent.descriptor()).is_some_and(|agent| agent.abortable);
    let leave = CancellationToken::new();
    let mut context = request.context.clone();
    if can_detach {
        context = context.with_extension(Arc::new(HandOff::when(leave.clone())));
    }
    let chunks = progress(request, |chunk: &JsonText| {
        let chunk: AgentStreamChunk = serde_json::from_str(chunk.as_str()).ok()?;
        let text: String = chunk
            .model_chunk?
            .content
            .iter()
            .filter_map(Part::as_text)
            .collect();
        (!text.is_empty()).then(|| Step::message(text))
    });
    let call = JsonCall {
        input: Some(serde_json::to_value(input)?),
        init: Some(serde_json::to_value(init)?),
        context,
        emitter: chunks.is_streaming().then_some(chunks),
    };
    let mut running = agent.run_json(call);
    let output = tokio::select! {
        biased;
        output = &mut running => output,
        () = tokio::time::sleep(request.exposed.task_after), if can_detach && supports_tasks(request) => {
            leave.cancel();
            running.await
        }
        () = handing_off(&request.context), if can_detach => {
            leave.cancel();
            running.await
        }
    };
    Ok(serde_json::from_value(output?)?)
}

fn respond(request: &Request<'_>, asking: &Asking<'_>, output: AgentOutput) -> Result<CallToolResponse> {
    match (output.finish_reason, output.snapshot_id) {
        (Some(AgentFinishReason::Detached), Some(run)) if supports_tasks(request) => {
            let now = Timestamp::now().to_string();
            let task = Task::new(run.as_str(), TaskStatus::Working, now.as_str(), now.as_str());
            let task = task.with_poll_interval_ms(POLL_INTERVAL_MS);
            Ok(CreateTaskResult::new(task).into())
        }
        (Some(AgentFinishReason::Interrupted), snapshot_id) => {
            let message = output.message.unwrap_or_else(|| Message::model(""));
            let parts: Vec<Part> = message.interrupts().cloned().collect();
            let questions = questions(&parts);
            let paused = Paused { snapshot_id, parts };
            asking.ask(&questions, serde_json::to_value(paused)?)
        }
        (Some(AgentFinishReason::Failed | AgentFinishReason::Aborted), _) => {
            let error = output.error.map(|error| error.message);
            Ok(failed(error.as_deref().unwrap_or("The agent failed.")))
        }
        (finish_reason, snapshot_id) => {
            let text = match finish_reason {
                Some(AgentFinishReason::Detached) => Some(STILL_WORKING.to_owned()),
                _ => output.message.map(|message| message.text().into_owned()),
            };
            let session = output.session_id;
            let spoken = result(
                text.unwrap_or_default(),
                session.as_ref(),
                snapshot_id.as_ref(),
                finish_reason,
            );
            Ok(spoken.into())
        }
    }
}

/// Returns the answer of an agent, with its session id.
pub(super) fn result(
    text: String,
    session_id: Option<&SessionId>,
    snapshot_id: Option<&SnapshotId>,
    finish_reason: Option<AgentFinishReason>,
) -> CallToolResult {
    let mut structured = JsonObject::new();
    if let Some(session) = session_id {
        structured.insert("sessionId".to_owned(), json!(session));
    }
    if let Some(snapshot) = snapshot_id {
        structured.insert("snapshotId".to_owned(), json!(snapshot));
    }
    if let Some(reason) = finish_reason {
        structured.insert("finishReason".to_owned(), json!(reason));
    }
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(Value::Object(structured));
    result
}
