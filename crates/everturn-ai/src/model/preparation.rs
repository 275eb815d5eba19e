//! The steps that prepare a request for the provider, in the order that [`model`](super) documents. The first
//! one checks the configuration against the model's schema and the version against its versions.

use everturn_core::{Context, Error, Result, Schema};
use serde_json::Value;

use super::{
    ContextAugmentation, MediaDownload, augment_with_context, needs_simulation, simulate_constrained,
    simulate_system_prompt,
};
use crate::{
    ConstrainedSupport, Feature, ModelInfo, ModelRequest, ModelStage, ModelSupports, Part, ToolChoice, reason,
};

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

/// Drops media from requests to models without support for media, instead of rejecting the request; an
/// extension of the context.
///
/// For callers whose protocol never rejects a message because of a part of it. Stored messages keep their
/// media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalMedia;

/// Removes the media from a request.
pub(super) fn without_media(mut request: ModelRequest) -> ModelRequest {
    let mut start = 0;
    while let Some(index) = request.messages.next_with(Feature::Media, start) {
        if let Some(message) = request.messages.get(index) {
            let rest = message.content().iter().filter(|part| part.as_media().is_none());
            let mut rest: Vec<Part> = rest.cloned().collect();
            if rest.is_empty() {
                // Providers reject a message without content.
                rest.push(Part::text("(media left out)"));
            }
            let message = message.clone().with_content(rest);
            request.messages.replace(index, message);
        }
        start = index + 1;
    }
    request
}

/// Checks a request against a model's declaration.
///
/// Only requests for declared-unsupported features are rejected; undeclared features are assumed to work.
///
/// # Errors
/// `INVALID_ARGUMENT` with [`reason::UNSUPPORTED_BY_MODEL`] that names the first unsupported feature.
pub fn validate_support(request: &ModelRequest, model: &str, supports: &ModelSupports) -> Result<()> {
    let is_chosen = request
        .tool_choice
        .is_some_and(|choice| choice != ToolChoice::Auto);
    let is_constrained = request
        .output
        .as_ref()
        .is_some_and(|output| output.constrained == Some(true));
    let is_unconstrained = supports.constrained == Some(ConstrainedSupport::None);
    let needs = [
        (
            supports.media == Some(false) && request.messages.any_with(Feature::Media),
            "media",
        ),
        (
            supports.tools == Some(false) && !request.tools().is_empty(),
            "tools",
        ),
        (
            supports.multiturn == Some(false) && request.messages.len() > 1,
            "more than one message",
        ),
        (supports.tool_choice == Some(false) && is_chosen, "a tool choice"),
        (
            supports.system_role == Some(false) && request.messages.any_with(Feature::System),
            "a system message",
        ),
        (is_unconstrained && is_constrained, "an enforced output schema"),
    ];
    match needs.iter().find(|(is_missing, _)| *is_missing) {
        None => Ok(()),
        Some((_, need)) => Err(Error::invalid_argument(format!(
            "model '{model}' does not support {need}, which the request has"
        ))
        .with_reason(reason::UNSUPPORTED_BY_MODEL)
        .with_public()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Message;

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

    #[test]
    fn undeclared_abilities_are_allowed_and_those_declared_false_are_refused() {
        let request = ModelRequest::new([
            Message::user("a"),
            Message::user(Part::media("https://x.test/cat.png")),
        ]);
        let refusal = |supports: ModelSupports| validate_support(&request, "m", &supports).err();

        assert!(refusal(ModelSupports::default()).is_none());
        assert!(
            refusal(ModelSupports {
                media: Some(true),
                ..ModelSupports::default()
            })
            .is_none()
        );

        let error = refusal(ModelSupports {
            media: Some(false),
            ..ModelSupports::default()
        })
        .unwrap();
        assert!(error.is(reason::UNSUPPORTED_BY_MODEL));
        assert!(error.message().contains("media"), "{error}");
        let error = refusal(ModelSupports {
            multiturn: Some(false),
            ..ModelSupports::default()
        })
        .unwrap();
        assert!(error.message().contains("more than one message"), "{error}");
    }

    #[test]
    fn media_can_be_left_out() {
        let cat = || Part::media("https://x.test/cat.png");
        let request = ModelRequest::new([
            Message::user(vec![Part::text("Look: "), cat()]),
            Message::model("Nice."),
            Message::user(cat()),
        ]);

        let left = without_media(request);

        let texts: Vec<_> = left.messages.iter().map(Message::text).collect();
        assert_eq!(texts, ["Look: ", "Nice.", "(media left out)"]);
        assert!(!left.messages.any_with(Feature::Media));
    }
}
