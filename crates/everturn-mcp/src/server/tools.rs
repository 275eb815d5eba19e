//! Tools: listed with their schemas, called with arguments.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everturn_ai::{
    GivenAnswer, JsonObject, ModelResponseChunk, MultipartToolResponse, Part, Replay, Tool, ToolContext,
    ToolRequest, interrupt_data, lookup_tool, metadata,
};
use everturn_core::{ActionType, Descriptor, Emitter, Error, Result, Schema};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, ToolAnnotations,
};
use serde_json::{Value, json};

use super::asking::{Answered, Asking};
use super::session::Request;
use super::{Exposed, agents};
use crate::content;

/// The argument for the input of a tool whose input is not an object: the protocol's arguments are objects.
const INPUT: &str = "input";

/// Returns all tools, and agents under names that no tool has.
pub(super) fn list(exposed: &Exposed) -> Vec<rmcp::model::Tool> {
    let mut listed = BTreeMap::new();
    for kind in [ActionType::TOOL, ActionType::TOOL_V2, ActionType::AGENT] {
        for descriptor in exposed.of_type(&kind) {
            let entry = listed.entry(descriptor.name.clone());
            entry.or_insert_with(|| {
                if kind == ActionType::AGENT {
                    agents::described(&descriptor)
                } else {
                    described(&descriptor)
                }
            });
        }
    }
    listed.into_values().collect()
}

fn described(descriptor: &Descriptor) -> rmcp::model::Tool {
    let schema = arguments_schema(descriptor.input_schema.as_ref());
    let description = descriptor.description.clone().unwrap_or_default();
    let mut tool = rmcp::model::Tool::new(descriptor.name.clone(), description, Arc::new(schema));
    // The output of a tool of the other form is described as well.
    let output = if descriptor.action_type == ActionType::TOOL_V2 {
        descriptor.metadata.get("originalOutputSchema")
    } else {
        descriptor.output_schema.as_ref().map(Schema::as_json)
    };
    tool.output_schema = output
        .and_then(Value::as_object)
        .filter(|schema| takes_object(schema))
        .map(|schema| Arc::new(schema.clone()));
    tool.annotations = annotations(descriptor);
    tool
}

/// Returns the hints of a tool: unchanged for a tool of another MCP server, else by how it may be repeated.
fn annotations(descriptor: &Descriptor) -> Option<ToolAnnotations> {
    let given = descriptor.metadata.get("annotations");
    if let Some(given) = given.and_then(|given| serde_json::from_value(given.clone()).ok()) {
        return Some(given);
    }
    let declared = descriptor.metadata.get("tool")?.get("replay")?;
    match serde_json::from_value(declared.clone()).ok()? {
        Replay::Pure => Some(ToolAnnotations::new().read_only(true)),
        Replay::Idempotent | Replay::Keyed => Some(ToolAnnotations::new().idempotent(true)),
        _ => None,
    }
}

fn takes_object(schema: &JsonObject) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
}

fn arguments_schema(schema: Option<&Schema>) -> JsonObject {
    let schema = schema.map_or(&Value::Bool(true), Schema::as_json);
    match schema.as_object() {
        Some(schema) if takes_object(schema) => schema.clone(),
        _ => {
            let wrapped = json!({ "type": "object", "properties": { INPUT: schema }, "required": [INPUT] });
            wrapped.as_object().cloned().unwrap_or_default()
        }
    }
}

fn input(tool: &Tool, arguments: Option<JsonObject>) -> Value {
    let mut arguments = arguments.unwrap_or_default();
    let schema = tool
        .input_schema()
        .and_then(|schema| schema.as_json().as_object());
    if schema.is_some_and(takes_object) {
        Value::Object(arguments)
    } else {
        arguments.remove(INPUT).unwrap_or_default()
    }
}

/// Calls a tool or an agent.
pub(super) async fn call(request: &Request<'_>, params: CallToolRequestParams) -> Result<CallToolResponse> {
    for kind in [ActionType::TOOL, ActionType::TOOL_V2] {
        let key = kind.key(&params.name);
        if request.exposed.action(&key).await?.is_some() {
            let tool = lookup_tool(&request.exposed.registry, &key).await?;
            return call_tool(request, &tool, params).await;
        }
    }
    let agent = request
        .exposed
        .action(&ActionType::AGENT.key(&params.name))
        .await?;
    let missing = || Error::not_found(format!("there is no tool '{}'", params.name)).with_public();
    let agent = agent.ok_or_else(missing)?;
    agents::call(request, &agent, params).await
}

async fn call_tool(
    request: &Request<'_>,
    tool: &Tool,
    params: CallToolRequestParams,
) -> Result<CallToolResponse> {
    let asking = Asking::of_tool(request, tool.name(), params.arguments.as_ref());
    let reply = asking.reply(params.request_state.as_deref(), params.input_responses)?;
    let input = input(tool, params.arguments);
    let call = ToolRequest::new(tool.short_name(), input.clone());
    let mut part = Part::from(call.clone());
    if let Some(mut reply) = reply {
        let (answer, data) = match &mut reply.answered {
            Answered::Declined(why) => return Ok(failed(why)),
            Answered::With { answers, data } => (answers.remove(0), data.take()),
        };
        if !reply.state.is_null() {
            part = part.with_metadata_entry(metadata::APPROVAL, reply.state.clone());
        }
        if !tool.is_restartable() {
            // The answer is the tool's output.
            let answer = agents::spoken(answer);
            tool.check_answer(&part, GivenAnswer::Response(&answer), &request.context)?;
            asking.claim(&reply).await?;
            let response = MultipartToolResponse {
                output: Some(answer),
                ..MultipartToolResponse::default()
            };
            return Ok(succeeded(request, response).into());
        }
        let again = GivenAnswer::Restart {
            call: &call,
            decision: &answer,
        };
        // There is no state between calls, so the answers of several users cannot be collected.
        let approval = tool.answered(&part, again, &request.context)?;
        if let Some(needed) = &approval.still_needed {
            return Ok(failed(&format!(
                "the call was not made: {needed}, and only an agent can wait for that"
            )));
        }
        asking.claim(&reply).await?;
        part = part
            .with_metadata_entry(metadata::APPROVAL, serde_json::to_value(approval)?)
            .with_metadata_entry(metadata::RESOLVED_INTERRUPT, data)
            .with_metadata_entry(metadata::RESUMED, answer);
    }
    let emitter = progress(request, |chunk: &ModelResponseChunk| {
        let mut responses = chunk.content.iter().filter_map(Part::as_tool_response);
        responses.find_map(|response| response.output.as_ref()).map(step)
    });
    let context = ToolContext::for_request(request.context.clone(), part, emitter);
    match tool.run_in(Some(input), context).await {
        Ok(response) => Ok(succeeded(request, response).into()),
        Err(error) => match interrupt_data(&error) {
            Some(data) => {
                let approval = tool.question(&call, data, &request.context);
                let approval = serde_json::to_value(approval)?;
                asking.ask(&[("answer".to_owned(), question(tool, data))], approval)
            }
            None => Ok(failed(&error.to_wire(request.exposure()).message)),
        },
    }
}

/// Returns the question of a tool. A tool that only accepts a response returns the answer, so its output
/// schema is the form.
fn question(tool: &Tool, data: &Value) -> Value {
    match (tool.is_restartable(), tool.output_schema()) {
        (false, Some(schema)) => json!({ "message": data, "schema": schema.as_json() }),
        _ => data.clone(),
    }
}

/// Returns the result of a call: a string as text, any other value as text and structured content.
fn succeeded(request: &Request<'_>, response: MultipartToolResponse) -> CallToolResult {
    let mut content = Vec::new();
    let mut structured = None;
    match response.output {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => content.push(ContentBlock::text(text)),
        Some(output) => {
            content.push(ContentBlock::text(output.to_string()));
            structured = Some(output);
        }
    }
    content.extend(response.content.iter().filter_map(content::block));
    let mut result = CallToolResult::success(content);
    // Earlier versions only support objects.
    let version = request.rmcp.protocol_version();
    let takes_anything = version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    result.structured_content = structured.filter(|output| takes_anything || output.is_object());
    result
}

/// Returns the result of a failed call, with a message for the model.
pub(super) fn failed(message: &str) -> CallToolResponse {
    CallToolResult::error(vec![ContentBlock::text(message)]).into()
}

/// One step of progress.
pub(super) struct Step {
    progress: Option<f64>,
    total: Option<f64>,
    pub(super) message: Option<String>,
}

impl Step {
    pub(super) fn message(message: impl Into<String>) -> Self {
        Self {
            progress: None,
            total: None,
            message: Some(message.into()),
        }
    }
}

/// Returns a tool's chunk as progress: numbers from a counter, else text.
fn step(partial: &Value) -> Step {
    let number = |key: &str| partial.get(key).and_then(Value::as_f64);
    let message = match (partial, partial.get("message")) {
        (Value::String(text), _) | (_, Some(Value::String(text))) => Some(Cow::Borrowed(text.as_str())),
        _ if number("progress").is_some() => None,
        _ => Some(Cow::Owned(partial.to_string())),
    };
    Step {
        progress: number("progress"),
        total: number("total"),
        message: message.map(Cow::into_owned),
    }
}

/// Sends chunks to a client that requested progress.
pub(super) fn progress<C: Send + 'static>(
    request: &Request<'_>,
    read: impl Fn(&C) -> Option<Step> + Send + Sync + 'static,
) -> Emitter<C> {
    let Some(token) = request.rmcp.meta.get_progress_token() else {
        return Emitter::silent();
    };
    let peer = request.rmcp.peer.clone();
    let count = Arc::new(AtomicU64::new(0));
    Emitter::new(move |chunk| {
        let step = read(&chunk).map(|step| notification(token.clone(), step, &count));
        let peer = peer.clone();
        async move {
            if let Some(step) = step
                && let Err(error) = peer.notify_progress(step).await
            {
                tracing::debug!(%error, "progress found no receiver");
            }
            Ok(())
        }
    })
}

fn notification(token: ProgressToken, step: Step, count: &AtomicU64) -> ProgressNotificationParam {
    // Progress must increase; chunks of a tool without a counter are counted.
    #[expect(clippy::cast_precision_loss, reason = "nobody reports so often")]
    let counted = (count.fetch_add(1, Ordering::Relaxed) + 1) as f64;
    let mut notification = ProgressNotificationParam::new(token, step.progress.unwrap_or(counted));
    notification.total = step.total;
    notification.message = step.message;
    notification
}
