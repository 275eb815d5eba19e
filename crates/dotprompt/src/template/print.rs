//! Printing of values by JavaScript's rules.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Appends the text that `{{value}}` prints: lists joined by commas, `1.0` as `1`, null as nothing.
pub(super) fn push(out: &mut String, value: &Value) {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => push_number(out, number),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push(out, item);
            }
        }
        Value::Object(_) => out.push_str("[object Object]"),
    }
}

fn push_number(out: &mut String, number: &Number) {
    // Writing to a string cannot fail.
    let _ = match number.as_f64() {
        Some(float) if number.is_f64() => write!(out, "{}", Float(float)),
        _ => write!(out, "{number}"),
    };
}

/// A float with the digits and the exponent that JavaScript gives it.
struct Float(f64);

impl std::fmt::Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.0.abs();
        if self.0 == 0.0 {
            f.write_str("0")
        } else if (1e-6..1e21).contains(&size) {
            write!(f, "{}", self.0)
        } else {
            let text = format!("{:e}", self.0);
            f.write_str(&if text.contains("e-") {
                text
            } else {
                text.replace('e', "e+")
            })
        }
    }
}

/// Returns the JSON text of a value; `indent` indents each level, and an empty `indent` gives one line.
pub(super) fn json(value: &Value, indent: &str) -> String {
    let mut json = Json {
        text: String::new(),
        indent,
        depth: 0,
    };
    json.value(value);
    json.text
}

struct Json<'i> {
    text: String,
    indent: &'i str,
    depth: usize,
}

impl Json<'_> {
    fn value(&mut self, value: &Value) {
        match value {
            Value::Number(number) => push_number(&mut self.text, number),
            Value::Array(items) if !items.is_empty() => self.list(['[', ']'], items, Self::value),
            Value::Object(entries) if !entries.is_empty() => {
                self.list(['{', '}'], entries, |json, (key, value)| {
                    json.value(&Value::from(key.as_str()));
                    json.text
                        .push_str(if json.indent.is_empty() { ":" } else { ": " });
                    json.value(value);
                });
            }
            // Writing to a string cannot fail.
            other => drop(write!(self.text, "{other}")),
        }
    }

    fn list<T>(&mut self, brackets: [char; 2], items: impl IntoIterator<Item = T>, write: fn(&mut Self, T)) {
        self.text.push(brackets[0]);
        self.depth += 1;
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            self.start_line();
            write(self, item);
        }
        self.depth -= 1;
        self.start_line();
        self.text.push(brackets[1]);
    }

    fn start_line(&mut self) {
        if !self.indent.is_empty() {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(self.indent, self.depth));
        }
    }
}

/// Returns the indentation for the argument `indent=`: a number of spaces or a text, ten characters at most.
pub(super) fn indentation(value: &Value) -> String {
    match value {
        Value::Number(number) => {
            let wanted = number.as_f64().unwrap_or(0.0);
            " ".repeat(
                (1..=10_u8)
                    .take_while(|spaces| f64::from(*spaces) <= wanted)
                    .count(),
            )
        }
        Value::String(text) => text.chars().take(10).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(value: &Value) -> String {
        let mut out = String::new();
        push(&mut out, value);
        out
    }

    #[test]
    fn values_print_as_in_javascript() {
        for (value, expected) in [
            (json!(null), ""),
            (json!(true), "true"),
            (json!(1.0), "1"),
            (json!(-0.0), "0"),
            (json!(0.5), "0.5"),
            (json!(1e21), "1e+21"),
            (json!(1.5e300), "1.5e+300"),
            (json!(1e-7), "1e-7"),
            (json!(0.000_001), "0.000001"),
            (json!(123_456_789_012_345_680_000.0), "123456789012345680000"),
            (json!(u64::MAX), "18446744073709551615"),
            (json!([1, [2, null], "x", {}]), "1,2,,x,[object Object]"),
        ] {
            assert_eq!(printed(&value), expected);
        }
    }

    #[test]
    fn json_is_written_as_in_javascript() {
        let value = json!({"b": [1.0, 1e21], "a": {}, "c": [], "t": "\"\n\u{1}é"});

        assert_eq!(
            json(&value, ""),
            r#"{"b":[1,1e+21],"a":{},"c":[],"t":"\"\n\u0001é"}"#
        );
        assert_eq!(json(&json!({"a": [1.0]}), "  "), "{\n  \"a\": [\n    1\n  ]\n}");
    }

    #[test]
    fn an_indentation_is_ten_characters_at_most() {
        assert_eq!(indentation(&json!(2)), "  ");
        assert_eq!(indentation(&json!(2.9)), "  ");
        assert_eq!(indentation(&json!(99)).len(), 10);
        assert_eq!(indentation(&json!(-1)), "");
        assert_eq!(indentation(&json!("\t")), "\t");
        assert_eq!(indentation(&json!(null)), "");
    }
}
