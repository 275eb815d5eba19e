//! The values that earlier steps captured.

use std::collections::BTreeMap;

use serde_json::Value;

/// Captured values by name.
#[derive(Default)]
pub(super) struct Captures(BTreeMap<String, Value>);

impl Captures {
    /// Captures a required value, under a name if one is given.
    pub(super) fn capture(
        &mut self,
        name: Option<&String>,
        what: &str,
        value: Option<&Value>,
    ) -> Result<(), String> {
        let Some(name) = name else {
            return Ok(());
        };
        let value = value.ok_or_else(|| format!("there is no {what} to capture as '{name}'"))?;
        self.0.insert(name.clone(), value.clone());
        Ok(())
    }

    /// Replaces every `{{name}}` in a value: by the captured value if it is the whole string, else by its
    /// text.
    pub(super) fn filled(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.filled_text(text),
            Value::Array(items) => items.iter().map(|item| self.filled(item)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(key, member)| (key.clone(), self.filled(member)))
                .collect(),
            other => other.clone(),
        }
    }

    fn filled_text(&self, text: &str) -> Value {
        let whole = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
        if let Some(value) = whole.and_then(|name| self.0.get(name.trim())) {
            return value.clone();
        }
        let mut filled = text.to_owned();
        for (name, value) in &self.0 {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            filled = filled.replace(&format!("{{{{{name}}}}}"), &value);
        }
        filled.into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_string_becomes_the_value_and_a_part_of_one_its_text() {
        let mut captures = Captures::default();
        captures
            .capture(Some(&"state".to_owned()), "state", Some(&json!({"counter": 1})))
            .unwrap();
        captures
            .capture(Some(&"id".to_owned()), "id", Some(&json!("s1")))
            .unwrap();

        let filled = captures.filled(&json!([{"state": "{{state}}"}, "snapshot {{id}}", "{{unknown}}"]));

        assert_eq!(
            filled,
            json!([{"state": {"counter": 1}}, "snapshot s1", "{{unknown}}"])
        );
    }

    #[test]
    fn a_missing_value_cannot_be_captured() {
        let missing = Captures::default().capture(Some(&"id".to_owned()), "snapshotId", None);

        assert_eq!(
            missing,
            Err("there is no snapshotId to capture as 'id'".to_owned())
        );
    }
}
