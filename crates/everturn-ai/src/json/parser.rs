//! A lenient, truncation-tolerant JSON parser.
//!
//! Beyond JSON it reads what JSON5 allows (single quotes, bare keys, comments, stray commas, hexadecimal and
//! abbreviated numbers), Python's `True`, `False` and `None`, line breaks inside strings, and members without
//! a comma between them.
//!
//! When the text ends too early or stops being JSON, the parser returns the value so far: open containers are
//! closed, a truncated string is kept, a truncated keyword completed; a key without a value and a number that
//! may continue are dropped.

use std::str::Chars;

use serde_json::{Number, Value};

use crate::JsonObject;

/// The depth that `serde_json` reads. Dropping and printing a value recurse, so depth must be bounded.
const MAX_DEPTH: usize = 127;

/// The reason why the parser stopped before the end of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The text ended.
    Truncated,
    /// The text is not JSON from here on, even leniently.
    Malformed,
}

pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
    stop: Option<Stop>,
}

impl<'a> Parser<'a> {
    /// Creates a parser at a byte position, which must be on a character boundary.
    pub(super) fn new(text: &'a str, at: usize) -> Self {
        Self { text, at, stop: None }
    }

    /// Returns the byte position that the parser has reached.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Returns why the parser ended early, or `None` if it read a whole value.
    pub(super) fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// Parses one value, or the available part of it. Returns `None` if no part of it can be kept.
    pub(super) fn value(&mut self) -> Option<Value> {
        self.value_at(0)
    }

    /// Returns the next character that is neither white space nor part of a comment.
    pub(super) fn peek_token(&mut self) -> Option<char> {
        loop {
            self.skip_while(|c| c.is_whitespace() || c == '\u{feff}');
            let rest = self.rest();
            if rest.starts_with("//") {
                self.skip_while(|c| c != '\n');
            } else if let Some(comment) = rest.strip_prefix("/*") {
                // The four bytes are both delimiters; an unclosed comment hides the rest.
                self.at += comment.find("*/").map_or(rest.len(), |length| length + 4);
            } else {
                return rest.chars().next();
            }
        }
    }

    /// Skips a character that [`peek_token`](Self::peek_token) returned.
    pub(super) fn pass(&mut self, token: char) {
        self.at += token.len_utf8();
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn value_at(&mut self, depth: usize) -> Option<Value> {
        match self.peek_token() {
            Some('{' | '[') if depth >= MAX_DEPTH => self.fail(),
            Some('{') => Some(Value::Object(self.object(depth))),
            Some('[') => Some(Value::Array(self.array(depth))),
            Some(quote @ ('"' | '\'')) => Some(Value::String(self.string(quote))),
            Some(c) if c.is_ascii_digit() || matches!(c, '-' | '+' | '.') => self.number(),
            Some(c) if c.is_alphabetic() => self.keyword(),
            _ => self.fail(),
        }
    }

    fn object(&mut self, depth: usize) -> JsonObject {
        let mut object = JsonObject::new();
        self.pass('{');
        while self.member_follows('}') {
            let Some(key) = self.key() else { break };
            if self.peek_token() != Some(':') {
                self.stop_here();
                break;
            }
            self.pass(':');
            // A key whose value was truncated is dropped, because its value is not known.
            if let Some(value) = self.value_at(depth + 1) {
                object.insert(key, value);
            }
            self.separator('}', |next| matches!(next, '"' | '\''));
        }
        object
    }

    fn array(&mut self, depth: usize) -> Vec<Value> {
        let mut array = Vec::new();
        self.pass('[');
        while self.member_follows(']') {
            array.extend(self.value_at(depth + 1));
            self.separator(']', |next| matches!(next, '"' | '\'' | '{' | '['));
        }
        array
    }

    /// Returns whether another member follows; skips the closing bracket if not.
    fn member_follows(&mut self, close: char) -> bool {
        while self.stop.is_none() {
            match self.peek_token() {
                Some(',') => self.pass(','),
                Some(token) if token == close => {
                    self.pass(close);
                    return false;
                }
                Some(_) => return true,
                None => self.stop_here(),
            }
        }
        false
    }

    /// Skips the separator after a member: a comma, the end, or nothing before the start of the next member.
    fn separator(&mut self, close: char, begins_member: impl Fn(char) -> bool) {
        if self.stop.is_some() {
            return;
        }
        match self.peek_token() {
            Some(',') => self.pass(','),
            Some(token) if token == close || begins_member(token) => {}
            _ => self.stop_here(),
        }
    }

    fn key(&mut self) -> Option<String> {
        match self.peek_token() {
            Some(quote @ ('"' | '\'')) => {
                let key = self.string(quote);
                // A truncated key could still become another one.
                self.stop.is_none().then_some(key)
            }
            Some(c) if is_bare(c) => {
                let key = self.skip_while(is_bare).to_owned();
                // A bare key at the very end could still grow.
                if self.rest().is_empty() {
                    self.fail()
                } else {
                    Some(key)
                }
            }
            _ => self.fail(),
        }
    }

    fn string(&mut self, quote: char) -> String {
        self.pass(quote);
        let (string, length, closed) = unescape(self.rest(), quote);
        self.at += length;
        if !closed {
            self.stop = Some(Stop::Truncated);
        }
        string
    }

    fn number(&mut self) -> Option<Value> {
        let start = self.at;
        let digits = self.skip_while(|c| c.is_alphanumeric() || matches!(c, '-' | '+' | '.'));
        // A number at the very end could still get more digits, so it is not reported yet.
        if self.rest().is_empty() {
            return self.fail();
        }
        number(digits).map(Value::Number).or_else(|| {
            // Reset to the start, so that the caller gets the position where the text stopped being JSON.
            self.at = start;
            self.fail()
        })
    }

    fn keyword(&mut self) -> Option<Value> {
        const KEYWORDS: [(&str, Option<bool>); 8] = [
            ("true", Some(true)),
            ("false", Some(false)),
            ("null", None),
            ("True", Some(true)),
            ("False", Some(false)),
            ("None", None),
            ("undefined", None),
            ("NaN", None),
        ];
        let start = self.at;
        let word = self.skip_while(is_bare);
        let ended = self.rest().is_empty();
        let found = KEYWORDS
            .iter()
            .find(|(keyword, _)| *keyword == word || ended && keyword.starts_with(word));
        let Some((keyword, value)) = found else {
            self.at = start;
            self.stop = Some(Stop::Malformed);
            return None;
        };
        if word != *keyword {
            self.stop = Some(Stop::Truncated);
        }
        Some(value.map_or(Value::Null, Value::Bool))
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn fail<T>(&mut self) -> Option<T> {
        self.stop_here();
        None
    }

    /// Stops at a slash, which at the very end may be the beginning of a comment.
    fn stop_here(&mut self) {
        let truncated = matches!(self.rest(), "" | "/");
        self.stop = Some(if truncated {
            Stop::Truncated
        } else {
            Stop::Malformed
        });
    }
}

fn is_bare(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '-')
}

fn number(digits: &str) -> Option<Number> {
    let unsigned = digits.strip_prefix('+').unwrap_or(digits);
    if let Ok(number) = serde_json::from_str(unsigned) {
        return Some(number);
    }
    if let Some(hexadecimal) = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"))
    {
        return u64::from_str_radix(hexadecimal, 16).ok().map(Number::from);
    }
    let magnitude = unsigned.strip_prefix('-').unwrap_or(unsigned);
    if !magnitude.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    // Integers stay integers: a double would lose digits beyond 2^53.
    match unsigned.parse::<i64>() {
        Ok(integer) => Some(integer.into()),
        Err(_) => Number::from_f64(unsigned.parse().ok()?),
    }
}

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
