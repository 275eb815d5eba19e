//! Conversion between MCP content and message parts.

use everturn_ai::{Media, Message, Part, PartKind, metadata};
use rmcp::model::{ContentBlock, PromptMessage, Resource, ResourceContents, Role};
use serde_json::{Value, json};

/// Converts MCP content to a part.
pub(crate) fn part(content: ContentBlock) -> Part {
    match content {
        ContentBlock::Text(text) => Part::text(text.text),
        ContentBlock::Image(image) => media(&image.mime_type, &image.data),
        ContentBlock::Audio(audio) => media(&audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => resource_part(embedded.resource),
        ContentBlock::ResourceLink(link) => Part::resource(link.uri),
        other => Part::data(serde_json::to_value(other).unwrap_or_default()),
    }
}

/// Converts the content of a resource to a part with its URI.
pub(crate) fn resource_part(contents: ResourceContents) -> Part {
    let (uri, part) = match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => (uri, Part::text(text)),
        ResourceContents::BlobResourceContents {
            uri, mime_type, blob, ..
        } => {
            let mime_type = mime_type.as_deref().unwrap_or("application/octet-stream");
            (uri, media(mime_type, &blob))
        }
        other => return Part::data(serde_json::to_value(other).unwrap_or_default()),
    };
    part.with_metadata_entry(metadata::RESOURCE, json!({ "uri": uri }))
}

fn media(mime_type: &str, base64: &str) -> Part {
    Media::new(format!("data:{mime_type};base64,{base64}"))
        .with_content_type(mime_type)
        .into()
}

/// Converts a message of an MCP prompt.
pub(crate) fn message(message: PromptMessage) -> Message {
    let content = part(message.content);
    match message.role {
        Role::Assistant => Message::model(content),
        Role::User => Message::user(content),
    }
}

/// Converts a message to messages of an MCP prompt, one per part: the protocol has no system role, and one
/// piece of content per message.
pub(crate) fn prompt_messages(message: &Message) -> impl Iterator<Item = PromptMessage> {
    let role = match message.role() {
        everturn_ai::Role::Model => Role::Assistant,
        _ => Role::User,
    };
    message
        .content()
        .iter()
        .filter_map(block)
        .map(move |block| PromptMessage::new(role.clone(), block))
}

/// Converts a part to MCP content; `None` for parts without a form in the protocol, such as reasoning.
pub(crate) fn block(part: &Part) -> Option<ContentBlock> {
    match part.kind() {
        PartKind::Text(text) => Some(ContentBlock::text(text.as_str())),
        PartKind::Media(media) => Some(media_block(media)),
        PartKind::Resource(link) => Some(ContentBlock::resource_link(Resource::new(
            link.uri.as_str(),
            link.uri.as_str(),
        ))),
        PartKind::Data(value) => Some(ContentBlock::text(value.to_string())),
        _ => None,
    }
}

fn media_block(media: &Media) -> ContentBlock {
    let mime_type = media.mime_type().unwrap_or("application/octet-stream");
    let Some(data) = base64_of(&media.url) else {
        let name = media.url.as_str();
        return ContentBlock::resource_link(Resource::new(name, name).with_mime_type(mime_type));
    };
    if mime_type.starts_with("image/") {
        ContentBlock::image(data, mime_type)
    } else if mime_type.starts_with("audio/") {
        ContentBlock::audio(data, mime_type)
    } else {
        let name = format!("data:{mime_type}");
        ContentBlock::resource(ResourceContents::blob(data, name).with_mime_type(mime_type))
    }
}

/// Converts a part to the content of a resource.
pub(crate) fn resource_contents(uri: &str, part: &Part) -> Option<ResourceContents> {
    match part.kind() {
        PartKind::Text(text) => Some(ResourceContents::text(text.as_str(), uri)),
        PartKind::Media(media) => {
            let blob = ResourceContents::blob(base64_of(&media.url)?, uri);
            Some(match media.mime_type() {
                Some(mime_type) => blob.with_mime_type(mime_type),
                None => blob,
            })
        }
        PartKind::Data(value) => {
            let text = ResourceContents::text(value.to_string(), uri);
            Some(text.with_mime_type("application/json"))
        }
        _ => None,
    }
}

/// Returns the base64 text of a data URL.
fn base64_of(url: &str) -> Option<&str> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    head.ends_with(";base64").then_some(data)
}

/// Returns the joined texts of a result, and its other content.
pub(crate) fn text_and_rest(content: Vec<ContentBlock>) -> (Option<String>, Vec<Part>) {
    let mut texts = Vec::new();
    let mut rest = Vec::new();
    for block in content {
        match block {
            ContentBlock::Text(text) => texts.push(text.text),
            other => rest.push(part(other)),
        }
    }
    ((!texts.is_empty()).then(|| texts.join("\n")), rest)
}

/// Parses text as a JSON object or array; any other text is a string.
pub(crate) fn read_text(text: String) -> Value {
    let looks_like_json = text.trim_start().starts_with(['{', '[']);
    let parsed = looks_like_json
        .then(|| serde_json::from_str(&text).ok())
        .flatten();
    parsed.unwrap_or(Value::String(text))
}
