//! A conversation in Ollama's form.

use everturn_ai::{Media, Message, ModelRequest, Part, PartKind, Role};
use everturn_core::{Error, Result};
use serde_json::{Value, json};

use super::PROVIDER;
use crate::content::{self, inline, is_image, output_text, warn_left_out};
use crate::wire_tools::WireTools;

pub(super) fn of(request: &ModelRequest, tools: &WireTools) -> Result<Vec<Value>> {
    let mut messages = Vec::new();
    for message in &request.messages {
        match message.role() {
            Role::System => push_message("system", message.content(), &mut messages)?,
            Role::User => push_message("user", message.content(), &mut messages)?,
            Role::Model => answered(message, tools, &mut messages),
            Role::Tool => tools_answered(message, tools, &mut messages)?,
        }
    }
    Ok(messages)
}

fn push_message(role: &str, parts: &[Part], messages: &mut Vec<Value>) -> Result<()> {
    let (text, images) = content(parts)?;
    if text.is_empty() && images.is_empty() {
        return Ok(());
    }
    let mut message = json!({ "role": role, "content": text });
    if !images.is_empty() {
        message["images"] = images.into();
    }
    messages.push(message);
    Ok(())
}

/// Returns the joined texts, and the images.
fn content(parts: &[Part]) -> Result<(String, Vec<Value>)> {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for part in parts {
        match part.kind() {
            PartKind::Text(text) => texts.push(text.clone()),
            PartKind::Data(value) => texts.push(value.to_string()),
            PartKind::Media(media) => images.push(image(media)?),
            _ => warn_left_out(part, PROVIDER),
        }
    }
    texts.retain(|text| !text.is_empty());
    Ok((texts.join("\n"), images))
}

fn image(media: &Media) -> Result<Value> {
    let inline = inline(media).ok_or_else(|| {
        Error::invalid_argument(format!(
            "Ollama takes images only inline: '{}' must be a data: URL",
            media.url
        ))
    })?;
    // Media without a type may be an image.
    if !inline.mime_type.is_empty() && !is_image(inline.mime_type) {
        let message = format!("Ollama takes images and no other media: '{}'", inline.mime_type);
        return Err(Error::invalid_argument(message));
    }
    Ok(inline.base64.into())
}

fn answered(message: &Message, tools: &WireTools, messages: &mut Vec<Value>) {
    let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for part in message.content() {
        match part.kind() {
            PartKind::Text(more) => text.push_str(more),
            PartKind::Data(value) => text.push_str(&value.to_string()),
            PartKind::Reasoning(more) if !content::is_foreign(part, PROVIDER) => thinking.push_str(more),
            PartKind::ToolRequest(request) => {
                let (name, arguments) = (tools.to_wire(&request.name), tools.arguments(request));
                let mut call = json!({ "function": { "name": name, "arguments": arguments } });
                if let Some(id) = &request.reference {
                    call["id"] = id.as_str().into();
                }
                calls.push(call);
            }
            _ => warn_left_out(part, PROVIDER),
        }
    }
    if text.is_empty() && thinking.is_empty() && calls.is_empty() {
        return;
    }
    let mut sent = json!({ "role": "assistant", "content": text });
    if !thinking.is_empty() {
        sent["thinking"] = thinking.into();
    }
    if !calls.is_empty() {
        sent["tool_calls"] = calls.into();
    }
    messages.push(sent);
}

/// Converts answers to one message each; images follow in a user message.
fn tools_answered(message: &Message, tools: &WireTools, messages: &mut Vec<Value>) -> Result<()> {
    let mut pictures = Vec::new();
    for response in message.content().iter().filter_map(Part::as_tool_response) {
        let (more, images) = content(&response.content)?;
        pictures.extend(images);
        let mut texts = vec![output_text(response).into_owned(), more];
        texts.retain(|text| !text.is_empty());
        let name = tools.to_wire(&response.name);
        let mut sent = json!({ "role": "tool", "tool_name": name, "content": texts.join("\n") });
        if let Some(id) = &response.reference {
            sent["tool_call_id"] = id.as_str().into();
        }
        messages.push(sent);
    }
    if !pictures.is_empty() {
        messages.push(json!({ "role": "user", "content": "", "images": pictures }));
    }
    Ok(())
}
