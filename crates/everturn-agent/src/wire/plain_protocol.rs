//! Genkit's protocol without the fields that Everturn adds.

use std::borrow::Cow;

use everturn_core::ActionType;
use everturn_core::stream_log::JsonText;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reduces the answers of an agent's actions to the fields of Genkit's protocol.
///
/// Some clients refuse a chunk, an output or a snapshot that has an unknown field. Servers remove added
/// fields unless the caller requests them. Fields are kept by name, so a field that is added later is left
/// out too.
#[derive(Debug, Clone, Copy)]
pub struct PlainProtocol {
    output: &'static Shape,
    chunk: &'static Shape,
}

/// The fields of an object, each with the shape of its value where a field may have been added inside.
#[derive(Debug)]
struct Shape(&'static [(&'static str, Option<&'static Shape>)]);

static STATE: Shape = Shape(&[
    ("sessionId", None),
    ("messages", None),
    ("custom", None),
    ("artifacts", None),
]);

static OUTPUT: Shape = Shape(&[
    ("sessionId", None),
    ("snapshotId", None),
    ("state", Some(&STATE)),
    ("message", None),
    ("artifacts", None),
    ("finishReason", None),
    ("error", None),
]);

static TURN_END: Shape = Shape(&[("snapshotId", None), ("finishReason", None)]);

static CHUNK: Shape = Shape(&[
    ("modelChunk", None),
    ("customPatch", None),
    ("artifact", None),
    ("turnEnd", Some(&TURN_END)),
]);

static SNAPSHOT: Shape = Shape(&[
    ("snapshotId", None),
    ("sessionId", None),
    ("parentId", None),
    ("createdAt", None),
    ("updatedAt", None),
    ("heartbeatAt", None),
    ("status", None),
    ("finishReason", None),
    ("error", None),
    ("state", Some(&STATE)),
]);

impl PlainProtocol {
    /// Returns the form of an action's answers in Genkit's protocol; `None` if the protocol does not have the
    /// action.
    pub fn of(action_type: &ActionType) -> Option<Self> {
        let output = if [ActionType::AGENT, ActionType::AGENT_WATCH].contains(action_type) {
            &OUTPUT
        } else if *action_type == ActionType::AGENT_SNAPSHOT {
            &SNAPSHOT
        } else {
            return None;
        };
        Some(Self {
            output,
            chunk: &CHUNK,
        })
    }

    /// Reduces an output.
    pub fn output(self, mut output: Value) -> Value {
        self.output.reduce(&mut output);
        output
    }

    /// Reduces an output that is text already.
    pub fn output_text(self, output: JsonText) -> JsonText {
        match output.read() {
            Ok(value) => JsonText::of(&self.output(value)).unwrap_or(output),
            Err(_) => output,
        }
    }

    /// Reduces a chunk; `None` if nothing is left of it.
    pub fn chunk(self, chunk: JsonText) -> Option<JsonText> {
        // Nearly every chunk is plain, and reading the names of its fields is all that it costs.
        if self.chunk.is_plain(&chunk) {
            return Some(chunk);
        }
        let mut value: Value = chunk.read().ok()?;
        self.chunk.reduce(&mut value);
        if value.as_object().is_some_and(serde_json::Map::is_empty) {
            return None;
        }
        JsonText::of(&value).ok()
    }
}

impl Shape {
    fn find(&self, name: &str) -> Option<&(&'static str, Option<&'static Shape>)> {
        self.0.iter().find(|(known, _)| *known == name)
    }

    fn reduce(&self, value: &mut Value) {
        let Some(fields) = value.as_object_mut() else {
            return;
        };
        fields.retain(|name, value| match self.find(name) {
            Some((_, Some(inner))) => {
                inner.reduce(value);
                true
            }
            Some((_, None)) => true,
            None => false,
        });
    }

    /// Returns whether an object has only fields of this shape, none of which has a shape itself.
    fn is_plain(&self, text: &JsonText) -> bool {
        let Ok(Names(names)) = serde_json::from_str(text.as_str()) else {
            return false;
        };
        names
            .iter()
            .all(|name| matches!(self.find(name), Some((_, None))))
    }
}

/// The names of an object's fields.
struct Names<'a>(Vec<Cow<'a, str>>);

impl<'de> Deserialize<'de> for Names<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Names<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = map.next_entry()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(action_type: &ActionType) -> PlainProtocol {
        PlainProtocol::of(action_type).unwrap()
    }

    fn chunk(chunk: &Value) -> Option<Value> {
        let reduced = plain(&ActionType::AGENT).chunk(JsonText::of(chunk).unwrap());
        reduced.map(|chunk| chunk.read().unwrap())
    }

    #[test]
    fn a_chunk_keeps_its_known_fields_and_one_without_any_is_left_out() {
        let model = json!({"modelChunk": {"content": [{"text": "hi"}], "custom": {"status": 1}}});

        assert_eq!(chunk(&model), Some(model));
        assert_eq!(chunk(&json!({"status": "cooking"})), None);
        assert_eq!(
            chunk(&json!({"turnEnd": {"finishReason": "stop", "later": 1}, "later": 2})),
            Some(json!({"turnEnd": {"finishReason": "stop"}}))
        );
        assert_eq!(chunk(&json!({"turnEnd": {}})), Some(json!({"turnEnd": {}})));
    }

    #[test]
    fn an_output_and_a_snapshot_lose_the_added_fields_of_their_states_too() {
        let state = json!({"messages": [], "custom": {"promptInput": 1}, "promptInput": {"tone": "kind"}});
        let bare = json!({"messages": [], "custom": {"promptInput": 1}});

        let output = plain(&ActionType::AGENT).output(json!({"state": state, "snapshotIds": ["a"]}));
        let snapshot = plain(&ActionType::AGENT_SNAPSHOT)
            .output(json!({"snapshotId": "a", "index": 1, "labels": ["x"], "state": state}));

        assert_eq!(output, json!({"state": bare}));
        assert_eq!(snapshot, json!({"snapshotId": "a", "state": bare}));
    }

    #[test]
    fn actions_that_genkit_does_not_have_are_left_alone() {
        assert!(PlainProtocol::of(&ActionType::AGENT_SNAPSHOTS).is_none());
        assert!(PlainProtocol::of(&ActionType::FLOW).is_none());
    }
}
