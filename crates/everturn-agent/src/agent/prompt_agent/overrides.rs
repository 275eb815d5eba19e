//! Settings of an agent that go before those of its named prompt.

use everturn_ai::prompt::PromptOverrides;
use everturn_ai::{Document, IntoMiddleware, IntoTool, ModelReference, OutputInstructions, ToolChoice};
use schemars::JsonSchema;
use serde::Serialize;

use super::NamedPrompt;
use crate::{AgentBuilder, CustomState};

/// Settings that go before the prompt's own, and after those of the call ([`ChatBuilder::overrides`]).
///
/// | given by | goes before |
/// |---|---|
/// | the call: [`ChatBuilder::overrides`] | all others |
/// | the agent: the methods here | the prompt, the defaults |
/// | the prompt: its file or definition | the defaults |
/// | the application: its default model | |
///
/// ```
/// # use everturn_agent::prompt_agent;
/// # use everturn_ai::prompt::{PromptDefinition, PromptOverrides};
/// # use everturn_ai::{ModelInfo, ModelResponse, define_model};
/// # use everturn_core::{Registry, Result};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let registry = Registry::new();
/// # for name in ["small", "large", "largest"] {
/// #     define_model(&registry, name, ModelInfo::default(), move |_, _, _| async move { Ok(ModelResponse::text_of(name)) })?;
/// # }
/// PromptDefinition::new("critic").model("small").define(&registry)?;
///
/// let critic = prompt_agent(&registry, "critic").model("large").define()?;
///
/// assert_eq!(critic.run_text("My soup?").await?.text(), "large");
/// let once = critic.chat().overrides(PromptOverrides::new().model("largest"));
/// assert_eq!(once.run("My soup?").await?.text(), "largest");
/// # Ok(()) }
/// ```
///
/// [`ChatBuilder::overrides`]: crate::ChatBuilder::overrides
impl<S: CustomState, T, O> AgentBuilder<S, NamedPrompt, T, O> {
    /// Sets the model in place of the prompt's.
    pub fn model(self, model: impl Into<ModelReference>) -> Self {
        self.overriding(|overrides| overrides.model(model))
    }

    /// Lays settings for the model over the prompt's, key by key.
    pub fn config(self, config: impl Serialize) -> Self {
        self.overriding(|overrides| overrides.config(config))
    }

    /// Adds a tool to those that take the place of the prompt's.
    pub fn tool(self, tool: impl IntoTool) -> Self {
        self.overriding(|overrides| overrides.tool(tool))
    }

    /// Sets the tools in place of the prompt's; an empty list leaves the model without any.
    pub fn tools(self, tools: impl IntoIterator<Item = impl IntoTool>) -> Self {
        self.overriding(|overrides| overrides.tools(tools))
    }

    /// Decides whether the model may, must or must not call tools.
    pub fn tool_choice(self, choice: ToolChoice) -> Self {
        self.overriding(|overrides| overrides.tool_choice(choice))
    }

    /// Sets in how many rounds of a turn the model may request tools before the turn fails.
    pub fn max_rounds(self, rounds: u32) -> Self {
        self.overriding(|overrides| overrides.max_rounds(rounds))
    }

    /// Sets the documents to answer from, in place of the prompt's.
    pub fn docs(self, docs: impl IntoIterator<Item = impl Into<Document>>) -> Self {
        self.overriding(|overrides| overrides.docs(docs))
    }

    /// Has the model answer with JSON of this type; [`AgentReply::data`](crate::AgentReply::data) reads it.
    pub fn output<D: JsonSchema>(self) -> Self {
        self.overriding(PromptOverrides::output::<D>)
    }

    /// Sets the format of answers: `text`, `json`, `array`, `jsonl`, `enum`, or a custom one.
    pub fn output_format(self, format: impl Into<String>) -> Self {
        self.overriding(|overrides| overrides.output_format(format))
    }

    /// Sets whether instructions about the format are added to the request, and their text.
    pub fn output_instructions(self, instructions: impl Into<OutputInstructions>) -> Self {
        self.overriding(|overrides| overrides.output_instructions(instructions))
    }

    /// Adds middleware to that which takes the place of the prompt's; of several the first is the outermost.
    pub fn use_middleware(self, middleware: impl IntoMiddleware) -> Self {
        self.overriding(|overrides| overrides.use_middleware(middleware))
    }
}
