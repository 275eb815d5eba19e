//! A conversation in the form of Chat Completions.

use everturn_ai::{JsonObject, Message, ModelRequest, Part, PartKind, Role};
use everturn_core::Result;
use serde_json::{Value, json};

use crate::content::{self, output_text, warn_left_out};
use crate::openai::dialect::Dialect;
use crate::openai::media;
use crate::openai::tools::CallIds;
use crate::wire_tools::WireTools;

pub(super) fn of(
    request: &ModelRequest,
    provider: &str,
    dialect: Dialect,
    tools: &WireTools,
) -> Result<Vec<Value>> {
    let mut writer = Writer {
        provider,
        dialect,
        tools,
        ids: CallIds::default(),
        messages: Vec::new(),
    };
    for message in &request.messages {
        match message.role() {
            Role::System => writer.push_message("system", message)?,
            Role::User => writer.push_message("user", message)?,
            Role::Model => writer.answered(message),
            Role::Tool => writer.tools_answered(message)?,
        }
    }
    Ok(writer.messages)
}

struct Writer<'a> {
    provider: &'a str,
    dialect: Dialect,
    tools: &'a WireTools,
    ids: CallIds,
    messages: Vec<Value>,
}

impl Writer<'_> {
    fn push_message(&mut self, role: &str, message: &Message) -> Result<()> {
        let content = self.contents(message.content())?;
        if !content.is_empty() {
            self.messages
                .push(json!({ "role": role, "content": self.joined(content) }));
        }
        Ok(())
    }

    fn contents(&self, parts: &[Part]) -> Result<Vec<Value>> {
        let mut contents = Vec::with_capacity(parts.len());
        for part in parts {
            match part.kind() {
                PartKind::Text(text) if text.is_empty() => {}
                PartKind::Text(text) => contents.push(json!({ "type": "text", "text": text })),
                PartKind::Data(value) => contents.push(json!({ "type": "text", "text": value.to_string() })),
                PartKind::Media(media) => contents.push(media::for_chat(part, media)?),
                _ => warn_left_out(part, self.provider),
            }
        }
        Ok(contents)
    }

    /// Text alone is sent as a string, because some servers accept no list.
    fn joined(&self, contents: Vec<Value>) -> Value {
        let texts: Option<Vec<&str>> = contents.iter().map(|content| content["text"].as_str()).collect();
        match texts {
            Some(texts) if texts.len() == 1 || self.dialect == Dialect::Generic => texts.join("\n").into(),
            _ => contents.into(),
        }
    }

    fn answered(&mut self, message: &Message) {
        let mut text = String::new();
        let mut calls = Vec::new();
        let mut reasoning: Vec<&Part> = Vec::new();
        let mut extra = JsonObject::new();
        for part in message.content() {
            match part.kind() {
                PartKind::Text(more) => text.push_str(more),
                PartKind::Data(value) => text.push_str(&value.to_string()),
                PartKind::Reasoning(_) => reasoning.push(part),
                PartKind::ToolRequest(_) => calls.extend(self.call(part)),
                PartKind::Custom(custom) if custom.contains_key(self.provider) => {
                    let own = custom.get(self.provider).and_then(Value::as_object);
                    extra.extend(own.cloned().unwrap_or_default());
                }
                _ => warn_left_out(part, self.provider),
            }
        }
        let thoughts = self.thoughts(&reasoning, !calls.is_empty());
        let has_fields = thoughts.is_some() || !extra.is_empty();
        if text.is_empty() && calls.is_empty() && !has_fields {
            return;
        }
        let content = match (text.is_empty(), self.dialect.is_openai()) {
            (true, true) if !calls.is_empty() => Value::Null,
            _ => Value::String(text),
        };
        let mut sent = json!({ "role": "assistant", "content": content });
        if !calls.is_empty() {
            sent["tool_calls"] = calls.into();
        }
        match thoughts {
            // Mistral expects the reasoning in the content.
            Some((field, thoughts)) if field == "content" => {
                let thinking =
                    json!({ "type": "thinking", "thinking": [{ "type": "text", "text": thoughts }] });
                let text = json!({ "type": "text", "text": sent["content"].take() });
                sent["content"] = json!([thinking, text]);
            }
            Some((field, thoughts)) => sent[&field] = thoughts,
            None => {}
        }
        for (name, value) in extra {
            sent[&name] = value;
        }
        self.messages.push(sent);
    }

    /// Returns the reasoning that the server expects, and the name of its field.
    fn thoughts(&self, parts: &[&Part], has_calls: bool) -> Option<(String, Value)> {
        if self.dialect.is_openai() {
            return None;
        }
        let details: Vec<Value> = parts
            .iter()
            .filter(|part| !content::is_foreign(part, self.provider))
            .filter_map(|part| {
                content::own(part, "openrouter")?
                    .get("reasoningDetails")?
                    .as_array()
            })
            .flatten()
            .cloned()
            .collect();
        if !details.is_empty() {
            return Some(("reasoning_details".to_owned(), details.into()));
        }
        let field = parts.iter().find_map(|part| {
            let own = content::own(part, self.provider)?;
            own.get("reasoningField")?.as_str()
        })?;
        let text: String = parts.iter().filter_map(|part| part.as_reasoning()).collect();
        (has_calls && !text.is_empty()).then(|| (field.to_owned(), text.into()))
    }

    fn call(&mut self, part: &Part) -> Option<Value> {
        let request = part.as_tool_request()?;
        let id = self.ids.of_request(request);
        let arguments = self.tools.arguments_text(request);
        let function = json!({ "name": self.tools.to_wire(&request.name), "arguments": arguments });
        let mut call = json!({ "id": self.dialect.call_id(&id), "type": "function", "function": function });
        let own = content::own(part, self.provider);
        if let Some(extra) = own.and_then(|own| own.get("extraContent")) {
            call["extra_content"] = extra.clone();
        }
        Some(call)
    }

    /// Converts answers to one message each; content other than text follows in a user message.
    fn tools_answered(&mut self, message: &Message) -> Result<()> {
        let mut files = Vec::new();
        for part in message.content() {
            let PartKind::ToolResponse(response) = part.kind() else {
                warn_left_out(part, self.provider);
                continue;
            };
            let mut texts = vec![output_text(response).into_owned()];
            for content in self.contents(&response.content)? {
                match content["text"].as_str() {
                    Some(text) => texts.push(text.to_owned()),
                    None => files.push(content),
                }
            }
            texts.retain(|text| !text.is_empty());
            let id = self.ids.of_response(response);
            let id = self.dialect.call_id(&id);
            self.messages
                .push(json!({ "role": "tool", "tool_call_id": id, "content": texts.join("\n") }));
        }
        if !files.is_empty() {
            self.messages.push(json!({ "role": "user", "content": files }));
        }
        Ok(())
    }
}
