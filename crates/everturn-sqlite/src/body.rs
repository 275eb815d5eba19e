//! How the database stores JSON text: long strings are cut out, and large values are compressed.
//!
//! A cut works on the text: the characters between the quotes of a long string literal, still escaped, are removed and
//! stored as a blob, and reading inserts them again at the same offset. So unknown kinds of values are treated like known
//! ones, and a text with cuts is still valid JSON.

use std::borrow::Cow;

use everturn_core::{Error, Result};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use zstd::bulk::{Compressor, Decompressor};

use crate::fault::{Fault, Outcome};

/// How deep a value may be nested: deeper than any value that clients can send, shallow enough for the parser's stack.
const MAX_DEPTH: usize = 256;

/// SQLite's own limit on the size of a value. A compressed frame that claims to be larger is damaged.
const MAX_BYTES: u64 = 1_000_000_000;

/// The compression level. Higher levels save about one percent more on values of a few kilobytes.
const LEVEL: i32 = 1;

/// A text without its long strings, and those strings, each with its offset in the remaining text.
#[derive(Debug, PartialEq)]
pub(crate) struct Cut<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) pieces: Vec<(usize, &'a str)>,
}

/// A value as it is bound to a statement.
pub(crate) enum Packed {
    Plain(String),
    Compressed(Vec<u8>),
}

impl Packed {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Compressed(frame) => frame.len(),
        }
    }
}

impl ToSql for Packed {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Plain(text) => ValueRef::Text(text.as_bytes()),
            Self::Compressed(frame) => ValueRef::Blob(frame),
        }))
    }
}

/// Encodes values to be stored.
pub(crate) struct Encoder {
    blob_threshold: usize,
    compress_over: Option<usize>,
    compressor: Compressor<'static>,
}

impl Encoder {
    pub(crate) fn new(blob_threshold: usize, compress_over: Option<usize>) -> Result<Self> {
        Ok(Self {
            blob_threshold,
            compress_over,
            compressor: Compressor::new(LEVEL)?,
        })
    }

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

    /// Compresses a text if it is large enough and compression saves at least a tenth of it.
    pub(crate) fn pack<'a>(&mut self, text: impl Into<Cow<'a, str>>) -> Outcome<Packed> {
        let text = text.into();
        if self.compress_over.is_none_or(|least| text.len() < least) {
            return Ok(Packed::Plain(text.into_owned()));
        }
        let frame = self.compressor.compress(text.as_bytes()).map_err(Error::from)?;
        let smaller = frame.len() < text.len() - text.len() / 10;
        Ok(if smaller {
            Packed::Compressed(frame)
        } else {
            Packed::Plain(text.into_owned())
        })
    }
}

/// Decodes stored values.
pub(crate) struct Decoder {
    decompressor: Decompressor<'static>,
    buffer: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            decompressor: Decompressor::new()?,
            buffer: Vec::new(),
        })
    }

    /// Returns the text of a stored value, which is valid until the next one is decoded.
    pub(crate) fn text<'a>(&'a mut self, value: ValueRef<'a>) -> Outcome<&'a str> {
        let bytes = match value {
            ValueRef::Text(bytes) => bytes,
            ValueRef::Blob(frame) => self.decompress(frame)?,
            _ => return Err(Fault::damaged("a body is neither text nor compressed text")),
        };
        std::str::from_utf8(bytes).map_err(|error| Fault::damaged(format!("a body is not UTF-8: {error}")))
    }

    fn decompress(&mut self, frame: &[u8]) -> Outcome<&[u8]> {
        let damaged =
            |why: &dyn std::fmt::Display| Fault::damaged(format!("a compressed body cannot be read: {why}"));
        let size = match zstd::zstd_safe::get_frame_content_size(frame) {
            Ok(Some(size)) if size <= MAX_BYTES => usize::try_from(size).map_err(|error| damaged(&error))?,
            _ => return Err(damaged(&"its length is wrong")),
        };
        self.buffer.clear();
        self.buffer.reserve(size);
        self.decompressor
            .decompress_to_buffer(frame, &mut self.buffer)
            .map_err(|error| damaged(&error))?;
        Ok(&self.buffer)
    }
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

/// Returns how deep a JSON text is nested, or a number of at most [`MAX_DEPTH`] that is not less than that.
fn nesting(text: &str) -> usize {
    let bytes = text.as_bytes();
    // Counting goes through many bytes at a time, and few texts have so many brackets.
    let brackets = bytes.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if brackets <= MAX_DEPTH {
        return brackets;
    }
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
        Encoder::new(blob_threshold, Some(64)).unwrap()
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
            let mut encoder = encoder(threshold);
            let text = write(&value).unwrap();

            let cut = encoder.cut(&text);
            let packed = encoder.pack(&*cut.text).unwrap();

            let mut decoder = Decoder::new().unwrap();
            let stored = match &packed {
                Packed::Plain(text) => ValueRef::Text(text.as_bytes()),
                Packed::Compressed(frame) => ValueRef::Blob(frame),
            };
            let left = decoder.text(stored).unwrap();
            prop_assert!(serde_json::from_str::<Value>(left).is_ok(), "a text with cuts is still JSON");
            let pieces: Vec<_> = cut.pieces.iter().map(|(offset, piece)| (*offset, (*piece).to_owned())).collect();
            prop_assert_eq!(&splice(left, &pieces).unwrap(), &text);
            prop_assert!(cut.pieces.iter().all(|(_, piece)| piece.len() >= threshold));
        }
    }

    #[test]
    fn nesting_counts_brackets_outside_strings_only() {
        let brackets = "[[[\"[[".repeat(MAX_DEPTH);

        assert_eq!(
            nesting(&json!({"a": [1, {"b": brackets}], "c": []}).to_string()),
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
    fn a_damaged_frame_is_told_from_a_good_one() {
        let mut encoder = encoder(1_000_000);
        let text = "leeks and potatoes ".repeat(40);
        let Packed::Compressed(mut frame) = encoder.pack(&text).unwrap() else {
            panic!("repetition compresses")
        };
        frame.truncate(frame.len() - 3);

        let outcome = Decoder::new()
            .unwrap()
            .text(ValueRef::Blob(&frame))
            .map(str::to_owned);

        assert!(matches!(outcome, Err(Fault::Damaged(_))), "{outcome:?}");
    }
}
