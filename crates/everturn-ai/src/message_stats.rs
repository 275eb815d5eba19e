//! Statistics of messages, kept as running sums so that they are available for a long history in constant
//! time.

use std::ops::{Add, AddAssign, Sub};

use serde_json::Value;

use crate::{JsonObject, Media, Part, PartKind, Role, metadata};

/// The bytes of a message's JSON besides its parts.
const PER_MESSAGE: u64 = 32;

/// The bytes of a part's JSON besides its content.
const PER_PART: u64 = 16;

/// The approximate number of bytes of text per token.
const BYTES_PER_TOKEN: u64 = 4;

/// The tokens that mark the start and the role of a message.
const TOKENS_PER_MESSAGE: u64 = 4;

/// The approximate tokens of an image or another file. Providers count them by its size, which its URL does
/// not contain.
const TOKENS_PER_MEDIA: u64 = 1_500;

/// Statistics of a sequence of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageStats {
    /// The approximate size of the messages as JSON, in bytes.
    pub bytes: u64,
    /// Characters of all text parts.
    pub characters: u64,
    /// Image parts.
    pub images: u32,
    /// Video parts.
    pub videos: u32,
    /// Audio parts.
    pub audio_files: u32,
    /// The approximate number of tokens of the messages.
    pub tokens: u64,
    /// The number of [`MessageStats::tokens`] that are outputs of tools.
    pub tool_output_tokens: u64,
    features: [u32; Feature::COUNT],
}

/// A property of a message that generation has to find in a whole conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// The message is a system message.
    System,
    /// The message has a media part.
    Media,
    /// The message has a link to a resource.
    Resource,
    /// The message has output format instructions.
    OutputInstructions,
    /// The message has a placeholder for output format instructions.
    PendingOutput,
    /// The message has tool requests.
    ToolRequest,
    /// The message has answers of tools.
    ToolResponse,
    /// The message is a user's, and no part of a prompt.
    User,
    /// The message belongs to every request: it is a system message or part of a prompt.
    Pinned,
    /// The message is a model's and has the [summary](metadata::SUMMARY) of earlier messages.
    Summary,
}

impl Feature {
    const COUNT: usize = 10;
}

impl MessageStats {
    /// Returns how many of the messages have a feature.
    pub fn messages_with(&self, feature: Feature) -> u32 {
        self.features[feature as usize]
    }

    /// Returns the statistics of content that belongs to no message.
    pub fn of_content(content: &[Part]) -> Self {
        let mut stats = Self::default();
        for part in content {
            stats.add_part(part);
        }
        stats
    }

    /// Returns the approximate size of a value as JSON, in bytes. Walks through the value.
    pub fn bytes_of_json(value: &Value) -> u64 {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 8,
            Value::String(text) => text.len() as u64 + 2,
            Value::Array(items) => {
                2 + items
                    .iter()
                    .map(|item| 1 + Self::bytes_of_json(item))
                    .sum::<u64>()
            }
            Value::Object(fields) => 2 + bytes_of_object(fields),
        }
    }

    pub(crate) fn of(
        role: Role,
        content: &[Part],
        metadata: Option<&JsonObject>,
        extra: Option<&JsonObject>,
    ) -> Self {
        let mut stats = Self {
            bytes: PER_MESSAGE + bytes_of_optional(metadata) + bytes_of_optional(extra),
            tokens: TOKENS_PER_MESSAGE,
            ..Self::default()
        };
        if role == Role::System {
            stats.mark(Feature::System);
        }
        for part in content {
            stats.add_part(part);
        }
        stats.note_metadata(role, metadata)
    }

    /// Returns the statistics of a message after its metadata changed, which had `before` bytes.
    pub(crate) fn with_metadata(mut self, role: Role, before: u64, metadata: &JsonObject) -> Self {
        self.bytes = self.bytes - before + bytes_of_object(metadata);
        self.note_metadata(role, Some(metadata))
    }

    fn note_metadata(mut self, role: Role, metadata: Option<&JsonObject>) -> Self {
        let has = |key| metadata.is_some_and(|metadata| metadata.contains_key(key));
        let is_prompt = has(metadata::PROMPT);
        let is_user = role == Role::User && !is_prompt;
        self.features[Feature::User as usize] = is_user.into();
        self.features[Feature::Pinned as usize] = (is_prompt || role == Role::System).into();
        // Clients write users' messages, so only a model's message is trusted.
        self.features[Feature::Summary as usize] = (role == Role::Model && has(metadata::SUMMARY)).into();
        self
    }

    fn add_part(&mut self, part: &Part) {
        self.bytes += bytes_of_part(part);
        self.tokens += tokens_of_part(part);
        if let Some(text) = part.as_text() {
            self.characters += text.chars().count() as u64;
        }
        if let Some(media) = part.as_media() {
            self.mark(Feature::Media);
            self.add_media(media);
        }
        if part.as_resource().is_some() {
            self.mark(Feature::Resource);
        }
        if part.as_tool_request().is_some() {
            self.mark(Feature::ToolRequest);
        }
        if part.as_tool_response().is_some() {
            self.mark(Feature::ToolResponse);
            self.tool_output_tokens += tokens_of_part(part);
        }
        if part.purpose() == Some(metadata::PURPOSE_OUTPUT) {
            self.mark(if part.is_pending() {
                Feature::PendingOutput
            } else {
                Feature::OutputInstructions
            });
        }
    }

    fn add_media(&mut self, media: &Media) {
        match media.mime_type().and_then(|mime| mime.split('/').next()) {
            Some("image") => self.images += 1,
            Some("video") => self.videos += 1,
            Some("audio") => self.audio_files += 1,
            _ => {}
        }
    }

    /// Counts a feature once within one message.
    fn mark(&mut self, feature: Feature) {
        self.features[feature as usize] = 1;
    }
}

/// The approximate size of an object's fields as JSON.
pub(crate) fn bytes_of_object(fields: &JsonObject) -> u64 {
    fields
        .iter()
        .map(|(key, value)| key.len() as u64 + 4 + MessageStats::bytes_of_json(value))
        .sum()
}

fn bytes_of_optional(object: Option<&JsonObject>) -> u64 {
    object.map_or(0, bytes_of_object)
}

fn bytes_of_part(part: &Part) -> u64 {
    let bytes_of = |value: &Option<Value>| value.as_ref().map_or(0, MessageStats::bytes_of_json);
    let bytes_of_text = |text: &Option<String>| text.as_ref().map_or(0, |text| text.len() as u64);
    let own = match part.kind() {
        PartKind::Text(text) | PartKind::Reasoning(text) => text.len() as u64,
        PartKind::Media(media) => {
            media.url.len() as u64 + bytes_of_text(&media.content_type) + bytes_of_object(&media.extra)
        }
        PartKind::ToolRequest(request) => {
            request.name.len() as u64
                + bytes_of_text(&request.reference)
                + bytes_of(&request.input)
                + bytes_of_object(&request.extra)
        }
        PartKind::ToolResponse(response) => {
            let content: u64 = response.content.iter().map(bytes_of_part).sum();
            response.name.len() as u64
                + bytes_of_text(&response.reference)
                + bytes_of(&response.output)
                + content
                + bytes_of_object(&response.extra)
        }
        PartKind::Data(data) => MessageStats::bytes_of_json(data),
        PartKind::Custom(fields) | PartKind::Unknown(fields) => bytes_of_object(fields),
        PartKind::Resource(link) => link.uri.len() as u64 + bytes_of_object(&link.extra),
    };
    PER_PART + own + bytes_of_optional(part.metadata()) + bytes_of_optional(part.extra())
}

/// The approximate number of tokens of a part. Metadata is not counted, because most of it is not sent.
fn tokens_of_part(part: &Part) -> u64 {
    let bytes_of = |value: &Option<Value>| value.as_ref().map_or(0, MessageStats::bytes_of_json);
    let bytes = match part.kind() {
        PartKind::Text(text) | PartKind::Reasoning(text) => text.len() as u64,
        PartKind::Media(_) => return TOKENS_PER_MEDIA,
        PartKind::ToolRequest(request) => request.name.len() as u64 + bytes_of(&request.input),
        PartKind::ToolResponse(response) => {
            let content: u64 = response.content.iter().map(tokens_of_part).sum();
            let own = response.name.len() as u64 + bytes_of(&response.output);
            return own.div_ceil(BYTES_PER_TOKEN) + content;
        }
        PartKind::Data(data) => MessageStats::bytes_of_json(data),
        PartKind::Custom(fields) | PartKind::Unknown(fields) => bytes_of_object(fields),
        PartKind::Resource(link) => link.uri.len() as u64,
    };
    bytes.div_ceil(BYTES_PER_TOKEN)
}

impl Add for MessageStats {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for MessageStats {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.characters += other.characters;
        self.images += other.images;
        self.videos += other.videos;
        self.audio_files += other.audio_files;
        self.tokens += other.tokens;
        self.tool_output_tokens += other.tool_output_tokens;
        for (mine, theirs) in self.features.iter_mut().zip(other.features) {
            *mine += theirs;
        }
    }
}

/// Subtracts the statistics of a prefix from those of the whole sequence.
impl Sub for MessageStats {
    type Output = Self;

    fn sub(mut self, prefix: Self) -> Self {
        self.bytes -= prefix.bytes;
        self.characters -= prefix.characters;
        self.images -= prefix.images;
        self.videos -= prefix.videos;
        self.audio_files -= prefix.audio_files;
        self.tokens -= prefix.tokens;
        self.tool_output_tokens -= prefix.tool_output_tokens;
        for (mine, theirs) in self.features.iter_mut().zip(prefix.features) {
            *mine -= theirs;
        }
        self
    }
}

impl std::iter::Sum for MessageStats {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Message;

    #[test]
    fn every_field_of_a_message_counts() {
        let long = "x".repeat(10_000);
        let parts = [
            json!({"text": "a", "note": long}),
            json!({"text": "a", "metadata": {"note": long}}),
            json!({"media": {"url": "a", "note": long}}),
            json!({"media": {"url": "a", "contentType": long}}),
            json!({"toolRequest": {"name": "a", "note": long}}),
            json!({"toolRequest": {"name": "a", "ref": long}}),
            json!({"toolResponse": {"name": "a", "note": long}}),
            json!({"toolResponse": {"name": "a", "ref": long}}),
            json!({"toolResponse": {"name": "a", "content": [{"text": "a", "note": long}]}}),
            json!({"resource": {"uri": "a", "note": long}}),
        ];
        let mut messages: Vec<_> = parts
            .into_iter()
            .map(|part| json!({"role": "user", "content": [part]}))
            .collect();
        messages.push(json!({"role": "user", "content": [], "metadata": {"note": long}}));
        messages.push(json!({"role": "user", "content": [], "note": long}));

        for json in messages {
            let message: Message = serde_json::from_value(json.clone()).unwrap();
            let edited = message
                .clone()
                .with_part("b")
                .with_content(message.content().to_vec());

            assert!(message.stats().bytes > 10_000, "{}", &json.to_string()[..80]);
            assert_eq!(edited.stats(), message.stats());
        }
    }

    #[test]
    fn metadata_that_is_changed_counts_as_it_is() {
        let message = Message::user("a");
        let with_note = message.clone().with_metadata_entry("note", "x".repeat(10_000));

        assert!(with_note.stats().bytes > 10_000);
        assert_eq!(
            with_note.clone().with_metadata_entry("note", "x").stats().bytes,
            with_note.stats().bytes - 9_999
        );
        assert_eq!(with_note.without_metadata_entry("note").stats(), message.stats());
    }
}
