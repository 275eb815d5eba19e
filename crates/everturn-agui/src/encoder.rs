//! Encodes a turn as events, as a pure function of its chunks.
//!
//! Texts, reasoning and calls are emitted as they arrive. At the end of the turn, the messages that it added
//! are compared with the emitted events, and the missing parts are emitted. Every message of the agent is
//! therefore emitted once.

use std::collections::{HashMap, VecDeque};

use everturn_agent::patch::PatchOperation;
use everturn_agent::{AddedMessages, AgentStreamChunk, Artifact};
use everturn_ai::{Message, Part, PartKind, Role, ToolRequest, ToolResponse, metadata};
use everturn_server::MessagePosition;
use serde_json::{Value, json};

/// A call by its name and reference, which are unique within a message.
pub(crate) type Call = (String, Option<String>);

/// Information about a turn that its chunks do not contain.
#[derive(Debug, Clone, Default)]
pub(crate) struct TurnInfo {
    /// The name in ids: the snapshot that the turn will write.
    pub(crate) name: String,
    /// The calls that waited before the turn, with their ids.
    pub(crate) waiting: Vec<(Call, String)>,
    /// The results that the client sent, by the ids of their calls.
    pub(crate) answered: HashMap<String, String>,
    /// The tools that delegate to an agent, with the agent's name.
    pub(crate) delegates: HashMap<String, String>,
}

/// Encodes the chunks of one turn.
#[derive(Debug, Default)]
pub(crate) struct TurnEncoder {
    info: TurnInfo,
    open: Option<OpenText>,
    emitted: HashMap<usize, Emitted>,
    /// Calls without a result, oldest first, with their messages; `None` is the last message before the turn.
    calls: HashMap<Call, VecDeque<(Option<usize>, String)>>,
    /// The sub-agents that were announced, by the calls that started them, in order.
    subagents: Vec<(String, String)>,
    artifacts: usize,
}

/// The text or reasoning that is still open.
#[derive(Debug)]
struct OpenText {
    message: usize,
    kind: Kind,
    id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

/// The emitted parts of one message.
#[derive(Debug, Default)]
struct Emitted {
    text: Growth,
    reasoning: Growth,
    calls: usize,
    others: usize,
    results: usize,
}

/// The emitted text of a message, and its number of pieces.
#[derive(Debug, Default)]
struct Growth {
    words: String,
    pieces: usize,
}

impl Emitted {
    fn growth(&mut self, kind: Kind) -> &mut Growth {
        match kind {
            Kind::Text => &mut self.text,
            Kind::Reasoning => &mut self.reasoning,
        }
    }
}

impl TurnEncoder {
    /// Creates an encoder for a turn.
    pub(crate) fn new(info: TurnInfo) -> Self {
        let mut calls: HashMap<Call, VecDeque<(Option<usize>, String)>> = HashMap::new();
        for (call, id) in &info.waiting {
            let waiting = calls.entry(call.clone()).or_default();
            waiting.push_back((None, id.clone()));
        }
        Self {
            info,
            calls,
            ..Self::default()
        }
    }

    /// Returns the events of a chunk.
    pub(crate) fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<Value> {
        let mut events = Vec::new();
        if let (Some(model), Some(message)) = (&chunk.model_chunk, chunk.position)
            // An aggregated chunk repeats earlier chunks. Missing parts are emitted at the end, from the
            // message.
            && !model.aggregated
        {
            match model.role.unwrap_or(Role::Model) {
                Role::Model => {
                    for part in &model.content {
                        self.model_part(message, part, &mut events);
                    }
                }
                Role::Tool => {
                    for part in &model.content {
                        let is_progress = part.metadata_entry(metadata::PARTIAL).is_some();
                        if let Some(response) = part.as_tool_response().filter(|_| !is_progress) {
                            self.result(message, part, response, &mut events);
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(patch) = &chunk.custom_patch {
            events.extend(state_event(patch.operations()));
        }
        if let Some(artifact) = &chunk.artifact {
            events.push(self.artifact(artifact));
        }
        if let Some(status) = &chunk.status {
            events.push(custom("status", status));
        }
        if let Some(added) = chunk.turn_end.as_ref().and_then(|end| end.added.as_ref()) {
            self.added(added, &mut events);
        }
        events
    }

    fn model_part(&mut self, message: usize, part: &Part, events: &mut Vec<Value>) {
        match part.kind() {
            PartKind::ToolRequest(request) => {
                if !request.partial {
                    self.call(message, request, events);
                }
            }
            PartKind::ToolResponse(_) => {}
            _ => match (part.as_text(), part.as_reasoning()) {
                (Some(text), _) => self.grow(message, Kind::Text, text, events),
                (_, Some(text)) => self.grow(message, Kind::Reasoning, text, events),
                _ => self.other(message, part, events),
            },
        }
    }

    fn emitted(&mut self, message: usize) -> &mut Emitted {
        self.emitted.entry(message).or_default()
    }

    fn grow(&mut self, message: usize, kind: Kind, words: &str, events: &mut Vec<Value>) {
        // Some clients reject an empty delta.
        if words.is_empty() {
            return;
        }
        let is_open = self
            .open
            .as_ref()
            .is_some_and(|open| open.message == message && open.kind == kind);
        if !is_open {
            self.close(events);
            let growth = self.emitted(message).growth(kind);
            let place = MessagePosition::new(message, growth.pieces);
            growth.pieces += 1;
            let id = match kind {
                Kind::Text => place.id("msg", &self.info.name),
                Kind::Reasoning => place.id("rsn", &self.info.name),
            };
            match kind {
                Kind::Text => events.push(json!({
                    "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant",
                })),
                Kind::Reasoning => events.extend([
                    json!({ "type": "REASONING_START", "messageId": id }),
                    json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" }),
                ]),
            }
            self.open = Some(OpenText { message, kind, id });
        }
        self.emitted(message).growth(kind).words.push_str(words);
        let id = self.open.as_ref().map(|open| open.id.as_str());
        let name = match kind {
            Kind::Text => "TEXT_MESSAGE_CONTENT",
            Kind::Reasoning => "REASONING_MESSAGE_CONTENT",
        };
        events.push(json!({ "type": name, "messageId": id, "delta": words }));
    }

    /// Closes the open text or reasoning.
    fn close(&mut self, events: &mut Vec<Value>) {
        match self.open.take() {
            Some(OpenText {
                kind: Kind::Text, id, ..
            }) => {
                events.push(json!({ "type": "TEXT_MESSAGE_END", "messageId": id }));
            }
            Some(OpenText { id, .. }) => events.extend([
                json!({ "type": "REASONING_MESSAGE_END", "messageId": id }),
                json!({ "type": "REASONING_END", "messageId": id }),
            ]),
            None => {}
        }
    }

    fn call(&mut self, message: usize, request: &ToolRequest, events: &mut Vec<Value>) {
        self.close(events);
        let emitted = self.emitted(message);
        let place = MessagePosition::new(message, emitted.calls);
        emitted.calls += 1;
        // The call belongs to the last text of its message; without one, the client makes a message of it.
        let parent = MessagePosition::new(message, emitted.text.pieces.saturating_sub(1));
        let id = place.id("call", &self.info.name);
        if let Some(agent) = self.info.delegates.get(&request.name) {
            events.push(json!({
                "type": "SUBAGENT_STARTED",
                "subagentRunId": format!("sub_{id}"),
                "name": agent,
                "parentToolCallId": id,
            }));
            self.subagents.push((id.clone(), format!("sub_{id}")));
        }
        let arguments = request.input.clone().unwrap_or_else(|| json!({}));
        events.extend([
            json!({
                "type": "TOOL_CALL_START",
                "toolCallId": id,
                "toolCallName": request.name,
                "parentMessageId": parent.id("msg", &self.info.name),
            }),
            json!({ "type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": arguments.to_string() }),
            json!({ "type": "TOOL_CALL_END", "toolCallId": id }),
        ]);
        let call = (request.name.clone(), request.reference.clone());
        self.calls.entry(call).or_default().push_back((Some(message), id));
    }

    fn result(&mut self, message: usize, part: &Part, response: &ToolResponse, events: &mut Vec<Value>) {
        let call = (response.name.clone(), response.reference.clone());
        // References repeat in each round: a result belongs to a call of the message before it.
        let is_answered = |of: Option<usize>| of.is_none_or(|of| of + 1 == message);
        let open = self.calls.get_mut(&call);
        let found = open.and_then(|open| {
            let index = open.iter().position(|(of, _)| is_answered(*of))?;
            open.remove(index)
        });
        let Some((_, id)) = found else { return };
        let emitted = self.emitted(message);
        let place = MessagePosition::new(message, emitted.results);
        emitted.results += 1;
        // The client has the result that it sent, but not the result of an approved call.
        if (self.info.answered.get(&id)).is_some_and(|sent| is_result(sent, response)) {
            return;
        }
        self.close(events);
        let content = result_text(response);
        events.push(json!({
            "type": "TOOL_CALL_RESULT",
            "messageId": place.id("msg", &self.info.name),
            "toolCallId": id,
            "content": content,
            "role": "tool",
        }));
        if let Some(index) = self.subagents.iter().position(|(call, _)| *call == id) {
            let (_, run) = self.subagents.remove(index);
            let has_failed = part.metadata_entry(metadata::IS_ERROR) == Some(&Value::Bool(true));
            events.push(if has_failed {
                json!({ "type": "SUBAGENT_ERROR", "subagentRunId": run, "message": content })
            } else {
                json!({ "type": "SUBAGENT_FINISHED", "subagentRunId": run })
            });
        }
    }

    /// Emits a part that has no message in the protocol, such as media and data.
    fn other(&mut self, message: usize, part: &Part, events: &mut Vec<Value>) {
        let emitted = self.emitted(message);
        emitted.others += 1;
        let parent = MessagePosition::new(message, emitted.text.pieces.saturating_sub(1));
        events.push(custom(
            "part",
            &json!({ "messageId": parent.id("msg", &self.info.name), "part": part }),
        ));
    }

    fn artifact(&mut self, artifact: &Artifact) -> Value {
        let name = artifact.given_name().map_or_else(
            || {
                self.artifacts += 1;
                format!("{}_{}", self.info.name, self.artifacts)
            },
            str::to_owned,
        );
        artifact_event(&name, artifact)
    }

    /// Emits the parts of the added messages that the stream did not contain.
    fn added(&mut self, added: &AddedMessages, events: &mut Vec<Value>) {
        for (offset, message) in added.messages.iter().enumerate() {
            let place = added.position + offset;
            match message.role() {
                Role::Model => self.rest_of(place, message, events),
                Role::Tool => {
                    let responses = message
                        .content()
                        .iter()
                        .filter_map(|part| Some((part, part.as_tool_response()?)));
                    // References repeat in each round: an emitted result must not be matched with a later
                    // call.
                    if self.emitted(place).results < responses.clone().count() {
                        for (part, response) in responses {
                            self.result(place, part, response, events);
                        }
                    }
                }
                _ => {}
            }
        }
        self.close(events);
    }

    fn rest_of(&mut self, place: usize, message: &Message, events: &mut Vec<Value>) {
        let mut reasoning = Rest::of(&self.emitted(place).reasoning.words);
        let mut text = Rest::of(&self.emitted(place).text.words);
        let (mut calls, mut others) = (self.emitted(place).calls, self.emitted(place).others);
        for part in message.content() {
            if let Some(request) = part.as_tool_request() {
                match calls.checked_sub(1) {
                    Some(left) => calls = left,
                    None => self.call(place, request, events),
                }
            } else if let Some(words) = part.as_text() {
                let rest = text.after(words).to_owned();
                self.grow(place, Kind::Text, &rest, events);
            } else if let Some(words) = part.as_reasoning() {
                let rest = reasoning.after(words).to_owned();
                self.grow(place, Kind::Reasoning, &rest, events);
            } else if part.as_tool_response().is_none() {
                match others.checked_sub(1) {
                    Some(left) => others = left,
                    None => self.other(place, part, events),
                }
            }
        }
    }

    /// Closes everything that is open. `failure` is the error message of a failed turn.
    pub(crate) fn close_all(&mut self, failure: Option<&str>) -> Vec<Value> {
        let mut events = Vec::new();
        self.close(&mut events);
        for (_, run) in std::mem::take(&mut self.subagents) {
            events.push(match failure {
                Some(message) => {
                    json!({ "type": "SUBAGENT_ERROR", "subagentRunId": run, "message": message })
                }
                None => json!({ "type": "SUBAGENT_FINISHED", "subagentRunId": run }),
            });
        }
        events
    }

    /// Sets the turn name for the ids of the following events.
    pub(crate) fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.info.name);
    }
}

/// The emitted text that has not been matched with the message.
struct Rest {
    emitted: String,
    at: usize,
}

impl Rest {
    fn of(emitted: &str) -> Self {
        Self {
            emitted: emitted.to_owned(),
            at: 0,
        }
    }

    /// Returns the end of a part's text that was not emitted. A text that differs from the emitted one is not
    /// repeated.
    fn after<'a>(&mut self, words: &'a str) -> &'a str {
        let left = &self.emitted[self.at..];
        if left.len() >= words.len() {
            self.at += if left.starts_with(words) {
                words.len()
            } else {
                left.len()
            };
            return "";
        }
        self.at = self.emitted.len();
        if left.is_empty() {
            words
        } else {
            words.strip_prefix(left).unwrap_or_default()
        }
    }
}

/// Returns the event of a change of the custom state.
fn state_event(operations: &[PatchOperation]) -> Option<Value> {
    match operations {
        [] => None,
        [PatchOperation::Replace { path, value }] if path.is_empty() => {
            Some(json!({ "type": "STATE_SNAPSHOT", "snapshot": value }))
        }
        operations => Some(json!({ "type": "STATE_DELTA", "delta": operations })),
    }
}

/// Returns an artifact as an activity of that name, which replaces an earlier one.
pub(crate) fn artifact_event(name: &str, artifact: &Artifact) -> Value {
    json!({
        "type": "ACTIVITY_SNAPSHOT",
        "messageId": format!("artifact_{name}"),
        "activityType": "artifact",
        "content": artifact,
        "replace": true,
    })
}

fn custom(name: &str, value: &Value) -> Value {
    json!({ "type": "CUSTOM", "name": name, "value": value })
}

/// Returns the result of a call as text: a text as it is, every other value as JSON.
pub(crate) fn result_text(response: &ToolResponse) -> String {
    match &response.output {
        Some(Value::String(text)) => text.clone(),
        Some(output) => output.to_string(),
        None => String::new(),
    }
}

/// Returns whether the client's result of a call equals the stored one. JSON is compared by value.
pub(crate) fn is_result(content: &str, response: &ToolResponse) -> bool {
    let is_equal = |output: &Value| serde_json::from_str(content).is_ok_and(|sent: Value| sent == *output);
    result_text(response) == content || response.output.as_ref().is_some_and(is_equal)
}

#[cfg(test)]
mod tests;
