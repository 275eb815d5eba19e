//! Credentials that must not be written to a file.

use serde_json::Value;

/// The suffixes of the names of settings with credentials, in lower case and without separators.
const NAMES: [&str; 9] = [
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "token",
    "authorization",
    "secret",
    "password",
    "cookie",
];

/// The replacement of a credential.
const MASK: &str = "[removed]";

/// The shortest masked text: shorter ones match too often.
const MIN_LENGTH: usize = 8;

/// The credentials of one request's configuration.
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// Removes the settings that hold credentials.
    pub(crate) fn remove_from(config: &mut Value) {
        Self::take_from(config);
    }

    /// Removes the settings that hold credentials and returns the credentials.
    pub(crate) fn take_from(config: &mut Value) -> Self {
        let mut found = Vec::new();
        take(config, &mut found);
        Self(found)
    }

    /// Masks the credentials wherever the service repeats them.
    pub(crate) fn mask(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                for secret in &self.0 {
                    if text.contains(secret) {
                        *text = text.replace(secret, MASK);
                    }
                }
            }
            Value::Array(elements) => elements.iter_mut().for_each(|element| self.mask(element)),
            Value::Object(members) => members.values_mut().for_each(|member| self.mask(member)),
            _ => {}
        }
    }
}

fn take(config: &mut Value, found: &mut Vec<String>) {
    match config {
        Value::Object(members) => {
            let names: Vec<String> = members.keys().filter(|name| is_secret(name)).cloned().collect();
            for name in names {
                members
                    .remove(&name)
                    .iter()
                    .for_each(|value| keep_texts(value, found));
            }
            members.values_mut().for_each(|member| take(member, found));
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| take(element, found)),
        _ => {}
    }
}

fn keep_texts(value: &Value, found: &mut Vec<String>) {
    match value {
        // A header contains a scheme and the credential; the service may repeat both or only the credential.
        Value::String(text) => {
            found.extend(
                text.split_whitespace()
                    .filter(|word| word.len() >= MIN_LENGTH)
                    .map(str::to_owned),
            );
        }
        Value::Array(elements) => elements.iter().for_each(|element| keep_texts(element, found)),
        Value::Object(members) => members.values().for_each(|member| keep_texts(member, found)),
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    let name: String = name
        .chars()
        .filter(|letter| letter.is_alphanumeric())
        .collect::<String>()
        .to_lowercase();
    NAMES.iter().any(|ending| name.ends_with(ending)) || name == "credentials"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_recognised_by_name_at_any_depth() {
        let mut config = json!({
            "apiKey": "k", "OPENAI_API_KEY": "k", "credentials": {"user": "u"},
            "headers": {"Authorization": "Bearer abc", "x-api-key": "k", "X-Trace": "t"},
            "maxOutputTokens": 10, "stopSequences": ["."],
        });

        Secrets::remove_from(&mut config);

        let rest = json!({"headers": {"X-Trace": "t"}, "maxOutputTokens": 10, "stopSequences": ["."]});
        assert_eq!(config, rest);
    }

    #[test]
    fn a_credential_is_masked_where_the_service_repeats_it() {
        let mut config = json!({"headers": {"Authorization": "Bearer sk-1234567890"}});
        let secrets = Secrets::take_from(&mut config);
        let mut answer = json!({"error": {"message": "bad key sk-1234567890", "hints": ["Bearer what?"]}});

        secrets.mask(&mut answer);

        assert_eq!(
            answer,
            json!({"error": {"message": "bad key [removed]", "hints": ["Bearer what?"]}})
        );
    }
}
