//! Defining a prompt in Rust.

use std::marker::PhantomData;
use std::sync::Arc;

use everturn_core::{Error, Registry, Result, Schema};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::library::{compiler, template_error};
use super::rendered::constant_content;
use super::slot::{ContentSlot, ContentSource, MessagesSlot, MessagesSource};
use super::{Prompt, PromptSource, prompt_action};
use crate::{
    Document, GenerateActionOutputConfig, IntoMiddleware, IntoTool, JsonObject, MiddlewareSource,
    ModelReference, OutputInstructions, ToolChoice, ToolReference,
};

/// A prompt before its definition. `I` is its input type and `O` its output type.
///
/// Templates are compiled when the prompt is defined, which reports mistakes in them. A second call of a
/// setter replaces the first; tools, documents and middleware add up.
#[must_use = "a prompt exists once it is defined"]
pub struct PromptDefinition<I = Value, O = Value> {
    name: String,
    parts: Draft,
    types: PhantomData<fn(I) -> O>,
}

/// The content of a prompt before its templates are compiled.
#[derive(Default)]
struct Draft {
    settings: Settings,
    config: Option<Result<Value>>,
    input_default: Option<Result<Value>>,
    system: Option<ContentSlot>,
    messages: Option<MessagesSlot>,
    prompt: Option<ContentSlot>,
}

/// The settings of a prompt other than its messages.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) description: Option<String>,
    pub(crate) model: Option<ModelReference>,
    pub(crate) config: Option<Value>,
    pub(crate) tools: Vec<ToolReference>,
    pub(crate) tool_choice: Option<ToolChoice>,
    pub(crate) max_rounds: Option<u32>,
    pub(crate) return_tool_requests: Option<bool>,
    pub(crate) output: GenerateActionOutputConfig,
    pub(crate) docs: Vec<Document>,
    pub(crate) middleware: Vec<MiddlewareSource>,
    pub(crate) input_schema: Option<Schema>,
    pub(crate) input_default: Option<JsonObject>,
    pub(crate) metadata: JsonObject,
    pub(crate) variant: Option<String>,
    /// The template's source, for tools that show it.
    pub(crate) template: Option<String>,
}

/// A prompt's settings and its compiled slots.
pub(crate) struct Parts {
    /// Shared with every rendering.
    pub(crate) settings: Arc<Settings>,
    pub(crate) system: Option<CompiledContent>,
    pub(crate) messages: Option<CompiledMessages>,
    pub(crate) prompt: Option<CompiledContent>,
}

pub(crate) enum CompiledContent {
    Template(dotprompt::Prompt),
    Other(ContentSlot),
}

pub(crate) enum CompiledMessages {
    Template(dotprompt::Prompt),
    Other(MessagesSlot),
}

/// The source of parts that do not change.
struct Fixed(Arc<Parts>);

impl PromptSource for Fixed {
    fn parts(&self, _registry: &Registry) -> Result<Arc<Parts>> {
        Ok(Arc::clone(&self.0))
    }
}

impl PromptDefinition {
    /// Creates an empty prompt definition with a name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            parts: Draft::default(),
            types: PhantomData,
        }
    }
}

impl<I, O> PromptDefinition<I, O> {
    fn edit(mut self, change: impl FnOnce(&mut Draft)) -> Self {
        change(&mut self.parts);
        self
    }

    fn set(self, change: impl FnOnce(&mut Settings)) -> Self {
        self.edit(|parts| change(&mut parts.settings))
    }

    /// Sets the description for people and tools.
    pub fn description(self, description: impl Into<String>) -> Self {
        self.set(|settings| settings.description = Some(description.into()))
    }

    /// Sets the type of the input.
    pub fn input<T: Serialize + JsonSchema>(self) -> PromptDefinition<T, O> {
        let typed = PromptDefinition {
            name: self.name,
            parts: self.parts,
            types: PhantomData,
        };
        typed.set(|settings| settings.input_schema = Some(Schema::of::<T>()))
    }

    /// Sets the input's JSON Schema, for a prompt whose input type is known only at run time.
    pub fn input_schema(self, schema: Schema) -> Self {
        self.set(|settings| settings.input_schema = Some(schema))
    }

    /// Sets an object of defaults, used key by key where a caller gives no input.
    pub fn input_default(self, default: impl Serialize) -> Self {
        self.edit(|parts| parts.input_default = Some(serde_json::to_value(default).map_err(Error::from)))
    }

    /// Sets the model, by name or with settings; the registry's default if not given.
    pub fn model(self, model: impl Into<ModelReference>) -> Self {
        self.set(|settings| settings.model = Some(model.into()))
    }

    /// Settings for the model.
    pub fn config(self, config: impl Serialize) -> Self {
        self.edit(|parts| parts.config = Some(serde_json::to_value(config).map_err(Error::from)))
    }

    /// Sets the system text: a template, parts, or [computed](ContentSlot::computed).
    pub fn system(self, system: impl Into<ContentSlot>) -> Self {
        self.edit(|parts| parts.system = Some(system.into()))
    }

    /// Sets the messages: a template with roles, fixed messages, or [computed](MessagesSlot::computed).
    pub fn messages(self, messages: impl Into<MessagesSlot>) -> Self {
        self.edit(|parts| parts.messages = Some(messages.into()))
    }

    /// Sets the user's message: a template, parts, or [computed](ContentSlot::computed).
    pub fn prompt(self, prompt: impl Into<ContentSlot>) -> Self {
        self.edit(|parts| parts.prompt = Some(prompt.into()))
    }

    /// Adds a tool that the model may call; it replaces an earlier one of the same name.
    pub fn tool(self, tool: impl IntoTool) -> Self {
        self.set(|settings| tool.into_tool().add_to(&mut settings.tools))
    }

    /// Adds tools that the model may call, each as with [`PromptDefinition::tool`].
    pub fn tools(self, tools: impl IntoIterator<Item = impl IntoTool>) -> Self {
        tools.into_iter().fold(self, Self::tool)
    }

    /// Returns the tools given so far.
    pub fn given_tools(&self) -> &[ToolReference] {
        &self.parts.settings.tools
    }

    /// Sets whether the model may, must or must not call tools.
    pub fn tool_choice(self, choice: ToolChoice) -> Self {
        self.set(|settings| settings.tool_choice = Some(choice))
    }

    /// Sets in how many rounds the model may ask for tools before the call fails.
    pub fn max_rounds(self, rounds: u32) -> Self {
        self.set(|settings| settings.max_rounds = Some(rounds))
    }

    /// Sets whether to return tool requests to the caller instead of running the tools.
    pub fn return_tool_requests(self, returns: bool) -> Self {
        self.set(|settings| settings.return_tool_requests = Some(returns))
    }

    /// Adds documents to answer from.
    pub fn docs(self, docs: impl IntoIterator<Item = impl Into<Document>>) -> Self {
        self.set(|settings| settings.docs.extend(docs.into_iter().map(Into::into)))
    }

    /// Sets the type of the output.
    pub fn output<T: JsonSchema>(self) -> PromptDefinition<I, T> {
        let typed = PromptDefinition {
            name: self.name,
            parts: self.parts,
            types: PhantomData,
        };
        typed.set(|settings| settings.output.json_schema = Some(Schema::of::<T>().as_json().clone()))
    }

    /// Sets the output's JSON Schema.
    pub fn output_schema(self, schema: &Schema) -> Self {
        self.set(|settings| settings.output.json_schema = Some(schema.as_json().clone()))
    }

    /// Sets the output's format: `text`, `json`, `array`, `jsonl`, `enum`, or a custom format.
    pub fn output_format(self, format: impl Into<String>) -> Self {
        self.set(|settings| settings.output.format = Some(format.into()))
    }

    /// Sets whether, and with which text, the prompt describes the output format.
    pub fn output_instructions(self, instructions: impl Into<OutputInstructions>) -> Self {
        self.set(|settings| settings.output.instructions = Some(instructions.into()))
    }

    /// Adds middleware for every use; the first one added is the outermost.
    pub fn use_middleware(self, middleware: impl IntoMiddleware) -> Self {
        self.set(|settings| settings.middleware.push(middleware.into_middleware()))
    }

    /// Adds an entry to the prompt's metadata.
    pub fn metadata(self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.set(|settings| {
            settings.metadata.insert(key.into(), value.into());
        })
    }
}

impl<I: Serialize, O> PromptDefinition<I, O> {
    /// Defines the prompt and registers it.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is a prompt of that name; `INVALID_ARGUMENT` for a template that does not
    /// compile, with its line and column, or a default that is not an object.
    pub fn define(self, registry: &Registry) -> Result<Prompt<I, O>> {
        let name = self.name.clone();
        let source = self.compile(registry)?;
        prompt_action::register(registry, &name, &source)?;
        Ok(Prompt::from_source(registry, &name, source))
    }

    fn compile(self, registry: &Registry) -> Result<Arc<dyn PromptSource>> {
        let Draft {
            mut settings,
            config,
            input_default,
            system,
            messages,
            prompt,
        } = self.parts;
        // Errors of setters are kept until here, because builder methods do not fail.
        settings.config = config.transpose()?;
        settings.input_default = match input_default.transpose()? {
            None | Some(Value::Null) => None,
            Some(Value::Object(default)) => Some(default),
            Some(_) => {
                let message = format!("the default input of prompt '{}' must be an object", self.name);
                return Err(Error::invalid_argument(message));
            }
        };
        let compile = |template: &str| {
            compiler(registry)
                .compile_named(&self.name, template)
                .map_err(|error| template_error(&self.name, error))
        };
        let content = |slot: ContentSlot| -> Result<CompiledContent> {
            match slot.0 {
                ContentSource::Template(template) => {
                    let compiled = compile(&template)?;
                    // A template without expressions is rendered once; if that fails, the error is reported
                    // where the prompt is used.
                    let constant = Some(&compiled).filter(|_| !template.contains("{{"));
                    let constant = constant.and_then(|template| constant_content(&self.name, template).ok());
                    Ok(constant.map_or(CompiledContent::Template(compiled), |content| {
                        CompiledContent::Other(ContentSlot(ContentSource::Parts(content)))
                    }))
                }
                other => Ok(CompiledContent::Other(ContentSlot(other))),
            }
        };
        let parts = Parts {
            system: system.map(content).transpose()?,
            messages: messages
                .map(|slot| match slot.0 {
                    MessagesSource::Template(template) => compile(&template).map(CompiledMessages::Template),
                    other => Ok(CompiledMessages::Other(MessagesSlot(other))),
                })
                .transpose()?,
            prompt: prompt.map(content).transpose()?,
            settings: Arc::new(settings),
        };
        Ok(Arc::new(Fixed(Arc::new(parts))))
    }
}

everturn_core::opaque_debug!(PromptDefinition<I, O>, name);
