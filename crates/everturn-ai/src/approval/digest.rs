//! Digests of calls and answers.
//!
//! Values are hashed in one canonical form: members sorted by name, whole numbers as integers. RFC 8785 is
//! not used because it reads numbers as doubles: two account numbers beyond 2^53 must not produce the same
//! digest.

use everturn_core::hex;
use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

use super::ApprovalForm;
use crate::ToolRequest;

/// The first integer whose double also represents other integers.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns the digest of a call: the tool's name and the arguments. A missing input is null.
pub(crate) fn call_digest(call: &ToolRequest) -> String {
    let mut hash = begin("call");
    add_call(&mut hash, call);
    hex(&hash.finalize())
}

/// Returns the digest of an answer: its form, the call that is to run, and the decision or output.
pub(crate) fn answer_digest(form: ApprovalForm, call: &ToolRequest, value: &Value) -> String {
    let mut hash = begin(match form {
        ApprovalForm::Restart => "restart",
        ApprovalForm::Respond => "respond",
        ApprovalForm::Decline => "decline",
    });
    add_call(&mut hash, call);
    add(&mut hash, value);
    hex(&hash.finalize())
}

fn begin(kind: &str) -> Sha256 {
    let mut hash = Sha256::new();
    add_text(&mut hash, kind);
    hash
}

fn add_call(hash: &mut Sha256, call: &ToolRequest) {
    add_text(hash, &call.name);
    add(hash, call.input.as_ref().unwrap_or(&Value::Null));
}

/// Adds a value. Each kind has its own prefix letter, and lengths come first, so that no two values give the
/// same bytes.
fn add(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(value) => hash.update(if *value { b"t" } else { b"f" }),
        Value::Number(number) => {
            hash.update(b"d");
            add_text(hash, &spelt(number));
        }
        Value::String(text) => {
            hash.update(b"s");
            add_text(hash, text);
        }
        Value::Array(items) => {
            hash.update(b"a");
            hash.update((items.len() as u64).to_be_bytes());
            for item in items {
                add(hash, item);
            }
        }
        Value::Object(members) => {
            hash.update(b"o");
            hash.update((members.len() as u64).to_be_bytes());
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in members {
                add_text(hash, name);
                add(hash, value);
            }
        }
    }
}

fn add_text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text.as_bytes());
}

/// Returns the canonical form of a number: `7` for `7.0`.
fn spelt(number: &Number) -> String {
    match number.as_f64() {
        Some(double) if number.is_f64() && double.fract() == 0.0 && double.abs() < EXACT => {
            format!("{double:.0}")
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(input: Value) -> String {
        call_digest(&ToolRequest::new("pay", input))
    }

    #[test]
    fn a_spelling_makes_no_other_call() {
        assert_eq!(
            of(json!({"to": "ann", "sum": 7})),
            of(json!({"sum": 7.0, "to": "ann"}))
        );
        let missing = ToolRequest {
            input: None,
            ..ToolRequest::new("pay", json!(1))
        };
        assert_eq!(call_digest(&missing), of(Value::Null));
        let referred = ToolRequest::new("pay", json!(1)).with_reference("call-1");
        assert_eq!(call_digest(&referred), of(json!(1)));
    }

    #[test]
    fn another_name_or_argument_makes_another_call() {
        let calls = [
            of(json!({"sum": 7})),
            of(json!({"sum": 8})),
            of(json!({"sum": "7"})),
            of(json!({"sum": [7]})),
            of(json!({"sum": 7, "to": null})),
            of(json!(9_007_199_254_740_992_u64)),
            of(json!(9_007_199_254_740_993_u64)),
            of(json!(["a", "b"])),
            of(json!(["ab"])),
            call_digest(&ToolRequest::new("refund", json!({"sum": 7}))),
        ];

        let distinct: std::collections::HashSet<&String> = calls.iter().collect();
        assert_eq!(distinct.len(), calls.len());
    }
}
