//! What a provider gave for its own use: who signed a part, and the provider's ids.
//!
//! | metadata | holds |
//! |---|---|
//! | `thoughtSignature` | the opaque text of the wire, on the part it came with |
//! | `signedBy` | the provider that gave it |
//! | the provider's name | ids and other fields that go back beside the part |

use everturn_ai::{JsonObject, Part, metadata};
use serde_json::Value;

/// The metadata key that names who signed a part.
pub(crate) const SIGNED_BY: &str = "signedBy";

/// A signature, and under which key it was found.
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

/// Whether somebody other than `provider` signed a part. A part that nobody claims is trusted.
pub(crate) fn is_foreign(part: &Part, provider: &str) -> bool {
    let signer = part.metadata_entry(SIGNED_BY).and_then(Value::as_str);
    signer.is_some_and(|signer| signer != provider)
}

/// The signature of a part, unless there is none or it is somebody else's.
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

/// The metadata of a part that `provider` signed.
pub(crate) fn signed(signature: impl Into<String>, provider: &str) -> JsonObject {
    let mut entries = JsonObject::new();
    entries.insert(
        metadata::THOUGHT_SIGNATURE.to_owned(),
        Value::String(signature.into()),
    );
    entries.insert(SIGNED_BY.to_owned(), Value::String(provider.to_owned()));
    entries
}

/// What a provider keeps beside a part under its own name.
pub(crate) fn own<'a>(part: &'a Part, provider: &str) -> Option<&'a JsonObject> {
    part.metadata_entry(provider)?.as_object()
}
