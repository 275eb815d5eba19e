//! Parts as content blocks, and the ids of the tool calls among them.

use std::collections::HashSet;

use everturn_ai::{JsonObject, Media, Part, PartKind, ToolRequest, ToolResponse};
use everturn_core::{Error, Result};
use serde_json::{Value, json};

use super::PROVIDER;
use crate::content;
use crate::{Signature, WireTools, inline, is_image, output_text, snake_case};

/// The keys under which a part or a tool may ask for a prompt-cache breakpoint.
const CACHE_CONTROL: [&str; 2] = ["cache_control", "cacheControl"];
const FILE_SCHEME: &str = "anthropic-file:";
const PDF: &str = "application/pdf";

/// Converts a part of a user or tool message; `None` if Claude does not accept such a part.
pub(super) fn user_block(part: &Part, calls: &mut Calls) -> Result<Option<Value>> {
    if let Some(response) = part.as_tool_response() {
        let block = tool_result(part, response, calls)?;
        return Ok(Some(cached(block, part.metadata())));
    }
    content_block(part)
}

/// Converts a part of a model message; `None` if such a part is not sent back.
///
/// Media is not sent back: Claude accepts it from users only.
pub(super) fn assistant_block(part: &Part, tools: &WireTools, calls: &mut Calls) -> Option<Value> {
    let block = match part.kind() {
        PartKind::Text(text) => {
            let mut block = text_block(text)?;
            if let Some(citations) = part.metadata_entry("citations").filter(|list| list.is_array()) {
                block["citations"] = citations.clone();
            }
            block
        }
        // A signed block must not be changed, not even by a cache mark.
        PartKind::Reasoning(text) => return thinking(part, text),
        PartKind::Custom(custom) => return custom_block(custom),
        PartKind::ToolRequest(request) => tool_use(part, request, tools, calls),
        PartKind::Data(value) => text_block(&value.to_string())?,
        _ => return None,
    };
    Some(cached(block, part.metadata()))
}

/// Converts a part that may stand in a user message or in the result of a tool.
pub(super) fn content_block(part: &Part) -> Result<Option<Value>> {
    let block = match part.kind() {
        PartKind::Text(text) => text_block(text),
        PartKind::Media(media) => Some(media_block(media)?),
        PartKind::Data(value) => text_block(&value.to_string()),
        PartKind::Custom(custom) => custom_block(custom),
        _ => None,
    };
    Ok(block.map(|block| cached(block, part.metadata())))
}

/// Creates a text block; `None` for blank text, which Claude rejects.
pub(super) fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// Adds the cache breakpoint that the metadata requests.
pub(super) fn cached(mut block: Value, metadata: Option<&JsonObject>) -> Value {
    let mark = metadata.and_then(|metadata| CACHE_CONTROL.iter().find_map(|key| metadata.get(*key)));
    if let Some(mark) = mark.and_then(cache_control) {
        block["cache_control"] = mark;
    }
    block
}

/// Returns a cache breakpoint in the API's form; `true` requests a default one.
pub(super) fn cache_control(mark: &Value) -> Option<Value> {
    match mark {
        Value::Bool(true) => Some(json!({ "type": "ephemeral" })),
        Value::Object(_) => Some(mark.clone()),
        _ => None,
    }
}

/// Converts reasoning; `None` unless it has Claude's own signature.
fn thinking(part: &Part, text: &str) -> Option<Value> {
    let signature = match content::signature(part, PROVIDER)? {
        Signature::Exact(signature) => signature.to_owned(),
        Signature::Encoded(encoded) => decoded(encoded).unwrap_or_else(|| encoded.to_owned()),
    };
    Some(json!({ "type": "thinking", "thinking": text, "signature": signature }))
}

/// Decodes base64 to text: a signature that was encoded twice, or a document.
fn decoded(encoded: &str) -> Option<String> {
    use base64::Engine as _;

    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok()
}

/// Returns the block in a custom part of Claude's own; `None` for those of other providers.
fn custom_block(custom: &JsonObject) -> Option<Value> {
    if let Some(block) = custom.get(PROVIDER) {
        return Some(block.clone());
    }
    if let Some(data) = custom.get("redactedThinking") {
        return Some(json!({ "type": "redacted_thinking", "data": data }));
    }
    let mut document = in_snake_case(custom.get("anthropicDocument")?);
    document["type"] = json!("document");
    Some(document)
}

/// Converts the keys of a value to the API's form: `mediaType` becomes `media_type`.
fn in_snake_case(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| (snake_case(name), in_snake_case(member)))
            .collect::<JsonObject>()
            .into(),
        Value::Array(items) => items.iter().map(in_snake_case).collect(),
        other => other.clone(),
    }
}

fn tool_use(part: &Part, request: &ToolRequest, tools: &WireTools, calls: &mut Calls) -> Value {
    let name = tools.to_wire(&request.name);
    let input = tools.arguments(request);
    let id = calls.asked(request);
    let mut block = json!({ "type": "tool_use", "id": id, "name": name, "input": input });
    let own = part.metadata_entry(PROVIDER);
    for (key, wire) in [("caller", "caller"), ("toolsetName", "toolset_name")] {
        if let Some(value) = own.and_then(|own| own.get(key)) {
            block[wire] = value.clone();
        }
    }
    block
}

fn tool_result(part: &Part, response: &ToolResponse, calls: &mut Calls) -> Result<Value> {
    let output = output_text(response);
    let content = if response.content.is_empty() {
        Value::from(output)
    } else {
        let output = text_block(&output).map(Ok);
        let further = response
            .content
            .iter()
            .filter_map(|part| content_block(part).transpose());
        Value::from(output.into_iter().chain(further).collect::<Result<Vec<_>>>()?)
    };
    let id = calls.answered(response);
    let mut block = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
    if is_error(part, response) {
        block["is_error"] = json!(true);
    }
    Ok(block)
}

/// Returns whether a tool response reports a failure: its metadata has `isError`, or its output is an object
/// with `error` as its only key.
fn is_error(part: &Part, response: &ToolResponse) -> bool {
    let is_marked = part.metadata_entry("isError").and_then(Value::as_bool);
    is_marked.unwrap_or_else(|| {
        let output = response.output.as_ref().and_then(Value::as_object);
        output.is_some_and(|output| output.len() == 1 && output.contains_key("error"))
    })
}

/// Converts media to an image or a document.
///
/// # Errors
/// `INVALID_ARGUMENT` for an unsupported type or location.
pub(super) fn media_block(media: &Media) -> Result<Value> {
    let named = media.mime_type().map(str::to_ascii_lowercase);
    let mime_type = named.as_deref().unwrap_or_else(|| mime_type_of(&media.url));
    let kind = if is_image(mime_type) { "image" } else { "document" };
    Ok(json!({ "type": kind, "source": source(media, mime_type)? }))
}

fn source(media: &Media, mime_type: &str) -> Result<Value> {
    let is_native = is_image(mime_type) || mime_type == PDF;
    if let Some(file) = media.url.strip_prefix(FILE_SCHEME) {
        return Ok(json!({ "type": "file", "file_id": file }));
    }
    if let Some(inline) = inline(media) {
        if is_native {
            return Ok(json!({ "type": "base64", "media_type": mime_type, "data": inline.base64 }));
        }
        return match decoded(&inline.base64) {
            Some(text) if mime_type.starts_with("text/") => {
                Ok(json!({ "type": "text", "media_type": "text/plain", "data": text }))
            }
            _ => Err(unreadable(mime_type, "it reads images, PDF and UTF-8 text")),
        };
    }
    if !is_web(&media.url) {
        let scheme = media.url.split(':').next().unwrap_or_default();
        let place = format!("behind '{scheme}:'");
        return Err(unreadable(
            &place,
            "it reads `data:` and `https:` URLs and its own files (`anthropic-file:ID`)",
        ));
    }
    if is_native {
        Ok(json!({ "type": "url", "url": media.url }))
    } else {
        Err(unreadable(mime_type, "by URL it reads images and PDF"))
    }
}

fn is_web(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

/// Guesses the content type of a URL.
fn mime_type_of(url: &str) -> &'static str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let is_pdf = path.len() >= 4 && path.to_ascii_lowercase().ends_with(".pdf");
    if is_pdf || url.starts_with(FILE_SCHEME) {
        PDF
    } else {
        "image/*"
    }
}

fn unreadable(what: &str, instead: &str) -> Error {
    Error::invalid_argument(format!("Claude cannot read media {what}: {instead}"))
}

/// Returns whether a block is the result of a tool.
pub(super) fn is_tool_result(block: &Value) -> bool {
    block["type"] == "tool_result"
}

/// The unanswered calls of a conversation, with the ids they are sent with.
///
/// Claude requires a unique id on every call and the same id on its answer, of letters, digits, `_` and `-`.
/// Calls of another provider's model may have other ids, equal ones, or none.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Vec<Call>,
    used: HashSet<String>,
}

#[derive(Debug)]
struct Call {
    name: String,
    reference: Option<String>,
    id: String,
}

impl Calls {
    /// Returns the id under which a call is sent.
    pub(super) fn asked(&mut self, request: &ToolRequest) -> String {
        let reference = request
            .reference
            .as_deref()
            .filter(|reference| !reference.is_empty());
        let id = self.unused(&allowed(reference.unwrap_or("call_1")));
        self.open.push(Call {
            name: request.name.clone(),
            reference: request.reference.clone(),
            id: id.clone(),
        });
        id
    }

    /// Appends a number to an id that is taken.
    fn unused(&mut self, id: &str) -> String {
        let mut unused = id.to_owned();
        let mut number = 1;
        while !self.used.insert(unused.clone()) {
            number += 1;
            unused = format!("{id}_{number}");
        }
        unused
    }

    /// Returns the id of the open call that a response answers.
    pub(super) fn answered(&mut self, response: &ToolResponse) -> String {
        let found = self
            .open
            .iter()
            .position(|call| call.reference == response.reference && call.name == response.name);
        match (found, &response.reference) {
            (Some(position), _) => self.open.remove(position).id,
            (None, Some(reference)) => allowed(reference),
            (None, None) => allowed(&response.name),
        }
    }
}

fn allowed(reference: &str) -> String {
    let allow = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    reference.chars().map(allow).collect()
}

#[cfg(test)]
mod tests {
    use everturn_ai::ToolRequest;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_has_the_id_of_its_call() {
        let mut calls = Calls::default();
        let foreign = ToolRequest::new("a", json!({})).with_reference("fc:1/ü");
        let first = ToolRequest::new("b", json!({}));
        let second = ToolRequest::new("b", json!({}));

        let asked = [&foreign, &first, &second].map(|request| calls.asked(request));
        let answered =
            [&foreign, &first, &second].map(|request| calls.answered(&ToolResponse::to(request, 1)));

        assert_eq!(asked, ["fc_1__", "call_1", "call_1_2"]);
        assert_eq!(asked, answered);
    }
}
