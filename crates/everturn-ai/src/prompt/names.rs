//! Checking that the models, tools and middleware that prompts name are registered.

use std::fmt::Write as _;
use std::sync::Arc;

use dotprompt::{Location, ParsedPrompt};
use everturn_core::{ActionType, Error, Registry, Result, Status};

use super::definition::{CompiledMessages, Parts, Settings};
use super::{Prompt, PromptOverrides, Registered, value_key};
use crate::model::ModelHandle;
use crate::{MiddlewareSource, ModelReference, ToolReference, default_model, lookup_tool, lookup_tools};

/// The prefix of the registry values that hold the settings with which agents override those of their
/// prompts.
const OVERRIDES: &str = "prompt-overrides/";

/// Registers the settings with which an agent overrides those of its prompt, for [`check_names`].
pub fn note_overrides(registry: &Registry, agent: &str, overrides: &PromptOverrides) {
    registry.set_value(format!("{OVERRIDES}{agent}"), overrides.clone());
}

/// The prefix of the registry values that hold the models that agents use in addition to those of their
/// prompts.
const MODELS: &str = "agent-model/";

/// Registers a model that an agent uses in addition to that of its prompt, for [`check_names`].
pub fn note_model(registry: &Registry, agent: &str, model: &ModelReference) {
    registry.set_value(format!("{MODELS}{agent}"), model.clone());
}

/// The prefix of the registry values that hold the prompts of agents.
const PROMPTS: &str = "agent-prompt/";

/// Registers the prompt of an agent, for [`check_default_model`].
pub fn note_prompt(registry: &Registry, agent: &str, prompt: &Prompt) {
    registry.set_value(
        format!("{PROMPTS}{agent}"),
        Registered(Arc::clone(&prompt.shared)),
    );
}

/// Checks that every prompt of the registry and of agents can be read, and that the models, tools and
/// middleware that it names are registered. Mistakes in files have their locations.
///
/// A plugin that cannot decide because its service does not answer is not a mistake.
pub async fn check_names(registry: &Registry) -> Mistakes {
    let mut mistakes = Mistakes::default();
    for name in names_under(registry, &value_key("")) {
        let Some(source) = registry.value::<Registered>(&value_key(&name)) else {
            continue;
        };
        match source.0.parts(registry) {
            Ok(parts) => {
                let of = Owner::of_prompt(registry, &name, &parts);
                of.check(registry, &parts.settings, &mut mistakes).await;
            }
            Err(error) => mistakes.add(error),
        }
    }
    for agent in names_under(registry, OVERRIDES) {
        let Some(overrides) = registry.value::<PromptOverrides>(&format!("{OVERRIDES}{agent}")) else {
            continue;
        };
        let mut settings = Settings::default();
        match overrides.apply(&mut settings) {
            Ok(()) => {
                let of = Owner {
                    label: format!("agent '{agent}'"),
                    file: None,
                };
                of.check(registry, &settings, &mut mistakes).await;
            }
            Err(error) => mistakes.add(error.context(format_args!("agent '{agent}'"))),
        }
    }
    for agent in names_under(registry, MODELS) {
        if let Some(model) = registry.value::<ModelReference>(&format!("{MODELS}{agent}"))
            && let Some(error) = missing(ModelHandle::resolve(registry, &model.name).await)
        {
            mistakes.add(error.context(format_args!("agent '{agent}'")));
        }
    }
    mistakes
}

/// Returns the middleware of all prompts of the registry, and of agents, each with the owner as messages name
/// it.
pub fn used_middleware(registry: &Registry) -> Vec<(String, MiddlewareSource)> {
    let mut used = Vec::new();
    for name in names_under(registry, &value_key("")) {
        let source = registry.value::<Registered>(&value_key(&name));
        // A prompt that cannot be read is found by `check_names`.
        if let Some(Ok(parts)) = source.map(|source| source.0.parts(registry)) {
            let Owner { label, .. } = Owner::of_prompt(registry, &name, &parts);
            let middleware = parts.settings.middleware.iter();
            used.extend(middleware.map(|source| (label.clone(), source.clone())));
        }
    }
    for agent in names_under(registry, OVERRIDES) {
        let mut settings = Settings::default();
        let overrides = registry.value::<PromptOverrides>(&format!("{OVERRIDES}{agent}"));
        if overrides.is_some_and(|overrides| overrides.apply(&mut settings).is_ok()) {
            let label = format!("agent '{agent}'");
            let middleware = settings.middleware.into_iter();
            used.extend(middleware.map(|source| (label.clone(), source)));
        }
    }
    used
}

/// Checks that the registry's default model exists, or, if there is no default, that every agent names a
/// model.
pub async fn check_default_model(registry: &Registry) -> Mistakes {
    let mut mistakes = Mistakes::default();
    if let Some(model) = default_model(registry) {
        if let Some(error) = missing(ModelHandle::resolve(registry, &model.name).await) {
            mistakes.add(error.context("the default model"));
        }
        return mistakes;
    }
    for agent in names_under(registry, PROMPTS) {
        let prompt = registry.value::<Registered>(&format!("{PROMPTS}{agent}"));
        let overrides = registry.value::<PromptOverrides>(&format!("{OVERRIDES}{agent}"));
        // A prompt or a setting that cannot be read is its own mistake.
        let Some(Ok(parts)) = prompt.map(|prompt| prompt.0.parts(registry)) else {
            continue;
        };
        let mut settings = Settings::default();
        let is_read = overrides.is_none_or(|overrides| overrides.apply(&mut settings).is_ok());
        if is_read && settings.model.is_none() && parts.settings.model.is_none() {
            mistakes.add(Error::failed_precondition(format!(
                "agent '{agent}': it names no model, and there is no default model: name one with `.model(..)`, or set a \
                 default with `default_model(..)`"
            )));
        }
    }
    mistakes
}

fn names_under(registry: &Registry, prefix: &str) -> Vec<String> {
    let keys = registry.value_keys(prefix).into_iter();
    let mut names: Vec<String> = keys
        .filter_map(|key| key.strip_prefix(prefix).map(str::to_owned))
        .collect();
    names.sort_unstable();
    names
}

/// The prompt or agent whose settings are checked, as messages name it.
struct Owner<'p> {
    label: String,
    /// The file in which the settings are written.
    file: Option<&'p ParsedPrompt>,
}

impl<'p> Owner<'p> {
    fn of_prompt(registry: &Registry, name: &str, parts: &'p Parts) -> Self {
        // An agent's own prompt has the agent's name.
        let is_agent = registry.get(&ActionType::AGENT.key(name)).is_some();
        let kind = if is_agent { "agent" } else { "prompt" };
        let file = match &parts.messages {
            Some(CompiledMessages::Template(compiled)) => Some(compiled.parsed()),
            _ => None,
        };
        Self {
            label: format!("{kind} '{name}'"),
            file,
        }
    }

    async fn check(&self, registry: &Registry, settings: &Settings, mistakes: &mut Mistakes) {
        if let Some(model) = &settings.model {
            let found = ModelHandle::resolve(registry, &model.name).await;
            self.note(found, &["model"], mistakes);
        }
        for tool in &settings.tools {
            let ToolReference::Name(name) = tool else { continue };
            let found = if name.ends_with('*') {
                lookup_tools(registry, name).await.map(drop)
            } else {
                lookup_tool(registry, name).await.map(drop)
            };
            self.note(found, &["tools", name], mistakes);
        }
        for middleware in &settings.middleware {
            if let Some(reference) = middleware.reference() {
                self.note(middleware.check(registry), &["use", &reference.name], mistakes);
            }
        }
    }

    fn note<T>(&self, found: Result<T>, path: &[&str], mistakes: &mut Mistakes) {
        if let Some(error) = missing(found) {
            let place: Option<Location> = self.file.and_then(|file| file.locate(path));
            mistakes.add(match place.filter(|place| place.file.is_some()) {
                Some(place) => error.context(place).context(&self.label),
                None => error.context(&self.label),
            });
        }
    }
}

/// Returns the error of a name that is not registered, or that cannot be used as written.
fn missing<T>(found: Result<T>) -> Option<Error> {
    let is_mistake = |error: &Error| matches!(error.status(), Status::NotFound | Status::InvalidArgument);
    found.err().filter(is_mistake)
}

/// Mistakes in prompts and agents, collected so that one error lists all of them.
///
/// Reading a file adds to a list instead of failing at the first mistake. Names are looked up when the
/// program starts, once everything is defined, because a prompt may name a tool that is defined after it.
#[derive(Debug, Default)]
pub struct Mistakes(Vec<Error>);

impl Mistakes {
    /// Adds a mistake.
    pub fn add(&mut self, mistake: Error) {
        self.0.push(mistake);
    }

    /// Adds the mistakes of another collection, in their order.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an error if there are mistakes.
    ///
    /// # Errors
    /// A single mistake as it is; `INVALID_ARGUMENT` that lists them, a line each, if there are several.
    pub fn into_result(mut self) -> Result<()> {
        if self.0.len() < 2 {
            return self.0.pop().map_or(Ok(()), Err);
        }
        let mut message = format!("{} mistakes in prompts and agents:", self.0.len());
        for mistake in &self.0 {
            // Writing to a string cannot fail.
            let _ = write!(message, "\n  {}", mistake.message().replace('\n', "\n  "));
        }
        Err(Error::invalid_argument(message))
    }
}
