//! Printing of values by JavaScript's rules.

use std::fmt::Write as _;
use std::io;

use serde::Serialize as _;
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Number, Serializer, Value};

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
    let mut text = Vec::new();
    let written = if indent.is_empty() {
        value.serialize(&mut Serializer::with_formatter(&mut text, Compact))
    } else {
        let pretty = Pretty(PrettyFormatter::with_indent(indent.as_bytes()));
        value.serialize(&mut Serializer::with_formatter(&mut text, pretty))
    };
    match written {
        Ok(()) => String::from_utf8(text).unwrap_or_default(),
        Err(_) => String::new(),
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

struct Compact;

impl Formatter for Compact {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        write!(writer, "{}", Float(value))
    }
}

struct Pretty<'i>(PrettyFormatter<'i>);

impl Formatter for Pretty<'_> {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        write!(writer, "{}", Float(value))
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
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
