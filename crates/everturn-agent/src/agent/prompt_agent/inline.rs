//! Agents whose prompt is given inline.

use everturn_ai::prompt::{ContentSlot, MessagesSlot, PromptDefinition, PromptOverrides, note_prompt};
use everturn_ai::{Document, IntoMiddleware, IntoTool, ModelReference, OutputInstructions, ToolChoice};
use everturn_core::{Registry, Result};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::check_tools;
use crate::agent::{AgentOrigin, AgentProgram, sealed};
use crate::invocation::{AgentPrompt, prompt_function};
use crate::{AgentBuilder, AgentKind, CustomState};

/// Defines an agent whose prompt is given inline, and registered under the agent's name.
///
/// ```
/// use everturn_agent::agent;
/// use everturn_ai::{ModelInfo, ModelResponse, define_model};
/// use everturn_core::{Registry, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// define_model(&registry, "cook", ModelInfo::default(), |_request, _emitter, _context| async {
///     Ok(ModelResponse::text_of("Leek soup."))
/// })?;
///
/// let chef = agent(&registry, "chef").model("cook").system("You are a chef.").define()?;
///
/// assert_eq!(chef.run_text("Something with leeks?").await?.text(), "Leek soup.");
/// # Ok(()) }
/// ```
pub fn agent(registry: &Registry, name: impl Into<String>) -> AgentBuilder<Value, InlinePrompt> {
    let name = name.into();
    let prompt = PromptDefinition::new(name.clone());
    AgentBuilder::new(registry, name, InlinePrompt { prompt })
}

/// The kind of an agent around an inline prompt.
pub struct InlinePrompt {
    prompt: PromptDefinition,
}

impl<S, T, O> AgentBuilder<S, InlinePrompt, T, O> {
    fn define_prompt(mut self, change: impl FnOnce(PromptDefinition) -> PromptDefinition) -> Self {
        self.kind.prompt = change(self.kind.prompt);
        self
    }

    /// Sets the type of the agent's custom state.
    pub fn custom<C: CustomState>(self) -> AgentBuilder<C, InlinePrompt, T, O> {
        self.with_custom()
    }

    forwards! {
        prompt;

        /// Sets the model, by name or with settings; the registry's default if not given.
        model(model: impl Into<ModelReference>);

        /// Sets the settings for the model.
        config(config: impl Serialize);
    }

    /// The type of the prompt's input: [prompt inputs](AgentBuilder::prompt_input), also those of clients,
    /// are checked against its schema.
    pub fn prompt_input_type<I: JsonSchema>(self) -> Self {
        let schema = everturn_core::Schema::of::<I>();
        self.define_prompt(|prompt| prompt.input_schema(schema))
    }

    forwards! {
        prompt;

        /// Sets the system text: a template, parts, or [computed](ContentSlot::computed).
        system(system: impl Into<ContentSlot>);

        /// Sets the messages around the conversation: a template with roles, or
        /// [computed](MessagesSlot::computed).
        messages(messages: impl Into<MessagesSlot>);
    }

    /// Sets a message that is added as the user's after the conversation, on every turn.
    pub fn user_prompt(self, prompt: impl Into<ContentSlot>) -> Self {
        self.define_prompt(|definition| definition.prompt(prompt))
    }

    forwards! {
        prompt;

        /// Adds a tool that the model may call.
        tool(tool: impl IntoTool);

        /// Adds tools that the model may call.
        tools(tools: impl IntoIterator<Item = impl IntoTool>);

        /// Sets whether the model may, must or must not call tools.
        tool_choice(choice: ToolChoice);

        /// Sets in how many rounds of a turn the model may request tools before the turn fails.
        max_rounds(rounds: u32);

        /// Adds documents to answer from.
        docs(docs: impl IntoIterator<Item = impl Into<Document>>);
    }

    /// Declares that answers are JSON of this type; [`AgentReply::data`](crate::AgentReply::data) parses
    /// them.
    pub fn output<D: JsonSchema>(self) -> Self {
        let schema = everturn_core::Schema::of::<D>();
        self.define_prompt(|prompt| prompt.output_schema(&schema))
    }

    forwards! {
        prompt;

        /// Sets the format of answers: `text`, `json`, `array`, `jsonl`, `enum`, or a custom one.
        output_format(format: impl Into<String>);

        /// Sets whether instructions about the format are added to the request, and their text.
        output_instructions(instructions: impl Into<OutputInstructions>);

        /// Adds middleware for every turn; the first one added is the outermost.
        use_middleware(middleware: impl IntoMiddleware);
    }
}

impl sealed::Sealed for InlinePrompt {}

impl<S: CustomState> AgentKind<S> for InlinePrompt {
    /// Fails as [`PromptDefinition::define`] does, and if a tool needs another custom state than the agent's.
    fn into_program(self, agent: &AgentOrigin<'_>) -> Result<AgentProgram<S>> {
        let respond_only = check_tools::<S>(agent.name, agent.registry, self.prompt.given_tools())?;
        let prompt = self.prompt.define(agent.registry)?;
        note_prompt(agent.registry, agent.name, &prompt);
        let input = agent.prompt_input.cloned().unwrap_or_default();
        Ok(AgentProgram {
            function: prompt_function(
                AgentPrompt::new(prompt.clone(), agent.registry),
                input,
                PromptOverrides::new(),
            ),
            prompt: Some(prompt),
            respond_only,
        })
    }
}
