//! Parsing the inside of a JSON string.

use std::str::Chars;

/// Parses a string up to its closing quote. Returns its text, the number of bytes read, and whether there was
/// a closing quote.
///
/// An escape that is truncated by the end of the text is dropped.
pub(super) fn unescape(rest: &str, quote: char) -> (String, usize, bool) {
    let mut string = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match escape(&mut chars) {
                Some(Escape::Char(c)) => string.push(c),
                Some(Escape::Nothing) => {}
                None => return (string, rest.len(), false),
            },
            c if c == quote => return (string, rest.len() - chars.as_str().len(), true),
            c => string.push(c),
        }
    }
    (string, rest.len(), false)
}

enum Escape {
    Char(char),
    Nothing,
}

/// Parses the escape after a backslash; returns `None` if the text ends first.
fn escape(chars: &mut Chars<'_>) -> Option<Escape> {
    Some(Escape::Char(match chars.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'v' => '\u{b}',
        '0' => '\0',
        '\n' => return Some(Escape::Nothing),
        'x' => code_point(hexadecimal(chars, 2)?),
        'u' => unicode(chars)?,
        other => other,
    }))
}

/// Parses a `\u` escape, and the second half of a surrogate pair after a first half.
fn unicode(chars: &mut Chars<'_>) -> Option<char> {
    let first = hexadecimal(chars, 4)?;
    if !matches!(first, Some(0xD800..=0xDBFF)) {
        return Some(code_point(first));
    }
    let mut ahead = chars.clone();
    if ahead.next()? != '\\' || ahead.next()? != 'u' {
        return Some(char::REPLACEMENT_CHARACTER);
    }
    let second = hexadecimal(&mut ahead, 4)?;
    match (first, second) {
        (Some(high), Some(low @ 0xDC00..=0xDFFF)) => {
            *chars = ahead;
            Some(code_point(Some(
                0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00),
            )))
        }
        _ => Some(char::REPLACEMENT_CHARACTER),
    }
}

/// Parses hexadecimal digits: returns `None` if the text ends first, and `Some(None)` if another character
/// comes, which is left for the text.
#[expect(clippy::option_option, reason = "cut off and wrong are different outcomes")]
fn hexadecimal(chars: &mut Chars<'_>, digits: usize) -> Option<Option<u32>> {
    let mut ahead = chars.clone();
    let mut value = 0;
    for _ in 0..digits {
        match ahead.next()?.to_digit(16) {
            Some(digit) => value = value * 16 + digit,
            None => return Some(None),
        }
    }
    *chars = ahead;
    Some(Some(value))
}

fn code_point(value: Option<u32>) -> char {
    value
        .and_then(char::from_u32)
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}
