//! Content in the forms that several protocols share, and warnings about what is left out.

use std::borrow::Cow;
use std::collections::BTreeSet;

use everturn_ai::{JsonObject, Media, Part, PartKind, ToolResponse, metadata};
use parking_lot::Mutex;
use serde_json::Value;

/// The placeholder for the user's first message, if there is none and the provider requires one.
pub(crate) const NO_MESSAGE: &str = "(no message)";

/// Returns the output of a tool as text: a text unchanged, other values as compact JSON, a missing one as
/// empty.
pub(crate) fn output_text(response: &ToolResponse) -> Cow<'_, str> {
    match &response.output {
        None | Some(Value::Null) => Cow::Borrowed(""),
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(value) => Cow::Owned(value.to_string()),
    }
}

/// Media inside its URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inline<'a> {
    /// The MIME type; empty if it is missing.
    pub(crate) mime_type: &'a str,
    /// The content, in base64.
    pub(crate) base64: Cow<'a, str>,
}

/// Returns the content of a `data:` URL; `None` for any other URL.
pub(crate) fn inline(media: &Media) -> Option<Inline<'_>> {
    let (head, content) = media.url.strip_prefix("data:")?.split_once(',')?;
    let base64 = if head.ends_with(";base64") {
        Cow::Borrowed(content)
    } else {
        use base64::Engine as _;
        let content: Vec<u8> = percent_encoding::percent_decode_str(content).collect();
        Cow::Owned(base64::engine::general_purpose::STANDARD.encode(content))
    };
    Some(Inline {
        mime_type: media.mime_type().unwrap_or_default(),
        base64,
    })
}

/// Logs a warning about a part that is not sent to a provider: a part of another provider, or of an
/// unsupported kind. Each kind is logged once. Reasoning of other providers is never sent, so it causes no
/// warning.
pub(crate) fn warn_left_out(part: &Part, provider: &str) {
    let kind = match part.kind() {
        PartKind::Text(_) | PartKind::Reasoning(_) | PartKind::Data(_) => return,
        PartKind::Custom(custom) => custom.keys().next().map_or("custom", String::as_str),
        PartKind::Media(_) => "media",
        PartKind::Resource(_) => "resource",
        PartKind::ToolRequest(_) => "toolRequest",
        PartKind::ToolResponse(_) => "toolResponse",
        _ => "unknown",
    };
    if is_new(format!("left out: {provider} {kind}")) {
        tracing::warn!(
            provider,
            kind,
            "parts of the conversation that this provider does not take are left out"
        );
    }
}

/// Converts a name from camel case to snake case.
pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

/// Returns whether a MIME type is an image type.
pub(crate) fn is_image(mime_type: &str) -> bool {
    mime_type.starts_with("image/")
}

/// The number of causes that are remembered. Further ones are not logged.
const MAX_CAUSES: usize = 1_000;

static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns whether a cause is new to this process, and remembers it.
pub(crate) fn is_new(cause: String) -> bool {
    let mut warned = WARNED.lock();
    warned.len() < MAX_CAUSES && warned.insert(cause)
}

/// The metadata key of the provider that signed a part.
pub(crate) const SIGNED_BY: &str = "signedBy";

/// A signature, with the key under which it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signature<'a> {
    /// Under `thoughtSignature`: exactly as on the wire.
    Exact(&'a str),
    /// Under `signature`, as Genkit's Go runtime writes it: base64 of the signature's bytes.
    Encoded(&'a str),
}

impl<'a> Signature<'a> {
    /// The text as it was stored.
    pub(crate) fn text(self) -> &'a str {
        match self {
            Self::Exact(text) | Self::Encoded(text) => text,
        }
    }
}

/// Returns whether another provider than `provider` signed a part. A part without a signer is trusted.
pub(crate) fn is_foreign(part: &Part, provider: &str) -> bool {
    let signer = part.metadata_entry(SIGNED_BY).and_then(Value::as_str);
    signer.is_some_and(|signer| signer != provider)
}

/// Returns the signature of a part, unless there is none or it is another provider's.
pub(crate) fn signature<'a>(part: &'a Part, provider: &str) -> Option<Signature<'a>> {
    if is_foreign(part, provider) {
        return None;
    }
    let text = |key| {
        part.metadata_entry(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    text(metadata::THOUGHT_SIGNATURE)
        .map(Signature::Exact)
        .or_else(|| text(metadata::SIGNATURE).map(Signature::Encoded))
}

/// Returns the metadata of a part that `provider` signed.
pub(crate) fn signed(signature: impl Into<String>, provider: &str) -> JsonObject {
    let mut entries = JsonObject::new();
    entries.insert(
        metadata::THOUGHT_SIGNATURE.to_owned(),
        Value::String(signature.into()),
    );
    entries.insert(SIGNED_BY.to_owned(), Value::String(provider.to_owned()));
    entries
}

/// Returns the data that a provider keeps on a part under its own name.
pub(crate) fn own<'a>(part: &'a Part, provider: &str) -> Option<&'a JsonObject> {
    part.metadata_entry(provider)?.as_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_urls_are_read_in_both_encodings() {
        let base64 = Media::new("data:image/png;base64,QUI=");
        let text = Media::new("data:text/plain,A%42%");

        let image = inline(&base64).unwrap();
        assert_eq!((image.mime_type, &*image.base64), ("image/png", "QUI="));
        assert_eq!(inline(&text).unwrap().base64, "QUIl");
        assert_eq!(inline(&Media::new("https://a/b.png")), None);
    }

    #[test]
    fn a_cause_is_new_once() {
        assert!(is_new("a test".to_owned()));
        assert!(!is_new("a test".to_owned()));
        assert!(is_new("another test".to_owned()));
    }
}
