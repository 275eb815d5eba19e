//! Small builders that the tests of agents around prompts share.

use everturn_agent::AgentStreamChunk;
use everturn_agent::{AgentConnection, AgentInit, AgentInput, AgentOutput, CustomState};
use everturn_ai::{History, Message, ModelRequest, Part, ToolRequest, set_default_model};
use everturn_core::Registry;
use everturn_testkit::{Reply, ScriptedModel};
use serde::Serialize;
use serde_json::{Value, json};

/// A registry whose default model is the scripted one.
pub(crate) fn registry(model: &ScriptedModel) -> Registry {
    let registry = Registry::new();
    model.register(&registry, "scripted").unwrap();
    set_default_model(&registry, "scripted");
    registry
}

/// A model that gives these answers.
pub(crate) fn answering<R: Into<Reply>>(replies: impl IntoIterator<Item = R>) -> (Registry, ScriptedModel) {
    let model = ScriptedModel::new().replies(replies);
    (registry(&model), model)
}

/// A call of a tool with a reference.
pub(crate) fn call(name: &str, reference: &str, input: Value) -> ToolRequest {
    ToolRequest::new(name, input).with_reference(reference)
}

/// A message as one line: `role: text`, with tool calls as `ask(name)` and their answers as `answer(output)`.
fn line(message: &Message) -> String {
    let part = |part: &Part| match (part.as_text(), part.as_tool_request(), part.as_tool_response()) {
        (Some(text), _, _) => text.to_owned(),
        (_, Some(request), _) => format!("ask({})", request.name),
        (_, _, Some(response)) => format!("answer({})", response.output.clone().unwrap_or_default()),
        _ => json!(part).to_string(),
    };
    let parts: Vec<String> = message.content().iter().map(part).collect();
    format!("{}: {}", message.role(), parts.join(" "))
}

/// The messages of a request, a line each.
pub(crate) fn asked(request: &ModelRequest) -> Vec<String> {
    request.messages.iter().map(line).collect()
}

/// The messages, a line each.
pub(crate) fn said(history: &History) -> Vec<String> {
    history.iter().map(line).collect()
}

pub(crate) fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap()
}

/// Runs one input through a connection: every chunk, and the output.
pub(crate) async fn invoke<S: CustomState>(
    mut connection: AgentConnection<S>,
    input: impl Into<AgentInput>,
) -> (Vec<AgentStreamChunk>, AgentOutput) {
    connection.send(input).await.unwrap();
    connection.close();
    let mut chunks = Vec::new();
    while let Some(chunk) = connection.next().await {
        chunks.push(chunk);
    }
    (chunks, connection.output().await.unwrap())
}

/// Nothing to start from.
pub(crate) fn fresh() -> AgentInit {
    AgentInit::default()
}
