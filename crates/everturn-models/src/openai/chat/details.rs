//! Reasoning in the form of `OpenRouter`, which must be sent back unchanged.

use serde_json::Value;

/// The texts that grow from fragment to fragment.
const GROWING: [&str; 3] = ["text", "summary", "data"];

/// The `reasoning_details` of an answer, assembled from fragments.
#[derive(Debug, Default)]
pub(super) struct Details(Vec<Value>);

impl Details {
    /// Processes fragments and returns the text to show.
    pub(super) fn take(&mut self, fragments: &[Value]) -> String {
        let mut shown = String::new();
        for fragment in fragments {
            let text = fragment["text"].as_str().or_else(|| fragment["summary"].as_str());
            shown.push_str(text.unwrap_or_default());
            match self.0.last_mut() {
                Some(last) if last["type"] == fragment["type"] && last["index"] == fragment["index"] => {
                    merge(last, fragment);
                }
                _ => self.0.push(fragment.clone()),
            }
        }
        shown
    }

    pub(super) fn into_whole(self) -> Option<Value> {
        (!self.0.is_empty()).then_some(Value::Array(self.0))
    }
}

fn merge(last: &mut Value, fragment: &Value) {
    for (name, value) in fragment.as_object().into_iter().flatten() {
        match (&mut last[name.as_str()], value) {
            (_, Value::Null) => {}
            (Value::String(text), Value::String(more)) if GROWING.contains(&name.as_str()) => {
                text.push_str(more);
            }
            (known, value) => *known = value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fragments_of_one_detail_grow_together() {
        let mut details = Details::default();

        let shown = details.take(&[
            json!({"type": "reasoning.text", "index": 0, "text": "Le"}),
            json!({"type": "reasoning.text", "index": 0, "text": "eks", "signature": "s"}),
            json!({"type": "reasoning.encrypted", "index": 1, "data": "x"}),
        ]);

        assert_eq!(shown, "Leeks");
        let whole = json!([
            {"type": "reasoning.text", "index": 0, "text": "Leeks", "signature": "s"},
            {"type": "reasoning.encrypted", "index": 1, "data": "x"},
        ]);
        assert_eq!(details.into_whole(), Some(whole));
    }
}
