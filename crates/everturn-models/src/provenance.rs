//! A provider's own data on a part: signatures and ids.
//!
//! A request restores the data of its provider and leaves out that of all others, so a conversation can
//! change its model at any turn. Stores keep parts whole, including this data.
//!
//! | metadata | holds |
//! |---|---|
//! | `thoughtSignature` | the opaque text of the wire, on its part |
//! | `signedBy` | the provider that signed it |
//! | the provider's name | ids and other fields that are sent back with the part |

use everturn_ai::{JsonObject, Part, metadata};
use serde_json::Value;

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
