//! How the database stores JSON text: long strings are cut out, large values are compressed, and every value is checked.
//!
//! A cut works on the text: the characters between the quotes of a long string literal, still escaped, are removed and
//! stored as a blob, and reading inserts them again at the same offset. So unknown kinds of values are treated like known
//! ones, and a text with cuts is still valid JSON.

use std::borrow::Cow;
use std::cell::RefCell;

use everturn_core::Error;
use zstd::bulk::{Compressor, Decompressor};

use crate::fault::{Fault, Outcome};

/// How deep a value may be nested: deeper than any value that clients can send, shallow enough for the parser's stack.
const MAX_DEPTH: usize = 256;

/// PostgreSQL's own limit on the size of a value. A compressed frame that claims to be larger is damaged.
const MAX_BYTES: u64 = 1 << 30;

/// The compression level. Higher levels save about one percent more on values of a few kilobytes.
const LEVEL: i32 = 1;

/// A text without its long strings, and those strings, each with its offset in the remaining text.
#[derive(Debug, PartialEq)]
pub(crate) struct Cut<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) pieces: Vec<(usize, &'a str)>,
}

/// The first byte of a stored value.
const PLAIN: u8 = 0;
const COMPRESSED: u8 = 1;

/// The length of the first byte and the checksum after it.
const HEADER: usize = 5;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// How values are encoded to be stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoder {
    pub(crate) blob_threshold: usize,
    pub(crate) compress_over: Option<usize>,
}

impl Encoder {
    /// Cuts the long strings out of a JSON text.
    pub(crate) fn cut<'a>(&self, text: &'a str) -> Cut<'a> {
        let mut cut = Cut {
            text: Cow::Borrowed(text),
            pieces: Vec::new(),
        };
        if text.len() < self.blob_threshold {
            return cut;
        }
        let (mut left, mut copied) = (String::new(), 0);
        for (start, end) in strings(text) {
            if end - start >= self.blob_threshold {
                left.push_str(&text[copied..start]);
                cut.pieces.push((left.len(), &text[start..end]));
                copied = end;
            }
        }
        if !cut.pieces.is_empty() {
            left.push_str(&text[copied..]);
            cut.text = Cow::Owned(left);
        }
        cut
    }

    /// Encodes a text: compressed if it is large enough and compression saves at least a tenth of it, with a checksum.
    pub(crate) fn pack(self, text: &str) -> Outcome<Vec<u8>> {
        if self.compress_over.is_some_and(|least| text.len() >= least) {
            let frame = compress(text)?;
            if frame.len() < text.len() - text.len() / 10 {
                return Ok(sealed(COMPRESSED, &frame));
            }
        }
        Ok(sealed(PLAIN, text.as_bytes()))
    }
}

fn compress(text: &str) -> Outcome<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|compressor| {
        let compressor = match compressor {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(LEVEL).map_err(Error::from)?),
        };
        Ok(compressor.compress(text.as_bytes()).map_err(Error::from)?)
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
        .ok_or_else(|| Fault::damaged("a body is cut short"))?;
    if crc32fast::hash(payload) != u32::from_le_bytes(*checksum) {
        return Err(Fault::damaged("a body is not what its checksum says"));
    }
    let bytes = match *kind {
        PLAIN => payload.to_vec(),
        COMPRESSED => decompress(payload)?,
        other => {
            return Err(Fault::damaged(format!(
                "a body is packed in a way ({other}) that this version does not know"
            )));
        }
    };
    String::from_utf8(bytes).map_err(|error| Fault::damaged(format!("a body is not UTF-8: {error}")))
}

fn decompress(frame: &[u8]) -> Outcome<Vec<u8>> {
    let damaged =
        |why: &dyn std::fmt::Display| Fault::damaged(format!("a compressed body cannot be read: {why}"));
    let size = match zstd::zstd_safe::get_frame_content_size(frame) {
        Ok(Some(size)) if size <= MAX_BYTES => usize::try_from(size).map_err(|error| damaged(&error))?,
        _ => return Err(damaged(&"its length is wrong")),
    };
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let decompressor = match decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(Error::from)?),
        };
        decompressor
            .decompress(frame, size)
            .map_err(|error| damaged(&error))
    })
}

/// Parses stored JSON that is nested up to [`MAX_DEPTH`]. Deeper JSON is reported as damaged, because it would exhaust the stack.
pub(crate) fn parse<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Outcome<T> {
    // Nearly every value is within the parser's own limit; the depth is counted only for the others.
    let shallow = serde_json::from_str(text);
    if shallow.is_ok() || nesting(text) > MAX_DEPTH {
        return shallow.map_err(unexpected);
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.disable_recursion_limit();
    T::deserialize(&mut deserializer).map_err(unexpected)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what errors are mapped with")]
fn unexpected(error: serde_json::Error) -> Fault {
    Fault::damaged(format!("a stored body cannot be parsed: {error}"))
}

/// Serialises a value, unless it is nested too deeply to be read back.
pub(crate) fn write<T: serde::Serialize>(value: &T) -> Outcome<String> {
    let text = serde_json::to_string(value).map_err(Error::from)?;
    if nesting(&text) > MAX_DEPTH {
        return Err(Error::invalid_argument(format!(
            "a value is nested deeper than {MAX_DEPTH} levels, which cannot be stored; flatten it"
        ))
        .into());
    }
    Ok(text)
}

/// Returns the start and end of each string literal in a JSON text, without the quotes.
fn strings(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + bytes.get(at..)?.iter().position(|byte| *byte == b'"')? + 1;
        let end = end_of_string(bytes, start);
        at = end + 1;
        Some((start, end))
    })
}

/// Returns the position of the closing quote of the string literal whose content begins at `at`.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(step) = bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        at += step;
        if bytes[at] == b'"' {
            return at;
        }
        at = (at + 2).min(bytes.len());
    }
    bytes.len()
}

fn nesting(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut deepest) = (0, 0_usize, 0);
    while let Some(step) = bytes[at..]
        .iter()
        .position(|byte| matches!(byte, b'"' | b'[' | b'{' | b']' | b'}'))
    {
        at += step;
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at + 1),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            _ => depth = depth.saturating_sub(1),
        }
        at = (at + 1).min(bytes.len());
    }
    deepest
}

/// Inserts the pieces that were cut out at their offsets.
pub(crate) fn splice(text: &str, pieces: &[(usize, String)]) -> Outcome<String> {
    let mut whole =
        String::with_capacity(text.len() + pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>());
    let mut copied = 0;
    for (offset, piece) in pieces {
        let between = text
            .get(copied..*offset)
            .ok_or_else(|| Fault::damaged("a blob belongs nowhere in its body"))?;
        whole.push_str(between);
        whole.push_str(piece);
        copied = *offset;
    }
    whole.push_str(&text[copied..]);
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn encoder(blob_threshold: usize) -> Encoder {
        Encoder {
            blob_threshold,
            compress_over: Some(64),
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![".{0,40}", "[\"\\\\\n]{0,30}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            text.prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((".{0,30}", inner), 0..5)
                    .prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_cut_and_packed_text_is_restored(value in value(), threshold in 1_usize..40) {
            let encoder = encoder(threshold);
            let text = write(&value).unwrap();

            let cut = encoder.cut(&text);
            let packed = encoder.pack(&cut.text).unwrap();

            let left = unpack(&packed).unwrap();
            prop_assert!(serde_json::from_str::<Value>(&left).is_ok(), "a text with cuts is still JSON");
            let pieces: Vec<_> = cut.pieces.iter().map(|(offset, piece)| (*offset, (*piece).to_owned())).collect();
            prop_assert_eq!(&splice(&left, &pieces).unwrap(), &text);
            prop_assert!(cut.pieces.iter().all(|(_, piece)| piece.len() >= threshold));
        }
    }

    #[test]
    fn nesting_counts_brackets_outside_strings_only() {
        assert_eq!(
            nesting(&json!({"a": [1, {"b": "[[[\"[["}], "c": []}).to_string()),
            3
        );
        assert_eq!(nesting("1"), 0);
    }

    #[test]
    fn a_value_too_deep_to_read_back_is_refused_when_it_is_written() {
        let deep = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));

        assert!(parse::<Value>(&write(&deep(MAX_DEPTH)).unwrap()).is_ok());
        assert!(matches!(write(&deep(MAX_DEPTH + 1)), Err(Fault::Refused(_))));
    }

    #[test]
    fn a_stored_text_that_is_too_deep_is_damaged() {
        let deep = "[".repeat(1_000_000);

        assert!(matches!(parse::<Value>(&deep), Err(Fault::Damaged(_))));
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        for text in ["leeks", &"leeks and potatoes ".repeat(40)] {
            let body = encoder(1_000_000).pack(text).unwrap();
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
