//! Settings that override a prompt's own.

use everturn_core::{Error, Result, Schema};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::definition::Settings;
use crate::request::laid_over;
use crate::{
    Document, GenerateActionOutputConfig, IntoMiddleware, IntoTool, MiddlewareSource, ModelReference,
    OutputInstructions, ToolChoice, ToolReference,
};

/// Settings that override those of a prompt. Settings that are not given stay the prompt's.
///
/// Settings for the model are merged into the prompt's key by key. The output (type, format and instructions
/// together), tools, documents and middleware replace the prompt's.
///
/// A [`PromptCall`](super::PromptCall) has them for one use of a prompt, and an agent for all its turns. As
/// an extension of the context of an agent's invocation they are the call's, and override the agent's.
#[derive(Clone, Default)]
pub struct PromptOverrides {
    model: Option<ModelReference>,
    config: Option<Result<Value>>,
    docs: Option<Vec<Document>>,
    tools: Option<Vec<ToolReference>>,
    tool_choice: Option<ToolChoice>,
    max_rounds: Option<u32>,
    return_tool_requests: Option<bool>,
    output: GenerateActionOutputConfig,
    middleware: Option<Vec<MiddlewareSource>>,
    is_given: bool,
}

impl PromptOverrides {
    /// Creates overrides that change nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self.is_given = true;
        self
    }

    /// Sets the model, by name or with settings.
    pub fn model(self, model: impl Into<ModelReference>) -> Self {
        self.set(|overrides| overrides.model = Some(model.into()))
    }

    /// Sets settings for the model, laid over the prompt's key by key.
    pub fn config(self, config: impl Serialize) -> Self {
        self.set(|overrides| overrides.config = Some(serde_json::to_value(config).map_err(Error::from)))
    }

    /// Sets the documents to answer from.
    pub fn docs(self, docs: impl IntoIterator<Item = impl Into<Document>>) -> Self {
        self.set(|overrides| overrides.docs = Some(docs.into_iter().map(Into::into).collect()))
    }

    /// Adds a tool to those that replace the prompt's.
    pub fn tool(self, tool: impl IntoTool) -> Self {
        self.set(|overrides| tool.into_tool().add_to(overrides.tools.get_or_insert_default()))
    }

    /// Sets the tools; an empty list leaves the model without any.
    pub fn tools(self, tools: impl IntoIterator<Item = impl IntoTool>) -> Self {
        self.set(|overrides| overrides.tools = Some(tools.into_iter().map(IntoTool::into_tool).collect()))
    }

    /// Returns the tools, if they are overridden.
    pub fn given_tools(&self) -> Option<&[ToolReference]> {
        self.tools.as_deref()
    }

    /// Sets whether the model may, must or must not call tools.
    pub fn tool_choice(self, choice: ToolChoice) -> Self {
        self.set(|overrides| overrides.tool_choice = Some(choice))
    }

    /// Sets in how many rounds the model may ask for tools before the call fails.
    pub fn max_rounds(self, rounds: u32) -> Self {
        self.set(|overrides| overrides.max_rounds = Some(rounds))
    }

    /// Sets whether tool requests are returned to the caller instead of running the tools.
    pub fn return_tool_requests(self, returns: bool) -> Self {
        self.set(|overrides| overrides.return_tool_requests = Some(returns))
    }

    /// Requests JSON output of this type.
    pub fn output<T: JsonSchema>(self) -> Self {
        self.output_schema(&Schema::of::<T>())
    }

    /// Requests JSON output of this schema.
    pub fn output_schema(self, schema: &Schema) -> Self {
        self.set(|overrides| overrides.output.json_schema = Some(schema.as_json().clone()))
    }

    /// Sets the format of the answer: `text`, `json`, `array`, `jsonl`, `enum`, or a custom format.
    pub fn output_format(self, format: impl Into<String>) -> Self {
        self.set(|overrides| overrides.output.format = Some(format.into()))
    }

    /// Sets whether, and with which text, the prompt describes the output format.
    pub fn output_instructions(self, instructions: impl Into<OutputInstructions>) -> Self {
        self.set(|overrides| overrides.output.instructions = Some(instructions.into()))
    }

    /// Adds middleware to that which replaces the prompt's; the first one is the outermost.
    pub fn use_middleware(self, middleware: impl IntoMiddleware) -> Self {
        self.set(|overrides| {
            overrides
                .middleware
                .get_or_insert_default()
                .push(middleware.into_middleware());
        })
    }

    /// Returns whether nothing is overridden.
    pub fn is_empty(&self) -> bool {
        !self.is_given
    }

    /// # Errors
    /// If the settings for the model cannot be written as JSON.
    pub(super) fn apply(&self, settings: &mut Settings) -> Result<()> {
        fn replace<T: Clone>(setting: &mut T, given: Option<&T>) {
            if let Some(given) = given {
                setting.clone_from(given);
            }
        }
        fn prefer<T: Clone>(setting: &mut Option<T>, given: Option<&T>) {
            if let Some(given) = given {
                *setting = Some(given.clone());
            }
        }
        if let Some(config) = self.config.clone().transpose()? {
            settings.config = Some(laid_over(settings.config.take(), config));
        }
        replace(&mut settings.docs, self.docs.as_ref());
        replace(&mut settings.tools, self.tools.as_ref());
        replace(&mut settings.middleware, self.middleware.as_ref());
        prefer(&mut settings.model, self.model.as_ref());
        prefer(&mut settings.tool_choice, self.tool_choice.as_ref());
        prefer(&mut settings.max_rounds, self.max_rounds.as_ref());
        prefer(
            &mut settings.return_tool_requests,
            self.return_tool_requests.as_ref(),
        );
        if self.output != GenerateActionOutputConfig::default() {
            settings.output.clone_from(&self.output);
        }
        Ok(())
    }
}

everturn_core::opaque_debug!(PromptOverrides, model);
