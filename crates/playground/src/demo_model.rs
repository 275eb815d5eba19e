//! The playground's offline model: the offline model's rules for tools, and sentences for the demo agents. It
//! has no language understanding.

mod code;
mod talk;

use std::time::Duration;

use everturn::ai::{Model, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk, ToolRequest};
use everturn::core::Emitter;
use everturn::prelude::*;
use everturn::testkit::OfflineModel;

/// The model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DemoModel {
    pace: Duration,
}

impl DemoModel {
    /// Returns a model that pauses for `pace` before each word.
    pub(crate) fn new(pace: Duration) -> Self {
        Self { pace }
    }
}

impl Model for DemoModel {
    fn info(&self) -> ModelInfo {
        OfflineModel::new().info()
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        context: Context,
    ) -> HandlerResult<ModelResponse> {
        let parsed = ParsedRequest::of(&request);
        let parts = if let Some(parts) = answer(&parsed, &request) {
            parts
        } else {
            let reply = OfflineModel::new()
                .generate(request, Emitter::silent(), context)
                .await?;
            let user_text = reply.message.iter().flat_map(Message::content);
            user_text.cloned().collect()
        };
        if emitter.is_streaming() {
            for chunk in parts.iter().flat_map(chunks) {
                tokio::time::sleep(self.pace).await;
                emitter.send(chunk).await?;
            }
        }
        Ok(ModelResponse::new(Message::model(parts)))
    }
}

/// Cuts a part into chunks: text word by word, other parts whole.
fn chunks(part: &Part) -> Vec<ModelResponseChunk> {
    match part.as_text() {
        Some(text) => text
            .split_inclusive(char::is_whitespace)
            .map(ModelResponseChunk::from)
            .collect(),
        None => vec![ModelResponseChunk::from(part.clone())],
    }
}

/// The relevant parts of a request.
struct ParsedRequest {
    /// The agent's instructions.
    system: String,
    /// The last message, if it is the user's.
    user_text: Option<String>,
    /// The results of tools in the last message.
    answers: Vec<(String, Value)>,
}

impl ParsedRequest {
    fn of(request: &ModelRequest) -> Self {
        let system: Vec<String> = request
            .messages
            .iter()
            .filter(|message| message.role() == Role::System)
            .map(|message| message.text().into_owned())
            .collect();
        let last = request.messages.last();
        let user_text = last.filter(|message| message.role() == Role::User);
        let answers = last.into_iter().flat_map(Message::content);
        Self {
            system: system.join("\n"),
            user_text: user_text.map(|message| message.text().into_owned()),
            answers: answers
                .filter_map(Part::as_tool_response)
                .map(|answer| (answer.name.clone(), answer.output.clone().unwrap_or_default()))
                .collect(),
        }
    }

    /// Returns whether the instructions are those of an agent.
    fn is_for(&self, agent: &str) -> bool {
        self.system.contains(&format!("You are a {agent}"))
            || self.system.contains(&format!("You are an {agent}"))
            || self.system.contains(&format!("You are a careful {agent}"))
    }
}

/// Returns an answer for the agent; `None` leaves it to the offline model.
fn answer(parsed: &ParsedRequest, request: &ModelRequest) -> Option<Vec<Part>> {
    let again = parsed.answers.iter().find_map(|(tool, output)| {
        let (_, arguments) = output.as_str()?.split_once("exactly these arguments: ")?;
        Some(ToolRequest::new(tool, arguments.parse::<Value>().ok()?))
    });
    if let Some(call) = again {
        let reference = format!("demo-{}", request.messages.len());
        return Some(vec![call.with_reference(reference).into()]);
    }
    if !parsed.answers.is_empty() {
        return Some(vec![Part::text(talk::report(parsed))]);
    }
    let user_text = parsed.user_text.as_deref()?;
    if parsed.is_for("orchestrator") {
        return delegations(user_text, request);
    }
    let text = if parsed.is_for("coder") {
        code::reply(user_text)
    } else if parsed.is_for("researcher") {
        talk::finding(user_text)
    } else if parsed.is_for("tutor") {
        return Some(vec![talk::lesson(user_text, request.messages.len())]);
    } else if parsed.is_for("chef") {
        talk::kitchen(user_text, &parsed.system)?
    } else {
        return None;
    };
    let thought = Part::reasoning(talk::thought(user_text));
    Some(if parsed.is_for("coder") {
        vec![thought, Part::text(text)]
    } else {
        vec![Part::text(text)]
    })
}

/// Returns one call per named agent, with the part of the text that follows its name.
fn delegations(user_text: &str, request: &ModelRequest) -> Option<Vec<Part>> {
    let lower = user_text.to_lowercase();
    let mut named: Vec<(usize, &str, &str)> = request
        .tools()
        .iter()
        .filter_map(|tool| {
            let agent = tool.name.strip_prefix("delegate_to_")?;
            Some((lower.find(agent)?, agent, tool.name.as_str()))
        })
        .collect();
    named.sort_unstable();
    let ends = named
        .iter()
        .skip(1)
        .map(|(start, ..)| *start)
        .chain([user_text.len()]);
    let calls: Vec<Part> = named
        .iter()
        .zip(ends)
        .enumerate()
        .map(|(number, ((start, agent, tool), end))| {
            let task = user_text.get(start + agent.len()..end).unwrap_or(user_text);
            let input = json!({ "task": talk::task(task) });
            let call = ToolRequest::new(*tool, input)
                .with_reference(format!("demo-{}-{number}", request.messages.len()));
            Part::from(call)
        })
        .collect();
    (!calls.is_empty()).then_some(calls)
}
