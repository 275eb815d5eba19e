//! JSON text: parsing, serialising, and the strings that are stored apart.
//!
//! A cut works on the text. The characters between the quotes of a long string literal, still escaped, are
//! removed and stored as a blob; reading inserts them again at the same offset. The encoding therefore does
//! not depend on the kind of a value, and a text with cuts is still valid JSON.

use everturn_core::Error;
use sha2::{Digest, Sha256};

use crate::{Fault, Outcome};

/// The greatest nesting of a value: deeper than any value that clients can send, shallow enough for the
/// parser's stack.
const MAX_DEPTH: usize = 256;

/// Returns the hash under which a long string is stored.
pub fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Parses stored JSON.
///
/// # Errors
/// [`Fault::Damaged`] for invalid JSON, and for JSON that is nested deeper than 256 levels, which would
/// exhaust the stack.
pub fn parse<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Outcome<T> {
    // Nearly every value is within the parser's own limit; the depth is counted only for the others.
    let shallow = serde_json::from_str(text);
    if shallow.is_ok() || nesting(text) > MAX_DEPTH {
        return shallow.map_err(unexpected);
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.disable_recursion_limit();
    T::deserialize(&mut deserializer).map_err(unexpected)
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err needs")]
fn unexpected(error: serde_json::Error) -> Fault {
    Fault::damaged(format!("a stored body cannot be parsed: {error}"))
}

/// Serialises a value.
///
/// # Errors
/// [`Fault::Refused`] for a value that is nested too deeply to be parsed again.
pub fn write<T: serde::Serialize>(value: &T) -> Outcome<String> {
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
pub(crate) fn strings(text: &str) -> impl Iterator<Item = (usize, usize)> {
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

/// Returns how deep a JSON text is nested, or an upper bound of at most [`MAX_DEPTH`].
fn nesting(text: &str) -> usize {
    let bytes = text.as_bytes();
    // Counting is vectorised, and few texts have so many brackets.
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

/// Inserts the pieces that were cut out of a text at their offsets.
///
/// # Errors
/// [`Fault::Damaged`] if an offset lies outside of the text.
pub fn splice(text: &str, pieces: &[(usize, String)]) -> Outcome<String> {
    let mut whole =
        String::with_capacity(text.len() + pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>());
    let mut copied = 0;
    for (offset, piece) in pieces {
        let between = text
            .get(copied..*offset)
            .ok_or_else(|| Fault::damaged("the offset of a blob is outside of its body"))?;
        whole.push_str(between);
        whole.push_str(piece);
        copied = *offset;
    }
    whole.push_str(&text[copied..]);
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
}
