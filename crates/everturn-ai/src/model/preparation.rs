//! The steps that prepare a request for the provider, in the order that [`model`](super) documents. The first
//! one checks the configuration against the model's schema and the version against its versions.

use everturn_core::{Context, Error, Result, Schema};
use serde_json::Value;

use super::support::without_media;
use super::{
    ContextAugmentation, MediaDownload, OptionalMedia, augment_with_context, needs_simulation,
    simulate_constrained, simulate_system_prompt, validate_support,
};
use crate::{ModelInfo, ModelRequest, ModelStage, ModelSupports};

pub(super) struct Preparation {
    name: String,
    supports: ModelSupports,
    is_deprecated: bool,
    config: ConfigCheck,
    download: Option<MediaDownload>,
}

impl Preparation {
    pub(super) fn new(
        name: &str,
        info: ModelInfo,
        schema: Option<Schema>,
        download: Option<MediaDownload>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            supports: info.supports.unwrap_or_default(),
            is_deprecated: info.stage == Some(ModelStage::Deprecated),
            config: ConfigCheck::new(schema, info.versions),
            download,
        }
    }

    pub(super) async fn prepare(&self, mut request: ModelRequest, context: &Context) -> Result<ModelRequest> {
        if self.is_deprecated {
            tracing::warn!(model = self.name, "the model is deprecated and may be removed");
        }
        request.config = self.config.checked(request.config)?;
        if self.supports.media == Some(false) && context.extension::<OptionalMedia>().is_some() {
            request = without_media(request);
        }
        if let Some(download) = &self.download {
            request = Box::pin(download.apply(request, context)).await?;
        }
        if self.supports.system_role == Some(false) {
            request = simulate_system_prompt(request);
        }
        if self.supports.context != Some(true) {
            request = augment_with_context(request, &ContextAugmentation::default());
        }
        if needs_simulation(&request, self.supports.constrained) {
            request = simulate_constrained(request);
        }
        validate_support(&request, &self.name, &self.supports)?;
        Ok(request)
    }
}

const VERSION: &str = "version";

pub(super) struct ConfigCheck {
    schema: Option<Schema>,
    versions: Vec<String>,
}

impl ConfigCheck {
    pub(super) fn new(schema: Option<Schema>, versions: Option<Vec<String>>) -> Self {
        Self {
            schema: schema.and_then(|schema| lenient(&schema)),
            versions: versions.unwrap_or_default(),
        }
    }

    /// Returns the configuration for the provider.
    pub(super) fn checked(&self, config: Option<Value>) -> Result<Option<Value>> {
        let config = match config {
            None | Some(Value::Null) => return Ok(None),
            Some(config @ Value::Object(_)) => config,
            Some(_) => {
                return Err(
                    Error::invalid_argument("a model's configuration must be an object").with_public(),
                );
            }
        };
        self.check_version(&config)?;
        self.check_schema(&config)?;
        Ok(Some(config))
    }

    fn check_version(&self, config: &Value) -> Result<()> {
        let version = match config.get(VERSION) {
            None | Some(Value::Null) => return Ok(()),
            // A model that lists no versions accepts any.
            Some(_) if self.versions.is_empty() => return Ok(()),
            Some(version) => version,
        };
        if version
            .as_str()
            .is_some_and(|version| self.versions.iter().any(|known| known == version))
        {
            return Ok(());
        }
        let known = self.versions.join(", ");
        Err(
            Error::invalid_argument(format!("the model has no version {version}; it has {known}"))
                .with_public(),
        )
    }

    fn check_schema(&self, config: &Value) -> Result<()> {
        let Some(schema) = &self.schema else {
            return Ok(());
        };
        let mut given = config.clone();
        // The version is this framework's setting, and the provider's schema may forbid unknown ones.
        if let (Value::Object(members), false) = (&mut given, self.versions.is_empty()) {
            members.shift_remove(VERSION);
        }
        drop_nulls(&mut given);
        schema
            .validate(&given)
            .map_err(|error| error.context("invalid model configuration").with_public())
    }
}

/// Makes every setting optional, because a call may give only some of those that the provider's type
/// requires.
fn lenient(schema: &Schema) -> Option<Schema> {
    let mut json = schema.as_json().clone();
    drop_required(&mut json);
    Schema::from_json(json).ok()
}

fn drop_required(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            // A property may itself be called `required`; the keyword is the `required` that is an array.
            if members.get("required").is_some_and(Value::is_array) {
                members.shift_remove("required");
            }
            members.values_mut().for_each(drop_required);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_required),
        _ => {}
    }
}

/// Removes settings that are `null`: they count as not given.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(versions: &[&str]) -> ConfigCheck {
        let schema = json!({
            "type": "object",
            "properties": { "temperature": { "type": "number" } },
            "required": ["temperature"],
            "additionalProperties": false,
        });
        let versions = versions.iter().map(|&version| version.to_owned()).collect();
        ConfigCheck::new(Some(Schema::from_json(schema).unwrap()), Some(versions))
    }

    #[test]
    fn settings_are_optional_and_null_is_absent() {
        assert!(check(&[]).checked(Some(json!({}))).is_ok());
        assert!(check(&[]).checked(Some(json!({ "temperature": null }))).is_ok());
        assert_eq!(check(&[]).checked(Some(Value::Null)).unwrap(), None);
    }

    #[test]
    fn a_setting_of_the_wrong_type_is_named() {
        let error = check(&[])
            .checked(Some(json!({ "temperature": "hot" })))
            .unwrap_err();

        assert!(error.message().contains("/temperature"), "{error}");
    }

    #[test]
    fn only_declared_versions_are_admitted() {
        let check = check(&["a-1", "a-2"]);

        assert!(check.checked(Some(json!({ "version": "a-2" }))).is_ok());
        assert!(check.checked(Some(json!({ "version": "a-3" }))).is_err());
        assert!(check.checked(Some(json!({ "version": 3 }))).is_err());
    }

    #[test]
    fn a_configuration_is_an_object() {
        assert!(check(&[]).checked(Some(json!([1]))).is_err());
    }
}
