//! From the events of a stream to chunks and, at the end, to the answer.
//!
//! A pure fold over events: [`Assembly::event`] takes one and returns the parts that it adds to the chunk
//! stream, [`Assembly::answer`] returns the whole answer.

use everturn_ai::metadata::THOUGHT_SIGNATURE;
use everturn_ai::{
    FinishReason, JsonObject, Media, Message, ModelResponse, Part, PartKind, ToolRequest, Usage,
};
use serde_json::{Value, json};

use super::PROVIDER;
use super::contents::{CUSTOM_PARTS, SIDE_FIELDS};
use super::gemini_model::{finish_reason, usage};
use super::partial_args::apply;
use crate::{SIGNED_BY, WireTools, signed, sum};

/// The fields of a candidate that are kept with its message: the grounding of the answer.
const MESSAGE_METADATA: [&str; 3] = ["groundingMetadata", "citationMetadata", "urlContextMetadata"];

/// An answer that is being streamed.
#[derive(Debug)]
pub(super) struct Assembly<'a> {
    tools: &'a WireTools,
    parts: Vec<Part>,
    /// A call whose arguments are still being streamed.
    open_call: Option<OpenCall>,
    /// The fields of the response other than its candidates.
    response: JsonObject,
    /// The fields of the first candidate other than its content.
    candidate: JsonObject,
    has_candidate: bool,
    /// The usage of the streams before this one.
    spent: Usage,
}

#[derive(Debug)]
struct OpenCall {
    call: JsonObject,
    args: Value,
    metadata: JsonObject,
}

impl<'a> Assembly<'a> {
    /// Creates an empty answer. `tools` are those that the request offered.
    pub(super) fn new(tools: &'a WireTools) -> Self {
        Self {
            tools,
            parts: Vec::new(),
            open_call: None,
            response: JsonObject::new(),
            candidate: JsonObject::new(),
            has_candidate: false,
            spent: Usage::default(),
        }
    }

    /// Returns whether the answer is complete: its finish or block reason has arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.reason().is_some() || self.block_reason().is_some()
    }

    /// Returns the token with which the request must be repeated so that the model continues.
    pub(super) fn continuation(&self) -> Option<Value> {
        let token = |fields: &JsonObject| fields.get("continuationToken").cloned();
        let is_continued = self.reason() == Some("CONTINUATION");
        is_continued
            .then(|| token(&self.candidate).or_else(|| token(&self.response)))
            .flatten()
    }

    /// Clears the reason of the pause, because another stream continues the answer.
    pub(super) fn resume(&mut self) {
        if let Some(wire) = self.response.shift_remove("usageMetadata") {
            self.spent = sum(std::mem::take(&mut self.spent), &usage(&wire));
        }
        self.candidate.shift_remove("finishReason");
        self.candidate.shift_remove("continuationToken");
        self.response.shift_remove("continuationToken");
    }

    /// Processes an event and returns the parts that it adds to the chunk stream. Unknown fields are kept
    /// with the answer.
    pub(super) fn event(&mut self, event: Value) -> Vec<Part> {
        let Value::Object(mut event) = event else {
            return Vec::new();
        };
        let candidates = event.shift_remove("candidates");
        self.response.extend(event);
        let Some(Value::Array(candidates)) = candidates else {
            return Vec::new();
        };
        let Some(Value::Object(mut candidate)) = candidates.into_iter().next() else {
            return Vec::new();
        };
        self.has_candidate = true;
        let content = candidate.shift_remove("content");
        self.candidate
            .extend(candidate.into_iter().filter(|(_, value)| !value.is_null()));
        let Some(Value::Array(parts)) =
            content.and_then(|mut content| Some(content.get_mut("parts")?.take()))
        else {
            return Vec::new();
        };
        parts.into_iter().filter_map(|part| self.part(part)).collect()
    }

    /// Processes a part and returns the part that it adds to the chunk stream.
    fn part(&mut self, part: Value) -> Option<Part> {
        let Value::Object(mut wire) = part else {
            return None;
        };
        let mut metadata = match wire.shift_remove("thoughtSignature") {
            Some(Value::String(signature)) if !signature.is_empty() => signed(signature, PROVIDER),
            _ => JsonObject::new(),
        };
        for (key, field) in SIDE_FIELDS {
            if let Some(value) = wire.shift_remove(field) {
                metadata.insert(key.to_owned(), value);
            }
        }
        if let Some(Value::Object(call)) = wire.shift_remove("functionCall") {
            return Some(self.function_call(call, metadata));
        }
        let is_thought = wire.get("thought").and_then(Value::as_bool).unwrap_or_default();
        if let Some(Value::String(text)) = wire.get_mut("text") {
            let text = std::mem::take(text);
            return self.text(text, is_thought, metadata);
        }
        let kind = if is_thought {
            // An image that belongs to a thought is not part of the answer.
            verbatim(wire, &mut metadata)
        } else {
            kind(wire, &mut metadata)
        };
        let part = Part::new(kind).with_metadata(metadata);
        self.parts.push(part.clone());
        Some(part)
    }

    /// Adds text: to the part before it while neither is signed, else as its own part.
    fn text(&mut self, text: String, is_thought: bool, metadata: JsonObject) -> Option<Part> {
        if text.is_empty() && metadata.is_empty() {
            return None;
        }
        let new = |text: String| {
            let kind = if is_thought {
                PartKind::Reasoning(text)
            } else {
                PartKind::Text(text)
            };
            Part::new(kind)
        };
        if !metadata.is_empty() {
            let part = new(text).with_metadata(metadata);
            self.parts.push(part.clone());
            return Some(part);
        }
        let last = self.parts.pop();
        let joined = match last {
            Some(last) if last.metadata().is_some() => Err(last),
            Some(last) => match (last.into_kind(), is_thought) {
                (PartKind::Text(before), false) | (PartKind::Reasoning(before), true) => Ok(before),
                (kind, _) => Err(Part::new(kind)),
            },
            None => Ok(String::new()),
        };
        let before = joined.unwrap_or_else(|closed| {
            self.parts.push(closed);
            String::new()
        });
        let chunk = new(text.clone());
        self.parts.push(new(before + &text));
        Some(chunk)
    }

    /// Processes a call, or a piece of a call whose arguments arrive in several.
    fn function_call(&mut self, mut call: JsonObject, metadata: JsonObject) -> Part {
        let continues = call.shift_remove("willContinue") == Some(json!(true));
        let pieces = call.shift_remove("partialArgs");
        let mut open = match self.open_call.take() {
            Some(open) => open,
            None => OpenCall {
                args: call.shift_remove("args").unwrap_or_else(|| json!({})),
                call,
                metadata,
            },
        };
        for piece in pieces.as_ref().and_then(Value::as_array).into_iter().flatten() {
            apply(&mut open.args, piece);
        }
        if !open.call.contains_key("id") {
            open.call
                .insert("id".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
            open.metadata.insert(PROVIDER.to_owned(), json!({ "noId": true }));
        }
        let part = self.tool_request(&open, continues);
        if continues {
            self.open_call = Some(open);
        } else {
            self.parts.push(part.clone());
        }
        part
    }

    fn tool_request(&self, open: &OpenCall, partial: bool) -> Part {
        let text = |key| open.call.get(key).and_then(Value::as_str);
        let name = self.tools.meant_by(text("name").unwrap_or_default());
        let request = ToolRequest {
            reference: text("id").map(str::to_owned),
            name: name.to_owned(),
            input: Some(self.tools.input(name, open.args.clone())),
            partial,
            ..ToolRequest::default()
        };
        Part::from(request).with_metadata(open.metadata.clone())
    }

    fn reason(&self) -> Option<&str> {
        let reason = self.candidate.get("finishReason")?.as_str()?;
        (reason != "FINISH_REASON_UNSPECIFIED").then_some(reason)
    }

    fn block_reason(&self) -> Option<&str> {
        self.response.get("promptFeedback")?.get("blockReason")?.as_str()
    }

    /// Returns the whole answer.
    pub(super) fn answer(self) -> ModelResponse {
        let mut finish_reason = match (self.reason(), self.block_reason()) {
            (Some(reason), _) => finish_reason(reason),
            (None, Some(_)) => FinishReason::Blocked,
            (None, None) => FinishReason::Unknown,
        };
        let mut finish_message = self.finish_message();
        if let Some(open) = &self.open_call {
            let name = open.call.get("name").and_then(Value::as_str).unwrap_or_default();
            finish_reason = FinishReason::Length;
            finish_message = Some(format!(
                "the call of '{}' was cut off before its arguments were complete",
                self.tools.meant_by(name)
            ));
        }
        let used = usage(self.response.get("usageMetadata").unwrap_or(&Value::Null));
        let grounding: JsonObject = MESSAGE_METADATA
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), self.candidate.get(*key)?.clone())))
            .collect();
        let mut custom = self.response;
        if self.has_candidate {
            custom.insert("candidate".to_owned(), self.candidate.into());
        }
        ModelResponse {
            message: self
                .has_candidate
                .then(|| Message::model(self.parts).with_metadata(grounding)),
            finish_reason: Some(finish_reason),
            finish_message,
            usage: Some(sum(self.spent, &used)),
            custom: Some(custom.into()),
            ..ModelResponse::default()
        }
    }

    /// Returns Gemini's finish message, or else the finish reason if it is an unusual one.
    fn finish_message(&self) -> Option<String> {
        let feedback = self.response.get("promptFeedback");
        let text = self
            .candidate
            .get("finishMessage")
            .or_else(|| feedback?.get("blockReasonMessage"));
        let is_ordinary = |reason: &&str| !matches!(*reason, "STOP" | "MAX_TOKENS");
        text.and_then(Value::as_str)
            .or_else(|| self.reason().filter(is_ordinary))
            .or_else(|| self.block_reason().filter(|_| self.reason().is_none()))
            .map(str::to_owned)
    }
}

/// Converts content other than text and calls.
fn kind(mut wire: JsonObject, metadata: &mut JsonObject) -> PartKind {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    if let Some(inline) = wire.get("inlineData") {
        let mime_type = text(inline, "mimeType").unwrap_or_default();
        let data = text(inline, "data").unwrap_or_default();
        let media = Media::new(format!("data:{mime_type};base64,{data}")).with_content_type(mime_type);
        return PartKind::Media(Box::new(media));
    }
    if let Some(file) = wire.get("fileData") {
        let media = Media {
            content_type: text(file, "mimeType"),
            ..Media::new(text(file, "fileUri").unwrap_or_default())
        };
        return PartKind::Media(Box::new(media));
    }
    for (key, field) in CUSTOM_PARTS {
        if let Some(value) = wire.shift_remove(field) {
            return PartKind::Custom(Box::new(JsonObject::from_iter([(key.to_owned(), value)])));
        }
    }
    verbatim(wire, metadata)
}

/// Keeps a part whole, including its signature.
fn verbatim(mut wire: JsonObject, metadata: &mut JsonObject) -> PartKind {
    if let Some(signature) = metadata.shift_remove(THOUGHT_SIGNATURE) {
        wire.insert("thoughtSignature".to_owned(), signature);
        metadata.shift_remove(SIGNED_BY);
    }
    PartKind::Custom(Box::new(JsonObject::from_iter([(
        PROVIDER.to_owned(),
        wire.into(),
    )])))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event_stream::tests as sse;

    const STREAM: &[u8] = include_bytes!("../../tests/streams/gemini.sse");

    /// Assembles a stream that arrives in pieces; returns its answer and its chunks.
    fn assembled<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (ModelResponse, Vec<Part>) {
        let tools = WireTools::new(&[], 128);
        let mut assembly = Assembly::new(&tools);
        let events = sse::values(pieces).into_iter();
        let chunks = events.flat_map(|event| assembly.event(event)).collect();
        assert!(assembly.is_complete());
        (assembly.answer(), chunks)
    }

    #[test]
    fn chunks_add_up_to_the_answer() {
        let (answer, chunks) = assembled([STREAM]);

        let message = answer.message.unwrap();
        let text: String = chunks.iter().filter_map(Part::as_text).collect();
        let reasoning: String = chunks.iter().filter_map(Part::as_reasoning).collect();
        assert_eq!(text, message.text());
        assert_eq!(reasoning, message.reasoning());
        let signatures = message
            .content()
            .iter()
            .filter_map(|part| part.metadata_entry("thoughtSignature"));
        assert_eq!(signatures.count(), 4);
        assert_eq!(message.content().len(), 9);
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(sizes in prop::collection::vec(1_usize..60, 1..80)) {
            let pieces = sse::pieces(STREAM, &sizes);

            prop_assert_eq!(assembled(pieces), assembled([STREAM]));
        }
    }
}
