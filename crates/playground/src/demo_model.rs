//! The model of the playground when there is no other: the offline model's rules for tools, and sentences that fit the demo
//! agents. It understands nothing.

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
        let asked = Asked::of(&request);
        let parts = if let Some(parts) = answer(&asked, &request) {
            parts
        } else {
            let reply = OfflineModel::new()
                .generate(request, Emitter::silent(), context)
                .await?;
            let said = reply.message.iter().flat_map(Message::content);
            said.cloned().collect()
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

/// What the model is asked.
struct Asked {
    /// The agent's instructions.
    system: String,
    /// The last message, if a person wrote it.
    said: Option<String>,
    /// The answers of tools in the last message.
    answers: Vec<(String, Value)>,
}

impl Asked {
    fn of(request: &ModelRequest) -> Self {
        let system: Vec<String> = request
            .messages
            .iter()
            .filter(|message| message.role() == Role::System)
            .map(|message| message.text().into_owned())
            .collect();
        let last = request.messages.last();
        let said = last.filter(|message| message.role() == Role::User);
        let answers = last.into_iter().flat_map(Message::content);
        Self {
            system: system.join("\n"),
            said: said.map(|message| message.text().into_owned()),
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

/// Returns an answer that fits the agent; `None` leaves it to the offline model.
fn answer(asked: &Asked, request: &ModelRequest) -> Option<Vec<Part>> {
    let again = asked.answers.iter().find_map(|(tool, output)| {
        let (_, arguments) = output.as_str()?.split_once("exactly these arguments: ")?;
        Some(ToolRequest::new(tool, arguments.parse::<Value>().ok()?))
    });
    if let Some(call) = again {
        let reference = format!("demo-{}", request.messages.len());
        return Some(vec![call.with_reference(reference).into()]);
    }
    if !asked.answers.is_empty() {
        return Some(vec![Part::text(talk::report(asked))]);
    }
    let said = asked.said.as_deref()?;
    if asked.is_for("orchestrator") {
        return delegations(said, request);
    }
    let text = if asked.is_for("coder") {
        code::reply(said)
    } else if asked.is_for("researcher") {
        talk::finding(said)
    } else if asked.is_for("tutor") {
        return Some(vec![talk::lesson(said, request.messages.len())]);
    } else if asked.is_for("chef") {
        talk::kitchen(said, &asked.system)?
    } else {
        return None;
    };
    let thought = Part::reasoning(talk::thought(said));
    Some(if asked.is_for("coder") {
        vec![thought, Part::text(text)]
    } else {
        vec![Part::text(text)]
    })
}

/// Returns one call per agent that is named, with the part of the text that follows its name.
fn delegations(said: &str, request: &ModelRequest) -> Option<Vec<Part>> {
    let lower = said.to_lowercase();
    let mut named: Vec<(usize, &str, &str)> = request
        .tools()
        .iter()
        .filter_map(|tool| {
            let agent = tool.name.strip_prefix("delegate_to_")?;
            Some((lower.find(agent)?, agent, tool.name.as_str()))
        })
        .collect();
    named.sort_unstable();
    let ends = named.iter().skip(1).map(|(start, ..)| *start).chain([said.len()]);
    let calls: Vec<Part> = named
        .iter()
        .zip(ends)
        .enumerate()
        .map(|(number, ((start, agent, tool), end))| {
            let task = said.get(start + agent.len()..end).unwrap_or(said);
            let input = json!({ "task": talk::task(task) });
            let call = ToolRequest::new(*tool, input)
                .with_reference(format!("demo-{}-{number}", request.messages.len()));
            Part::from(call)
        })
        .collect();
    (!calls.is_empty()).then_some(calls)
}
