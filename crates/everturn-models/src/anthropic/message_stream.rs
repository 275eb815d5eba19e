//! From the events of a stream to chunks and, at the end, to the answer.
//!
//! A pure fold over events: [`Assembly::event`] takes one and may return a part for the chunk stream,
//! [`Assembly::answer`] returns the whole answer.

use std::collections::BTreeMap;

use everturn_ai::{FinishReason, JsonObject, Part, ToolRequest};
use serde_json::{Value, json};

use super::PROVIDER;
use super::claude::{finish_message, finish_reason, usage};
use crate::{Arguments, Outcome, WireTools, signed};

/// An answer that is being streamed.
#[derive(Debug)]
pub(super) struct Assembly<'a> {
    tools: &'a WireTools,
    /// The message object of the stream, without its content.
    message: JsonObject,
    blocks: BTreeMap<u64, Block>,
    is_complete: bool,
}

/// The whole answer of one stream.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) content: Vec<Part>,
    pub(super) finish_reason: FinishReason,
    pub(super) finish_message: Option<String>,
    pub(super) usage: everturn_ai::Usage,
    /// The message object of the stream, without its content.
    pub(super) message: JsonObject,
}

impl Answer {
    /// Returns whether the model waits for its answer to be sent back before it continues.
    pub(super) fn is_paused(&self) -> bool {
        self.message.get("stop_reason").and_then(Value::as_str) == Some("pause_turn")
    }
}

#[derive(Debug)]
enum Block {
    Text {
        text: String,
        citations: Vec<Value>,
    },
    Thinking {
        text: String,
        signature: String,
    },
    ToolUse {
        call: JsonObject,
        arguments: Arguments,
    },
    /// A block that is sent back unchanged, with the JSON text of an input that is streamed into it.
    Verbatim {
        block: JsonObject,
        input: String,
    },
}

impl<'a> Assembly<'a> {
    /// Creates an empty answer. `tools` are those that the request offered.
    pub(super) fn new(tools: &'a WireTools) -> Self {
        Self {
            tools,
            message: JsonObject::new(),
            blocks: BTreeMap::new(),
            is_complete: false,
        }
    }

    /// Returns whether the terminal event has arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Processes an event and returns the part that it adds to the chunk stream. Unknown events are ignored.
    pub(super) fn event(&mut self, event: &mut Value) -> Option<Part> {
        let kind = event["type"].as_str().unwrap_or_default();
        let index = event["index"].as_u64().unwrap_or_default();
        match kind {
            "message_start" => {
                self.merge(event["message"].take());
                None
            }
            "content_block_start" => self.start(index, event["content_block"].take()),
            "content_block_delta" => self.delta(index, &mut event["delta"]),
            "content_block_stop" => self.stop(index),
            "message_delta" => {
                self.merge(event["delta"].take());
                self.merge(json!({ "usage": event["usage"].take() }));
                None
            }
            "message_stop" => {
                self.is_complete = true;
                None
            }
            _ => None,
        }
    }

    /// Merges fields into those of the message: later values replace earlier ones, `null` is ignored.
    fn merge(&mut self, fields: Value) {
        let Value::Object(fields) = fields else {
            return;
        };
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("content", _) | (_, Value::Null) => {}
                ("usage", Value::Object(counts)) => {
                    let usage = self.message.entry("usage").or_insert_with(|| json!({}));
                    for (key, count) in counts.into_iter().filter(|(_, count)| !count.is_null()) {
                        usage[key] = count;
                    }
                }
                (_, value) => {
                    self.message.insert(key, value);
                }
            }
        }
    }

    fn start(&mut self, index: u64, block: Value) -> Option<Part> {
        let Value::Object(mut block) = block else {
            return None;
        };
        let mut text = |key| match block.get_mut(key) {
            Some(Value::String(text)) => std::mem::take(text),
            _ => String::new(),
        };
        let (block, chunk) = match text("type").as_str() {
            "text" => {
                let text = text("text");
                let chunk = (!text.is_empty()).then(|| Part::text(text.clone()));
                let citations = match block.get_mut("citations") {
                    Some(Value::Array(citations)) => std::mem::take(citations),
                    _ => Vec::new(),
                };
                (Block::Text { text, citations }, chunk)
            }
            "thinking" => {
                let (text, signature) = (text("thinking"), text("signature"));
                let chunk = (!text.is_empty()).then(|| Part::reasoning(text.clone()));
                (Block::Thinking { text, signature }, chunk)
            }
            "tool_use" => {
                let chunk = self.tool_request(&block, None, true);
                let block = Block::ToolUse {
                    call: block,
                    arguments: Arguments::default(),
                };
                (block, Some(chunk))
            }
            kind => {
                block.insert("type".to_owned(), json!(kind));
                let input = String::new();
                (Block::Verbatim { block, input }, None)
            }
        };
        self.blocks.insert(index, block);
        chunk
    }

    fn delta(&mut self, index: u64, delta: &mut Value) -> Option<Part> {
        let kind = delta["type"].as_str().unwrap_or_default().to_owned();
        let mut piece = |key: &str| match delta[key].take() {
            Value::String(piece) => piece,
            _ => String::new(),
        };
        match (kind.as_str(), self.blocks.get_mut(&index)?) {
            ("text_delta", Block::Text { text, .. }) => {
                let piece = piece("text");
                text.push_str(&piece);
                (!piece.is_empty()).then(|| Part::text(piece))
            }
            ("thinking_delta", Block::Thinking { text, .. }) => {
                let piece = piece("thinking");
                text.push_str(&piece);
                (!piece.is_empty()).then(|| Part::reasoning(piece))
            }
            ("signature_delta", Block::Thinking { signature, .. }) => {
                signature.push_str(&piece("signature"));
                None
            }
            ("citations_delta", Block::Text { citations, .. }) => {
                citations.push(delta["citation"].take());
                None
            }
            ("input_json_delta", Block::ToolUse { .. }) => self.argument(index, &piece("partial_json")),
            ("input_json_delta", Block::Verbatim { input, .. }) => {
                input.push_str(&piece("partial_json"));
                None
            }
            // The other deltas of blocks that are sent back unchanged: fields to add, or text to append to.
            (_, Block::Verbatim { block, .. }) => {
                extend(block, delta);
                None
            }
            _ => None,
        }
    }

    /// Adds to the arguments of a call, and returns the call if it is to be shown.
    fn argument(&mut self, index: u64, piece: &str) -> Option<Part> {
        let Some(Block::ToolUse { arguments, .. }) = self.blocks.get_mut(&index) else {
            return None;
        };
        arguments.push(piece);
        let so_far = arguments.show()?;
        match self.blocks.get(&index) {
            Some(Block::ToolUse { call, .. }) => Some(self.tool_request(call, Some(so_far), true)),
            _ => None,
        }
    }

    /// Returns the part of a complete block, unless its deltas were streamed.
    fn stop(&mut self, index: u64) -> Option<Part> {
        match self.blocks.get(&index)? {
            Block::ToolUse { .. } | Block::Verbatim { .. } => self.part(self.blocks.get(&index)?).ok(),
            Block::Thinking { text, .. } if text.is_empty() => self.part(self.blocks.get(&index)?).ok(),
            Block::Text { .. } | Block::Thinking { .. } => None,
        }
    }

    /// Converts a block; the error is the name of a tool whose call was truncated.
    fn part(&self, block: &Block) -> Result<Part, String> {
        Ok(match block {
            Block::Text { text, citations } => {
                let part = Part::text(text.clone());
                if citations.is_empty() {
                    part
                } else {
                    part.with_metadata_entry("citations", citations.clone())
                }
            }
            Block::Thinking { text, signature } => {
                let part = Part::reasoning(text.clone());
                if signature.is_empty() {
                    part
                } else {
                    part.with_metadata(signed(signature.clone(), PROVIDER))
                }
            }
            Block::ToolUse { call, arguments } => match (arguments.outcome(), call.get("input")) {
                // Some servers send the arguments with the start of the block.
                (_, Some(input @ Value::Object(_))) if arguments.is_empty() => {
                    self.tool_request(call, Some(input.clone()), false)
                }
                (Outcome::Input(input), _) => self.tool_request(call, Some(input), false),
                (Outcome::Cut, _) => return Err(self.tool_name(call).to_owned()),
            },
            Block::Verbatim { block, input } => {
                let mut block = block.clone();
                if let Ok(input) = serde_json::from_str(input) {
                    block.insert("input".to_owned(), input);
                }
                match (block.get("type").and_then(Value::as_str), block.get("data")) {
                    (Some("redacted_thinking"), Some(data)) => custom("redactedThinking", data.clone()),
                    _ => custom(PROVIDER, block.into()),
                }
            }
        })
    }

    fn tool_name<'b>(&'b self, call: &'b JsonObject) -> &'b str {
        self.tools
            .meant_by(call.get("name").and_then(Value::as_str).unwrap_or_default())
    }

    fn tool_request(&self, call: &JsonObject, input: Option<Value>, partial: bool) -> Part {
        let name = self.tool_name(call);
        let request = ToolRequest {
            reference: call.get("id").and_then(Value::as_str).map(str::to_owned),
            name: name.to_owned(),
            input: input.map(|input| self.tools.input(name, input)),
            partial,
            ..ToolRequest::default()
        };
        let own: JsonObject = [("caller", "caller"), ("toolset_name", "toolsetName")]
            .into_iter()
            .filter_map(|(wire, key)| Some((key.to_owned(), call.get(wire)?.clone())))
            .collect();
        let part = Part::from(request);
        if own.is_empty() || partial {
            part
        } else {
            part.with_metadata_entry(PROVIDER, own)
        }
    }

    fn stop_reason(&self) -> Option<&str> {
        self.message.get("stop_reason").and_then(Value::as_str)
    }

    /// Returns the whole answer. `request_id` is the provider's id of the request.
    pub(super) fn answer(mut self, request_id: Option<String>) -> Answer {
        if let Some(id) = request_id {
            self.message.insert("request_id".to_owned(), id.into());
        }
        let mut content = Vec::with_capacity(self.blocks.len());
        let mut cut = Vec::new();
        for block in self.blocks.values() {
            match self.part(block) {
                Ok(part) if part.as_text() == Some("") => {}
                Ok(part) => content.push(part),
                Err(tool) => cut.push(tool),
            }
        }
        let finish = finish_message(self.stop_reason(), self.message.get("stop_details"));
        let finish_message = if cut.is_empty() {
            finish
        } else {
            Some(format!(
                "the call of '{}' was cut off before its arguments were complete",
                cut.join("', '")
            ))
        };
        let finish_reason = if cut.is_empty() {
            finish_reason(self.stop_reason())
        } else {
            FinishReason::Length
        };
        Answer {
            content,
            finish_reason,
            finish_message,
            usage: usage(self.message.get("usage").unwrap_or(&Value::Null)),
            message: self.message,
        }
    }
}

fn custom(key: &str, value: Value) -> Part {
    Part::custom(JsonObject::from_iter([(key.to_owned(), value)]))
}

/// Merges a delta into a block: a text is appended to a text, other values are replaced.
fn extend(block: &mut JsonObject, delta: &mut Value) {
    let Value::Object(delta) = delta else {
        return;
    };
    for (key, value) in delta.iter_mut().filter(|(key, _)| *key != "type") {
        match (block.get_mut(key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(piece)) => text.push_str(piece),
            (_, value) => {
                block.insert(key.clone(), value.take());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event_stream::tests as sse;

    const STREAM: &[u8] = include_bytes!("../../tests/streams/anthropic.sse");

    /// Assembles a stream that arrives in pieces; returns its answer and its chunks.
    fn assembled<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Answer, Vec<Part>) {
        let tools = WireTools::new(&[], 128);
        let mut assembly = Assembly::new(&tools);
        let events = sse::values(pieces).into_iter();
        let chunks = events
            .filter_map(|mut event| assembly.event(&mut event))
            .collect();
        assert!(assembly.is_complete());
        (assembly.answer(None), chunks)
    }

    #[test]
    fn chunks_add_up_to_the_answer() {
        let (answer, chunks) = assembled([STREAM]);

        let joined = |parts: &[Part], text: fn(&Part) -> Option<&str>| -> String {
            parts.iter().filter_map(text).collect()
        };
        assert_eq!(
            joined(&chunks, Part::as_text),
            joined(&answer.content, Part::as_text)
        );
        assert_eq!(
            joined(&chunks, Part::as_reasoning),
            joined(&answer.content, Part::as_reasoning)
        );
        let is_whole = |part: &&Part| part.as_tool_request().is_some_and(|request| !request.partial);
        let calls = |parts: &[Part]| -> Vec<Part> { parts.iter().filter(is_whole).cloned().collect() };
        assert_eq!(calls(&chunks), calls(&answer.content));
        assert_eq!(answer.content.len(), 7);
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(sizes in prop::collection::vec(1_usize..60, 1..80)) {
            let pieces = sse::pieces(STREAM, &sizes);

            prop_assert_eq!(format!("{:?}", assembled(pieces)), format!("{:?}", assembled([STREAM])));
        }
    }
}
