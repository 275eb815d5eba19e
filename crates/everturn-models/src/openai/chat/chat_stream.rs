//! From the chunks of a Chat Completions stream to Everturn's chunks and the answer.

use everturn_ai::{FinishReason, JsonObject, Message, ModelResponse, Part, Usage};
use everturn_core::{Result, Status};
use serde_json::{Value, json};

use super::calls::{Calls, Finished};
use super::reasoning::{Details, Piece, ThinkTags};
use crate::openai::openai_model::OpenAiModel;
use crate::openai::token_counts;
use crate::{Draft, Events, SIGNED_BY, WireTools};

/// Fields of a chunk that are part of the answer or contain no information.
const KNOWN: [&str; 7] = [
    "choices",
    "usage",
    "object",
    "created",
    "obfuscation",
    "error",
    "x_groq",
];

/// The state of a stream so far.
pub(super) struct Reader<'a> {
    draft: Draft<'a>,
    provider: &'a str,
    tools: &'a WireTools,
    think_tags: Option<ThinkTags>,
    calls: Calls,
    details: Details,
    /// The name of the field that contained the reasoning.
    reasoning_field: Option<&'static str>,
    has_text: bool,
    refusal: String,
    finish: Option<String>,
    usage: Option<Usage>,
    custom: JsonObject,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        draft: Draft<'a>,
        model: &'a OpenAiModel,
        tools: &'a WireTools,
        parses_think_tags: bool,
    ) -> Self {
        Self {
            draft,
            provider: model.service.provider(),
            tools,
            think_tags: parses_think_tags.then(ThinkTags::default),
            calls: Calls::default(),
            details: Details::default(),
            reasoning_field: None,
            has_text: false,
            refusal: String::new(),
            finish: None,
            usage: None,
            custom: JsonObject::new(),
        }
    }

    /// Reads a stream to its end.
    ///
    /// # Errors
    /// The error that the server reports; `UNAVAILABLE` if the stream ends without `[DONE]` and without a
    /// finish reason.
    pub(super) async fn read(mut self, mut events: Events<'_>) -> Result<ModelResponse> {
        let mut is_done = false;
        while let Some(event) = events.next().await? {
            if event.data.trim_ascii() == b"[DONE]" {
                is_done = true;
                break;
            }
            let chunk: Value = events.read(&event)?;
            let choice = &chunk["choices"][0];
            let failed = [&chunk, choice]
                .into_iter()
                .find(|value| value.get("error").is_some_and(|error| !error.is_null()));
            if let Some(failed) = failed {
                return Err(events.failure(failed));
            }
            if event.name == "error" {
                return Err(events.failure(&chunk));
            }
            self.take(&chunk, choice).await?;
        }
        if !is_done && self.finish.is_none() {
            return Err(events.truncated("its finish reason"));
        }
        if self.finish.as_deref() == Some("error") {
            return Err(events.broken(
                Status::Unavailable,
                "the server ended the answer with an error that it does not name",
            ));
        }
        self.finished().await
    }

    async fn take(&mut self, chunk: &Value, choice: &Value) -> Result<()> {
        self.about(chunk, choice);
        let has_delta = choice["delta"].as_object().is_some_and(|delta| !delta.is_empty());
        // Some servers repeat the whole message in the last chunk, others send nothing else.
        let delta = if has_delta || self.has_text {
            &choice["delta"]
        } else {
            &choice["message"]
        };
        self.reasoning(delta).await?;
        self.content(&delta["content"]).await?;
        self.refusal
            .push_str(delta["refusal"].as_str().unwrap_or_default());
        for fragment in delta["tool_calls"].as_array().into_iter().flatten() {
            let place = self.calls.take(fragment);
            if self.draft.is_streaming()
                && let Some(partial) = self.calls.partial(place, self.tools)
            {
                self.draft.show(partial).await?;
            }
        }
        if let Some(reason) = choice["finish_reason"]
            .as_str()
            .filter(|reason| !reason.is_empty())
        {
            self.finish = Some(reason.to_owned());
        }
        Ok(())
    }

    fn about(&mut self, chunk: &Value, choice: &Value) {
        let counted = [&chunk["usage"], &chunk["x_groq"]["usage"], &choice["usage"]];
        if let Some(counted) = counted.into_iter().find(|usage| usage.is_object()) {
            self.usage = Some(token_counts::of_chat(counted));
        }
        for (name, value) in chunk.as_object().into_iter().flatten() {
            if !KNOWN.contains(&name.as_str()) && !value.is_null() && self.custom.get(name) != Some(value) {
                self.custom.insert(name.clone(), value.clone());
            }
        }
    }

    async fn reasoning(&mut self, delta: &Value) -> Result<()> {
        let detailed = delta["reasoning_details"]
            .as_array()
            .map(|details| self.details.take(details));
        for field in ["reasoning_content", "reasoning"] {
            if let Some(text) = delta[field].as_str().filter(|text| !text.is_empty()) {
                self.reasoning_field = Some(field);
                return self.draft.reasoning(text).await;
            }
        }
        self.draft.reasoning(&detailed.unwrap_or_default()).await
    }

    async fn content(&mut self, content: &Value) -> Result<()> {
        match content {
            Value::String(text) => self.text(text).await,
            Value::Array(parts) => {
                for part in parts {
                    if let Some(text) = part["text"].as_str() {
                        self.text(text).await?;
                    }
                    for thought in part["thinking"].as_array().into_iter().flatten() {
                        self.reasoning_field = Some("content");
                        self.draft
                            .reasoning(thought["text"].as_str().unwrap_or_default())
                            .await?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn text(&mut self, text: &str) -> Result<()> {
        self.has_text |= !text.is_empty();
        match &mut self.think_tags {
            None => self.draft.text(text).await,
            Some(tags) => {
                for piece in tags.take(text) {
                    self.piece(piece).await?;
                }
                Ok(())
            }
        }
    }

    async fn piece(&mut self, piece: Piece) -> Result<()> {
        match piece {
            Piece::Text(text) => self.draft.text(&text).await,
            Piece::Reasoning(text) => self.draft.reasoning(&text).await,
        }
    }

    async fn finished(mut self) -> Result<ModelResponse> {
        if let Some(tags) = self.think_tags.take() {
            self.piece(tags.finish()).await?;
        }
        let mut cut = None;
        for call in std::mem::take(&mut self.calls).finish(self.provider, self.tools) {
            match call {
                Finished::Whole(part) => {
                    if self.draft.is_streaming() {
                        self.draft.show(part.clone()).await?;
                    }
                    self.draft.push(part);
                }
                Finished::Cut(name) => cut = Some(name),
            }
        }
        let (reason, message) = self.reason(cut);
        let metadata = self.reasoning_metadata();
        let parts = self.draft.into_parts();
        Ok(ModelResponse {
            message: Some(Message::model(with_reasoning(parts, metadata))),
            finish_reason: Some(reason),
            finish_message: message,
            usage: self.usage,
            custom: Some(self.custom.into()),
            ..ModelResponse::default()
        })
    }

    fn reason(&self, cut: Option<String>) -> (FinishReason, Option<String>) {
        if let Some(tool) = cut {
            let message = format!("the call of '{tool}' was cut in the middle of its arguments");
            return (FinishReason::Length, Some(message));
        }
        if !self.refusal.is_empty() {
            return (FinishReason::Blocked, Some(self.refusal.clone()));
        }
        match self.finish.as_deref() {
            None | Some("stop" | "tool_calls" | "function_call" | "eos" | "end_turn" | "tool_call") => {
                (FinishReason::Stop, None)
            }
            Some("length") => (FinishReason::Length, None),
            Some("content_filter") => (FinishReason::Blocked, Some("content_filter".to_owned())),
            Some(other) => (FinishReason::Unknown, Some(other.to_owned())),
        }
    }

    /// Returns the metadata that is sent back with the reasoning.
    fn reasoning_metadata(&mut self) -> JsonObject {
        let mut metadata = JsonObject::new();
        let field = self
            .reasoning_field
            .map(|field| (self.provider, "reasoningField", json!(field)));
        let details = std::mem::take(&mut self.details).into_whole();
        if details.is_some() {
            metadata.insert(SIGNED_BY.to_owned(), self.provider.into());
        }
        let details = details.map(|details| ("openrouter", "reasoningDetails", details));
        // The provider may be OpenRouter itself.
        for (key, name, value) in field.into_iter().chain(details) {
            metadata.entry(key).or_insert_with(|| json!({}))[name] = value;
        }
        metadata
    }
}

/// Adds metadata to the first reasoning part, and creates one if there is none.
fn with_reasoning(mut parts: Vec<Part>, metadata: JsonObject) -> Vec<Part> {
    if metadata.is_empty() {
        return parts;
    }
    match parts.iter_mut().find(|part| part.as_reasoning().is_some()) {
        Some(part) => *part = part.clone().with_metadata(metadata),
        None => parts.insert(0, Part::reasoning("").with_metadata(metadata)),
    }
    parts
}
