//! The environment of templates: a registry's partials, helpers and named schemas, the live state of a
//! session, and the conversion of rendered messages.

use std::sync::Arc;

use dotprompt::{Dotprompt, Helper, HelperCall, HelperError, HelperOutput};
use everturn_core::{Context, Error, Registry, Result};
use serde_json::Value;

use crate::{JsonObject, Media, Message, Part, Role, metadata};

const PARTIAL: &str = "partial/";
const HELPER: &str = "helper/";

/// Defines a template fragment that others include as `{{> name}}`; it replaces an earlier one of that name.
pub fn define_partial(registry: &Registry, name: &str, source: impl Into<String>) {
    registry.set_value(format!("{PARTIAL}{name}"), source.into());
}

/// Defines a function that templates call as `{{name argument}}`, for prompts defined afterwards.
pub fn define_helper<F>(registry: &Registry, name: &str, helper: F)
where
    F: Fn(&mut HelperCall<'_>) -> Result<HelperOutput, HelperError> + Send + Sync + 'static,
{
    registry.set_value(format!("{HELPER}{name}"), SharedHelper(Arc::new(helper)));
}

#[derive(Clone)]
struct SharedHelper(Arc<dyn Helper>);

impl Helper for SharedHelper {
    fn call(&self, call: &mut HelperCall<'_>) -> Result<HelperOutput, HelperError> {
        self.0.call(call)
    }
}

/// Creates a template compiler with the registry's partials, helpers and schemas.
pub(super) fn compiler(registry: &Registry) -> Dotprompt {
    // Strong handles would be a cycle: the registry holds the compiled prompts.
    let (partials, schemas) = (registry.downgrade(), registry.downgrade());
    let compiler = Dotprompt::new()
        .partial_resolver(move |name| {
            let partial = partials.upgrade()?.value::<String>(&format!("{PARTIAL}{name}"));
            Ok(partial.map(|source| String::clone(&source)))
        })
        .schema_resolver(move |name| {
            Ok(schemas
                .upgrade()?
                .schema(name)
                .map(|schema| schema.as_json().clone()))
        });
    registry
        .value_keys(HELPER)
        .into_iter()
        .fold(compiler, |compiler, key| {
            match (registry.value::<SharedHelper>(&key), key.strip_prefix(HELPER)) {
                (Some(helper), Some(name)) => compiler.define_helper_type(name, SharedHelper::clone(&helper)),
                _ => compiler,
            }
        })
}

/// Converts the error of a template, and adds the prompt's name.
pub(super) fn template_error(name: &str, error: dotprompt::Error) -> Error {
    let message = format!("prompt '{name}': {error}");
    match error.kind() {
        dotprompt::ErrorKind::UnknownSchema(_) | dotprompt::ErrorKind::UnknownTool(_) => {
            Error::not_found(message)
        }
        _ => Error::invalid_argument(message),
    }
    .with_source(error)
}

/// Reads the session's state when a template uses it; an extension of the context.
struct PromptState(Box<dyn Fn() -> Arc<Value> + Send + Sync>);

/// Returns a context in which prompts read `{{@custom...}}` and `{{@state...}}` from `read`. It is called
/// only for templates that use one of them.
pub fn with_prompt_state(context: Context, read: impl Fn() -> Arc<Value> + Send + Sync + 'static) -> Context {
    context.with_extension(Arc::new(PromptState(Box::new(read))))
}

/// Returns the current state if there is a session.
pub(super) fn current_state(context: &Context) -> Option<Arc<Value>> {
    context.extension::<PromptState>().map(|state| (state.0)())
}

pub(super) fn convert_message(rendered: dotprompt::Message) -> Result<Message> {
    let role = match rendered.role.as_str() {
        "system" => Role::System,
        "user" => Role::User,
        "model" => Role::Model,
        "tool" => Role::Tool,
        other => {
            return Err(Error::invalid_argument(format!(
                "'{other}' is not a role: use system, user, model or tool"
            )));
        }
    };
    let parts = rendered
        .content
        .iter()
        .cloned()
        .map(part)
        .collect::<Result<Vec<_>>>()?;
    let message = Message::new(role, parts);
    Ok(match rendered.metadata {
        Some(metadata) => message.with_metadata(JsonObject::clone(&metadata)),
        None => message,
    })
}

fn part(rendered: dotprompt::Part) -> Result<Part> {
    Ok(match rendered {
        dotprompt::Part::Text(text) => Part::text(text),
        dotprompt::Part::Media(rendered) => {
            let media = Media::new(rendered.url);
            match rendered.content_type {
                Some(content_type) => media.with_content_type(content_type).into(),
                None => media.into(),
            }
        }
        dotprompt::Part::Section(name) => Part::text("")
            .with_metadata_entry(metadata::PURPOSE, name)
            .with_metadata_entry(metadata::PENDING, true),
        dotprompt::Part::Other(fields) => serde_json::from_value(fields.into())?,
    })
}
