//! A conversation as items.
//!
//! One message of a model becomes several items in the order of its parts: reasoning, text, calls. The
//! provider's own data is sent back unchanged.

use everturn_ai::{JsonObject, Message, ModelRequest, Part, PartKind, Role, ToolResponse};
use serde_json::{Value, json};

use crate::content::{self, output_text, warn_left_out};
use crate::openai::media;
use crate::openai::tools::CallIds;
use crate::wire_tools::WireTools;

/// The input of a request.
pub(super) struct Items {
    /// The text of the system messages at the start.
    pub(super) instructions: Option<String>,
    pub(super) input: Vec<Value>,
}

impl Items {
    pub(super) fn of(request: &ModelRequest, provider: &str, tools: &WireTools) -> Self {
        let mut writer = Writer {
            provider,
            tools,
            ids: CallIds::default(),
            input: Vec::new(),
        };
        let mut instructions: Vec<String> = Vec::new();
        let mut is_beginning = true;
        for message in &request.messages {
            is_beginning &= message.role() == Role::System;
            if is_beginning {
                instructions.push(message.text().into_owned());
            } else {
                writer.message(message);
            }
        }
        instructions.retain(|text| !text.is_empty());
        Self {
            instructions: (!instructions.is_empty()).then(|| instructions.join("\n\n")),
            input: writer.input,
        }
    }
}

struct Writer<'a> {
    provider: &'a str,
    tools: &'a WireTools,
    ids: CallIds,
    input: Vec<Value>,
}

impl Writer<'_> {
    fn message(&mut self, message: &Message) {
        match message.role() {
            Role::System => self.push_message("developer", message),
            Role::User => self.push_message("user", message),
            Role::Model => message.content().iter().for_each(|part| self.answered(part)),
            Role::Tool => message.content().iter().for_each(|part| self.tool_answered(part)),
        }
    }

    /// Converts a message of a person or program: one item with all its content.
    fn push_message(&mut self, role: &str, message: &Message) {
        let content: Vec<Value> = message
            .content()
            .iter()
            .filter_map(|part| self.input_content(part))
            .collect();
        if !content.is_empty() {
            self.input
                .push(json!({ "type": "message", "role": role, "content": content }));
        }
    }

    fn input_content(&self, part: &Part) -> Option<Value> {
        let mut content = match part.kind() {
            PartKind::Text(text) if text.is_empty() => return None,
            PartKind::Text(text) => json!({ "type": "input_text", "text": text }),
            PartKind::Data(value) => json!({ "type": "input_text", "text": value.to_string() }),
            PartKind::Media(media) => media::for_responses(part, media),
            _ => {
                warn_left_out(part, self.provider);
                return None;
            }
        };
        if let Some(breakpoint) = cache_breakpoint(part) {
            content["prompt_cache_breakpoint"] = breakpoint;
        }
        Some(content)
    }

    /// Converts a part of a model message: an item per part, except texts of one message.
    fn answered(&mut self, part: &Part) {
        let own = content::own(part, self.provider);
        match part.kind() {
            PartKind::Text(text) => self.text(text, part, own),
            PartKind::Data(value) => self.text(&value.to_string(), part, own),
            PartKind::Reasoning(text) => self.reasoning(text, part, own),
            PartKind::ToolRequest(request) => {
                let arguments = self.tools.arguments_text(request);
                let mut item = own.cloned().unwrap_or_default();
                item.insert("type".to_owned(), "function_call".into());
                item.insert("call_id".to_owned(), self.ids.of_request(request).into());
                item.insert("name".to_owned(), self.tools.to_wire(&request.name).into());
                item.insert("arguments".to_owned(), arguments.into());
                self.input.push(item.into());
            }
            PartKind::Custom(custom) => match custom.get(self.provider) {
                Some(item) => self.input.push(item.clone()),
                None => warn_left_out(part, self.provider),
            },
            // A picture of the provider is also in a custom part.
            PartKind::Media(_) if own.is_some() => {}
            PartKind::Media(media) if !media.url.starts_with("data:") => {
                self.text(&media.url, part, None);
            }
            _ => warn_left_out(part, self.provider),
        }
    }

    fn text(&mut self, text: &str, part: &Part, own: Option<&JsonObject>) {
        if text.is_empty() && own.is_none() {
            return;
        }
        let mut content = json!({ "type": "output_text", "text": text });
        content["annotations"] = match part.metadata_entry("citations") {
            Some(citations) if own.is_some() => citations.clone(),
            _ => json!([]),
        };
        let id = own.and_then(|own| own.get("id"));
        if let (Some(id), Some(last)) = (id, self.input.last_mut())
            && last.get("type") == Some(&json!("message"))
            && last.get("id") == Some(id)
            && let Some(Value::Array(contents)) = last.get_mut("content")
        {
            contents.push(content);
            return;
        }
        let mut item = JsonObject::new();
        item.insert("type".to_owned(), "message".into());
        item.insert("role".to_owned(), "assistant".into());
        item.extend(own.cloned().unwrap_or_default());
        item.insert("content".to_owned(), json!([content]));
        self.input.push(item.into());
    }

    /// Converts reasoning if it is OpenAI's and complete: without its encrypted content the provider rejects
    /// it.
    fn reasoning(&mut self, text: &str, part: &Part, own: Option<&JsonObject>) {
        let (Some(signature), Some(own)) = (content::signature(part, self.provider), own) else {
            return;
        };
        let mut item = JsonObject::new();
        item.insert("type".to_owned(), "reasoning".into());
        item.extend(own.clone());
        if !item.contains_key("summary") {
            let summary = if text.is_empty() || own.contains_key("content") {
                json!([])
            } else {
                json!([{ "type": "summary_text", "text": text }])
            };
            item.insert("summary".to_owned(), summary);
        }
        item.insert("encrypted_content".to_owned(), signature.text().into());
        self.input.push(item.into());
    }

    fn tool_answered(&mut self, part: &Part) {
        let PartKind::ToolResponse(response) = part.kind() else {
            warn_left_out(part, self.provider);
            return;
        };
        let call_id = self.ids.of_response(response);
        let output = self.tool_output(response);
        self.input
            .push(json!({ "type": "function_call_output", "call_id": call_id, "output": output }));
    }

    fn tool_output(&self, response: &ToolResponse) -> Value {
        let text = output_text(response);
        if response.content.is_empty() {
            return Value::String(text.into_owned());
        }
        let head = (!text.is_empty()).then(|| json!({ "type": "input_text", "text": text }));
        let content = response
            .content
            .iter()
            .filter_map(|part| self.input_content(part));
        head.into_iter().chain(content).collect()
    }
}

/// Returns the end of a cached prefix of the conversation, if the part marks one.
fn cache_breakpoint(part: &Part) -> Option<Value> {
    let control = part
        .metadata_entry("cacheControl")
        .or_else(|| part.metadata_entry("cache_control"))?;
    let mut breakpoint = json!({ "mode": "explicit" });
    if let Some(lifetime) = control.get("ttl") {
        breakpoint["ttl"] = lifetime.clone();
    }
    Some(breakpoint)
}
