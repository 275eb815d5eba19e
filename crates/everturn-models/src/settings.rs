//! The configuration of a request: known names are removed, the rest is sent unchanged.

use everturn_ai::{JsonObject, ModelRequest};
use everturn_core::{Error, Result};
use serde_json::Value;

use crate::service::ApiKey;

/// The remaining configuration of a request. A setting that is `null` counts as not given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings(JsonObject);

impl Settings {
    /// Returns the settings of a request. None may have a name in `reserved`, the fields that the request
    /// itself fills.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field.
    pub(crate) fn of(request: &ModelRequest, reserved: &[&str]) -> Result<Self> {
        Self::new(request.config.as_ref(), reserved)
    }

    /// Returns the settings in a configuration, with the same rule.
    ///
    /// # Errors
    /// As [`Settings::of`].
    pub(crate) fn new(config: Option<&Value>, reserved: &[&str]) -> Result<Self> {
        let mut settings = match config {
            Some(Value::Object(settings)) => settings.clone(),
            _ => JsonObject::new(),
        };
        settings.retain(|_, value| !value.is_null());
        match reserved.iter().find(|name| settings.contains_key(**name)) {
            Some(name) => Err(invalid(
                name,
                "is filled from the request and cannot be a setting",
            )),
            None => Ok(Self(settings)),
        }
    }

    /// Removes and returns a setting.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name)
    }

    /// Returns whether a setting is this text.
    pub(crate) fn is(&self, name: &str, text: &str) -> bool {
        self.0.get(name).is_some_and(|value| value == text)
    }

    /// Removes and returns a setting that is a text.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not a text.
    pub(crate) fn take_text(&mut self, name: &str) -> Result<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(invalid(name, "must be a string")),
        }
    }

    /// Removes and returns a setting that is `true` or `false`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is neither.
    pub(crate) fn take_flag(&mut self, name: &str) -> Result<Option<bool>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(invalid(name, "must be true or false")),
        }
    }

    /// Removes and returns the key for this call.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not a text.
    pub(crate) fn take_key(&mut self) -> Result<Option<ApiKey>> {
        Ok(self.take_text("apiKey")?.as_deref().map(ApiKey::new))
    }

    /// Removes and returns the tools that the provider runs itself.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if they are not a list.
    pub(crate) fn take_tools(&mut self) -> Result<Vec<Value>> {
        match self.take("tools") {
            None => Ok(Vec::new()),
            Some(Value::Array(tools)) => Ok(tools),
            Some(_) => Err(invalid("tools", "must be a list of the provider's own tools")),
        }
    }

    /// Moves settings to fields of other names: `[("topP", "top_p")]`.
    pub(crate) fn move_to(&mut self, body: &mut JsonObject, names: &[(&str, &str)]) {
        for (from, to) in names {
            if let Some(value) = self.take(from) {
                body.insert((*to).to_owned(), value);
            }
        }
    }

    /// Moves the remaining settings to a body, over existing fields.
    pub(crate) fn move_rest_to(self, body: &mut JsonObject) {
        body.extend(self.0);
    }

    /// Returns the remaining settings.
    pub(crate) fn into_rest(self) -> JsonObject {
        self.0
    }
}

fn invalid(name: &str, problem: &str) -> Error {
    Error::invalid_argument(format!("'{name}' in the model's configuration {problem}")).with_public()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(config: Value) -> Result<Settings> {
        let request = ModelRequest {
            config: Some(config),
            ..ModelRequest::default()
        };
        Settings::of(&request, &["model", "stream"])
    }

    #[test]
    fn falsy_settings_are_set_and_null_is_not() {
        let mut settings = settings(json!({"temperature": 0, "topP": null, "logprobs": false})).unwrap();
        let mut body = JsonObject::new();

        settings.move_to(&mut body, &[("temperature", "temperature"), ("topP", "top_p")]);
        settings.move_rest_to(&mut body);

        assert_eq!(Value::Object(body), json!({"temperature": 0, "logprobs": false}));
    }

    #[test]
    fn fields_of_the_request_are_refused() {
        let error = settings(json!({"stream": false})).unwrap_err();

        assert!(error.message().contains("'stream'"), "{error}");
    }
}
