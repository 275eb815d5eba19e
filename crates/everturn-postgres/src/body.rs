//! Encoded JSON text as a column of PostgreSQL: bytes that begin with the encoding and a checksum.

use std::borrow::Cow;

use everturn_sql::{Encoding, Fault, JsonColumn, Outcome, decompress};

/// PostgreSQL's own limit on the size of a value. A compressed frame that claims to be larger is damaged.
const MAX_BYTES: u64 = 1 << 30;

/// The first byte of a stored value.
const PLAIN: u8 = 0;
const COMPRESSED: u8 = 1;

/// The length of the first byte and the checksum after it.
const HEADER: usize = 5;

/// Encodes a text, with a checksum.
pub(crate) fn pack(encoding: Encoding, text: &str) -> Outcome<Vec<u8>> {
    Ok(match encoding.compress(text)? {
        Some(frame) => sealed(COMPRESSED, &frame),
        None => sealed(PLAIN, text.as_bytes()),
    })
}

fn sealed(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(HEADER + payload.len());
    body.push(kind);
    body.extend(crc32fast::hash(payload).to_le_bytes());
    body.extend(payload);
    body
}

/// Returns the text of a stored value.
pub(crate) fn unpack(body: &[u8]) -> Outcome<String> {
    let (kind, rest) = body
        .split_first()
        .ok_or_else(|| Fault::damaged("a body is empty"))?;
    let (checksum, payload) = rest
        .split_first_chunk::<4>()
        .ok_or_else(|| Fault::damaged("a body is truncated"))?;
    if crc32fast::hash(payload) != u32::from_le_bytes(*checksum) {
        return Err(Fault::damaged("a body does not match its checksum"));
    }
    let bytes = match *kind {
        PLAIN => payload.to_vec(),
        COMPRESSED => {
            let mut bytes = Vec::new();
            decompress(payload, MAX_BYTES, &mut bytes)?;
            bytes
        }
        other => {
            return Err(Fault::damaged(format!(
                "a body has an unknown encoding ({other})"
            )));
        }
    };
    String::from_utf8(bytes).map_err(|error| Fault::damaged(format!("a body is not UTF-8: {error}")))
}

/// A packed JSON column.
pub(crate) struct Packed<'a>(pub(crate) Cow<'a, [u8]>);

impl JsonColumn for Packed<'_> {
    fn text(&self) -> Outcome<Cow<'_, str>> {
        unpack(&self.0).map(Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_is_noticed() {
        for text in ["leeks", &"leeks and potatoes ".repeat(40)] {
            let body = pack(Encoding::default(), text).unwrap();
            for index in 0..body.len() {
                let mut changed = body.clone();
                changed[index] ^= 0x10;
                assert!(matches!(unpack(&changed), Err(Fault::Damaged(_))), "byte {index}");
            }
            assert!(matches!(unpack(&body[..body.len() - 1]), Err(Fault::Damaged(_))));
            assert!(matches!(unpack(&body[..3]), Err(Fault::Damaged(_))));
        }
    }
}
