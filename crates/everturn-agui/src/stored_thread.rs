//! The stored history of a session as the protocol's messages.

use std::collections::HashMap;

use everturn_agent::store::Cursor;
use everturn_agent::{
    AddedMessages, AgentStreamChunk, SessionState, Snapshot, SnapshotEvent, SnapshotId, TurnEnd,
};
use everturn_ai::{History, Message, Part, Role};
use everturn_core::{Context, Result};
use everturn_server::{MessagePosition, ServedAgent, turn_name};
use serde_json::{Map, Value, json};

use crate::encoder::{TurnEncoder, TurnInfo};
use crate::ids::given_id;

/// A conversation, and the turn that added each of its messages.
#[derive(Debug, Default)]
pub(crate) struct StoredThread {
    state: SessionState,
    /// The names of the turns, each with the number of messages up to its end, in order.
    turns: Vec<(String, usize)>,
}

/// The fields of a snapshot that are needed, without its state.
struct Step {
    at: Cursor,
    parent: Option<SnapshotId>,
    event: Option<SnapshotEvent>,
    turn: String,
    length: usize,
}

impl Step {
    fn of(snapshot: Snapshot) -> Self {
        Self {
            at: Cursor::at(&snapshot),
            turn: turn_name(&snapshot),
            length: snapshot.state.as_ref().map_or(0, |state| state.messages.len()),
            event: snapshot.event,
            parent: snapshot.parent_id,
        }
    }
}

impl StoredThread {
    /// Reads the history up to a snapshot.
    ///
    /// # Errors
    /// The store's own errors.
    pub(crate) async fn read(agent: &ServedAgent, at: &Snapshot, context: &Context) -> Result<Self> {
        let state = at.state.clone().unwrap_or_default();
        let Some(session) = &at.session_id else {
            return Ok(Self::of_one(state, at));
        };
        let all = agent.snapshots(session, context, Step::of).await?;
        let all: HashMap<&SnapshotId, &Step> = all.iter().map(|step| (&step.at.snapshot_id, step)).collect();
        let find = |id: Option<&SnapshotId>| all.get(id?).copied();
        let mut turns = vec![(turn_name(at), state.messages.len())];
        let mut parent = find(at.parent_id.as_ref());
        while let Some(step) = parent {
            // Snapshots in the middle of a turn do not name messages, and those at the end of an invocation
            // add none.
            if step.event != Some(SnapshotEvent::RoundEnd) {
                turns.push((step.turn.clone(), step.length));
            }
            parent = find(step.parent.as_ref()).filter(|next| next.at.position() < step.at.position());
        }
        turns.reverse();
        Ok(Self { state, turns })
    }

    fn of_one(state: SessionState, at: &Snapshot) -> Self {
        let turns = vec![(turn_name(at), state.messages.len())];
        Self { state, turns }
    }

    fn history(&self) -> &History {
        &self.state.messages
    }

    /// Returns the messages in the protocol's form.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let mut encoder = TurnEncoder::new(TurnInfo::default());
        let mut builder = MessageBuilder::default();
        let mut turns = self.turns.iter().peekable();
        for (place, message) in self.history().iter().enumerate() {
            while turns.next_if(|(_, end)| *end <= place).is_some() {}
            let name = turns.peek().map(|(name, _)| name.as_str()).unwrap_or_default();
            encoder.rename(name);
            match message.role() {
                Role::User => builder.push(user_message(message, &user_id(message, name, place))),
                Role::System => {}
                _ => builder.apply(&encoder.chunk(&added(place, message))),
            }
        }
        let artifacts = self.state.artifacts.iter().enumerate();
        builder.messages.extend(artifacts.map(|(index, artifact)| {
            let name = artifact
                .given_name()
                .map_or_else(|| index.to_string(), str::to_owned);
            json!({
                "id": format!("artifact_{name}"),
                "role": "activity",
                "activityType": "artifact",
                "content": artifact,
            })
        }));
        builder.messages
    }
}

fn added(place: usize, message: &Message) -> AgentStreamChunk {
    AgentStreamChunk::turn_end(TurnEnd {
        added: Some(AddedMessages {
            position: place,
            messages: vec![message.clone()],
        }),
        ..TurnEnd::default()
    })
}

/// Returns the client id of a user's message, or else the id of its position in the turn.
pub(crate) fn user_id(message: &Message, turn: &str, place: usize) -> String {
    given_id(message).map_or_else(|| MessagePosition::new(place, 0).id("msg", turn), str::to_owned)
}

/// Returns a user's message in the protocol's form.
pub(crate) fn user_message(message: &Message, id: &str) -> Value {
    let parts: Vec<Value> = message.content().iter().filter_map(content_part).collect();
    let content = match message.content() {
        [only] if only.as_text().is_some() => only.as_text().into(),
        _ => Value::Array(parts),
    };
    json!({ "id": id, "role": "user", "content": content })
}

fn content_part(part: &Part) -> Option<Value> {
    if let Some(text) = part.as_text() {
        return Some(json!({ "type": "text", "text": text }));
    }
    let media = part.as_media()?;
    let mime = media.mime_type();
    let kind = mime.and_then(|mime| mime.split('/').next());
    let kind = kind.filter(|kind| ["image", "audio", "video"].contains(kind));
    let kind = kind.unwrap_or("document");
    let data = media
        .url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    let source = match (data, mime) {
        (Some((mime, data)), _) => json!({ "type": "data", "value": data, "mimeType": mime }),
        (None, Some(mime)) => json!({ "type": "url", "value": media.url, "mimeType": mime }),
        (None, None) => json!({ "type": "url", "value": media.url }),
    };
    Some(json!({ "type": kind, "source": source }))
}

/// Builds messages from events, as clients do.
#[derive(Default)]
struct MessageBuilder {
    messages: Vec<Value>,
    /// The index of the latest message of each id.
    positions: HashMap<String, usize>,
}

impl MessageBuilder {
    fn apply(&mut self, events: &[Value]) {
        for event in events {
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            match event["type"].as_str().unwrap_or_default() {
                "TEXT_MESSAGE_START" => self.push(json!({
                    "id": event["messageId"], "role": "assistant", "content": "",
                })),
                "REASONING_MESSAGE_START" => self.push(json!({
                    "id": event["messageId"], "role": "reasoning", "content": "",
                })),
                "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => {
                    self.append(&text("messageId"), &text("delta"));
                }
                "TOOL_CALL_START" => self.call(event),
                "TOOL_CALL_ARGS" => self.arguments(&event["toolCallId"], &event["delta"]),
                "TOOL_CALL_RESULT" => self.push(json!({
                    "id": event["messageId"],
                    "role": "tool",
                    "toolCallId": event["toolCallId"],
                    "content": event["content"],
                })),
                _ => {}
            }
        }
    }

    fn push(&mut self, message: Value) {
        if let Some(id) = message["id"].as_str() {
            self.positions.insert(id.to_owned(), self.messages.len());
        }
        self.messages.push(message);
    }

    fn find(&mut self, id: &str) -> Option<&mut Map<String, Value>> {
        let place = *self.positions.get(id)?;
        self.messages.get_mut(place)?.as_object_mut()
    }

    fn append(&mut self, id: &str, delta: &str) {
        if let Some(Value::String(content)) = self.find(id).and_then(|message| message.get_mut("content")) {
            content.push_str(delta);
        }
    }

    fn call(&mut self, event: &Value) {
        let parent = event["parentMessageId"].as_str().unwrap_or_default().to_owned();
        if self.find(&parent).is_none() {
            self.push(json!({ "id": parent, "role": "assistant" }));
        }
        let call = json!({
            "id": event["toolCallId"],
            "type": "function",
            "function": { "name": event["toolCallName"], "arguments": "" },
        });
        if let Some(message) = self.find(&parent) {
            let calls = message.entry("toolCalls").or_insert_with(|| json!([]));
            if let Value::Array(calls) = calls {
                calls.push(call);
            }
        }
    }

    fn arguments(&mut self, id: &Value, arguments: &Value) {
        let calls = self
            .messages
            .iter_mut()
            .rev()
            .filter_map(|message| message.get_mut("toolCalls")?.as_array_mut());
        if let Some(call) = calls.flatten().find(|call| call["id"] == *id) {
            call["function"]["arguments"] = arguments.clone();
        }
    }
}
