//! Finding the JSON value in a text.

use serde_json::Value;

use super::parser::{Parser, Stop};

/// Returns the first JSON object or array in a text, parsed leniently; a truncated value is returned up to
/// the end of the text.
///
/// A value in a code fence is preferred to brackets in the prose around it. Returns `None` if there is no
/// value.
///
/// ```
/// use everturn_ai::extract_json;
/// use serde_json::json;
///
/// assert_eq!(extract_json("Sure! {dish: 'leek soup',} Enjoy."), Some(json!({ "dish": "leek soup" })));
/// assert_eq!(extract_json(r#"{"dish": "leek so"#), Some(json!({ "dish": "leek so" })));
/// assert_eq!(extract_json("No idea."), None);
/// ```
pub fn extract_json(text: &str) -> Option<Value> {
    if let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text) {
        return Some(value);
    }
    let fenced = fenced(text).and_then(first_value);
    fenced.or_else(|| first_value(text))
}

/// Completes a truncated JSON text as far as its value is known.
///
/// Open containers are closed, a truncated string is kept and a truncated keyword completed; a key without a
/// value and a truncated number are dropped. The text is ignored from where it is not JSON. Returns `None` if
/// nothing is known.
pub fn complete_json(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .ok()
        .or_else(|| Parser::new(text, 0).value())
}

/// Parses a text that is one whole JSON value, leniently. Returns `None` if it is not.
pub fn parse_json(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let mut parser = Parser::new(text, 0);
    let value = parser.value()?;
    (parser.stop().is_none() && parser.peek_token().is_none()).then_some(value)
}

/// Finds the first value outside quotes. Quotes in prose usually pair up, and brackets between them are not
/// JSON; if no value is found, a quote was something else, such as a sign for inches, and all brackets are
/// tried.
fn first_value(text: &str) -> Option<Value> {
    scan(text, true).or_else(|| scan(text, false))
}

fn scan(text: &str, quotes_pair_up: bool) -> Option<Value> {
    let mut quoted = false;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match c {
            // An escaped quote does not end a quotation.
            '\\' => at += text[at + 1..].chars().next().map_or(0, char::len_utf8),
            '"' => quoted = quotes_pair_up && !quoted,
            '{' | '[' if !quoted => match value_at(text, at) {
                Ok(value) => return Some(value),
                // Everything up to `end` was read as JSON, so no other value begins within it.
                Err(end) => {
                    at = end.max(at + 1);
                    continue;
                }
            },
            _ => {}
        }
        at += c.len_utf8();
    }
    None
}

/// Parses the value at a bracket; fails with the position from which it is not JSON.
fn value_at(text: &str, at: usize) -> Result<Value, usize> {
    let mut parser = Parser::new(text, at);
    let value = parser.value();
    let malformed = parser.stop() == Some(Stop::Malformed);
    value
        // A bracket in prose often parses as an empty list. Only a value with content is worth more than
        // searching on.
        .filter(|value| !malformed || !is_empty(value))
        .ok_or(parser.position())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().all(is_empty),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Returns the text from the first code fence marked as JSON, else from the first whose content begins with a
/// bracket.
///
/// A fence counts only at the beginning of a line, where the inside of a JSON string cannot put one.
fn fenced(text: &str) -> Option<&str> {
    // A text that begins with JSON may contain a fence inside one of its strings.
    if text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let mut plain = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        offset += line.len();
        let Some(info) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        if let Some((language, _)) = info.split_at_checked(4)
            && language.eq_ignore_ascii_case("json")
        {
            return Some(&text[offset - (info.len() - language.len())..]);
        }
        if plain.is_none() && text[offset..].trim_start().starts_with(['{', '[']) {
            plain = Some(&text[offset..]);
        }
    }
    plain
}
