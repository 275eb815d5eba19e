//! Prompts as actions: found and listed by name, and run by remote callers.

use std::sync::Arc;

use everturn_core::{
    Action, ActionType, Context, Descriptor, DynAction, JsonCall, Payload, Registry, Result, Schema,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::definition::Settings;
use super::{Prompt, PromptSource, Registered, value_key};
use crate::{GenerateActionOptions, JsonObject, ModelRequest, ToolReference};

/// Registers a prompt by name and as its two actions.
pub(super) fn register(registry: &Registry, name: &str, source: &Arc<dyn PromptSource>) -> Result<()> {
    let settings = Arc::clone(&source.parts(registry)?.settings);
    // The registry holds the actions, so a strong handle would be a cycle.
    let weak = registry.downgrade();
    let prompt = {
        let (name, source) = (name.to_owned(), Arc::clone(source));
        move || -> Result<Prompt> { Ok(Prompt::from_source(&weak.upgrade()?, &name, Arc::clone(&source))) }
    };
    let to_options = prompt.clone();
    let request = Action::new(ActionType::PROMPT, name, move |input: Value, context: Context| {
        let prompt = prompt();
        async move { Ok(prompt?.call(input)?.context(context).render().await?) }
    });
    let options = Action::new(
        ActionType::EXECUTABLE_PROMPT,
        name,
        move |input: Value, context: Context| {
            let prompt = to_options();
            async move { Ok(prompt?.call(input)?.context(context).options().await?) }
        },
    );
    register_action::<ModelRequest>(registry, name, request, &settings)?;
    register_action::<GenerateActionOptions>(registry, name, options, &settings)?;
    // Last, so that a prompt whose name is taken does not replace the existing one.
    registry.set_value(value_key(name), Registered(Arc::clone(source)));
    Ok(())
}

/// Removes a prompt from the registry in which it was defined and frees its name. A prompt that was looked up
/// before stays usable.
pub fn remove_prompt(registry: &Registry, name: &str) {
    for kind in [ActionType::PROMPT, ActionType::EXECUTABLE_PROMPT] {
        registry.remove(&kind.key(name));
    }
    registry.remove_value(&value_key(name));
}

fn register_action<O: Payload>(
    registry: &Registry,
    name: &str,
    action: Action<Value, O>,
    settings: &Settings,
) -> Result<()> {
    let metadata = JsonObject::from_iter([
        // Also on the executable action, which has another type: developer tools recognise a prompt by this
        // field.
        ("type".to_owned(), Value::from(ActionType::PROMPT.as_str())),
        ("prompt".to_owned(), describe(name, settings)),
    ]);
    let mut action = action
        .with_metadata(metadata)
        .with_input_schema(lenient_schema(settings));
    if let Some(description) = &settings.description {
        action = action.with_description(description.clone());
    }
    registry.register(Arc::new(PromptAction { action }))
}

/// Returns the metadata that a listing shows about a prompt.
fn describe(name: &str, settings: &Settings) -> Value {
    let tools: Vec<&str> = settings.tools.iter().map(tool_name).collect();
    let middleware: Vec<_> = settings
        .middleware
        .iter()
        .filter_map(|source| source.reference())
        .collect();
    let mut described = json!({
        "name": name,
        "model": settings.model.as_ref().map(|model| &model.name),
        "config": settings.config,
        "variant": settings.variant,
        "input": { "schema": settings.input_schema, "default": settings.input_default },
        "defaultInput": settings.input_default,
        "output": settings.output,
        "tools": tools,
        "toolChoice": settings.tool_choice,
        "maxTurns": settings.max_rounds,
        "use": middleware,
        "template": settings.template,
        "metadata": settings.metadata,
    });
    if let Some(described) = described.as_object_mut() {
        described
            .retain(|_, value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty()));
    }
    described
}

pub(super) fn tool_name(tool: &ToolReference) -> &str {
    match tool {
        ToolReference::Tool(tool) => tool.name(),
        ToolReference::Name(name) => name,
    }
}

/// Returns the input's schema, in which fields with a default are optional.
fn lenient_schema(settings: &Settings) -> Option<Schema> {
    let schema = settings.input_schema.clone()?;
    let Some(defaults) = &settings.input_default else {
        return Some(schema);
    };
    let mut json = schema.as_json().clone();
    if let Some(Value::Array(required)) = json.get_mut("required") {
        required.retain(|name| name.as_str().is_none_or(|name| !defaults.contains_key(name)));
    }
    Schema::from_json(json).ok()
}

/// A prompt's action. A call without input uses the defaults alone.
struct PromptAction<O> {
    action: Action<Value, O>,
}

impl<O: Payload> DynAction for PromptAction<O> {
    fn descriptor(&self) -> &Descriptor {
        self.action.descriptor()
    }

    fn run_json(&self, mut call: JsonCall) -> BoxFuture<'_, Result<Value>> {
        call.input = Some(
            call.input
                .filter(|input| !input.is_null())
                .unwrap_or_else(|| json!({})),
        );
        self.action.run_json(call)
    }
}
