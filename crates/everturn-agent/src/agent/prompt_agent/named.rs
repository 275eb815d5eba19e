//! Agents around a registered prompt, defined in Rust or in a `.prompt` file, with settings that go before
//! the prompt's.

use everturn_ai::prompt::{Prompt, PromptOverrides, note_overrides, note_prompt};
use everturn_ai::{
    Document, IntoMiddleware, IntoTool, Messages, ModelReference, OutputInstructions, ToolChoice,
};
use everturn_core::{Context, Error, Registry, Result};
use futures::FutureExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::check_tools;
use crate::agent::{AgentOrigin, AgentProgram, sealed};
use crate::invocation::{AgentPrompt, prompt_function};
use crate::{AgentBuilder, AgentKind, CustomState};

/// Defines an agent around the registered prompt of the same name, or of another (see
/// [`AgentBuilder::prompt`]).
///
/// ```
/// use everturn_agent::prompt_agent;
/// use everturn_ai::prompt::PromptDefinition;
/// use everturn_ai::{ModelInfo, ModelResponse, define_model};
/// use everturn_core::{Registry, Result};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// define_model(&registry, "critic", ModelInfo::default(), |request, _emitter, _context| async move {
///     let system = request.messages.first().map(|message| message.text().into_owned());
///     Ok(ModelResponse::text_of(system.unwrap_or_default()))
/// })?;
/// PromptDefinition::new("reviewer").model("critic").system("Be {{tone}}.").define(&registry)?;
///
/// let kind = prompt_agent(&registry, "kind").prompt("reviewer", json!({"tone": "kind"})).define()?;
/// let harsh = prompt_agent(&registry, "harsh").prompt("reviewer", json!({"tone": "harsh"})).define()?;
///
/// assert_eq!(kind.run_text("My soup?").await?.text(), "Be kind.");
/// assert_eq!(harsh.run_text("My soup?").await?.text(), "Be harsh.");
/// # Ok(()) }
/// ```
pub fn prompt_agent(registry: &Registry, name: impl Into<String>) -> AgentBuilder<Value, NamedPrompt> {
    let kind = NamedPrompt {
        prompt: None,
        input: None,
        overrides: PromptOverrides::new(),
    };
    AgentBuilder::new(registry, name, kind)
}

/// The kind of an agent around a registered prompt.
pub struct NamedPrompt {
    prompt: Option<PromptOf>,
    /// The input that came with a typed prompt.
    input: Option<Result<Value>>,
    overrides: PromptOverrides,
}

/// The prompt of an agent: by name, or as it is.
enum PromptOf {
    Name(String),
    Given(Prompt),
}

impl<S: CustomState, T, O> AgentBuilder<S, NamedPrompt, T, O> {
    /// Sets the prompt, if it does not have the agent's name, and the agent's [prompt
    /// input](AgentBuilder::prompt_input); null leaves the prompt input as it is.
    ///
    /// The input is checked against the prompt's schema when the agent is defined. An agent without an input
    /// leaves it to its callers: a session that begins without a required field is refused.
    pub fn prompt(mut self, name: impl Into<String>, input: impl Into<Value>) -> Self {
        self.kind.prompt = Some(PromptOf::Name(name.into()));
        self.kind.input = None;
        match input.into() {
            Value::Null => self,
            input => self.prompt_input(input),
        }
    }

    /// Sets the prompt and its input by their types; `None` for the input leaves it to the callers.
    ///
    /// ```
    /// # use everturn_agent::prompt_agent;
    /// # use everturn_ai::prompt::PromptDefinition;
    /// # use everturn_ai::{ModelInfo, ModelResponse, define_model};
    /// # use everturn_core::{Registry, Result};
    /// # use schemars::JsonSchema;
    /// # use serde::Serialize;
    /// #[derive(Serialize, JsonSchema)]
    /// struct Role {
    ///     tone: String,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// # define_model(&registry, "critic", ModelInfo::default(), |request, _emitter, _context| async move {
    /// #     let system = request.messages.first().map(|message| message.text().into_owned());
    /// #     Ok(ModelResponse::text_of(system.unwrap_or_default()))
    /// # })?;
    /// let reviewer =
    ///     PromptDefinition::new("reviewer").input::<Role>().model("critic").system("Be {{tone}}.").define(&registry)?;
    ///
    /// let critic = prompt_agent(&registry, "critic").prompt_ref(&reviewer, Role { tone: "kind".into() }).define()?;
    ///
    /// assert_eq!(critic.run_text("My soup?").await?.text(), "Be kind.");
    /// # Ok(()) }
    /// ```
    ///
    /// An input of another type does not compile:
    ///
    /// ```compile_fail
    /// # use everturn_agent::prompt_agent;
    /// # use everturn_ai::prompt::{Prompt, PromptDefinition};
    /// # use everturn_core::{Registry, Result};
    /// # use schemars::JsonSchema;
    /// # use serde::Serialize;
    /// # #[derive(Serialize, JsonSchema)]
    /// # struct Role { tone: String }
    /// #[derive(Serialize, JsonSchema)]
    /// struct Recipe {
    ///     dish: String,
    /// }
    ///
    /// # fn wrong(registry: Registry, reviewer: Prompt<Role>) -> Result<()> {
    /// prompt_agent(&registry, "critic").prompt_ref(&reviewer, Recipe { dish: "soup".into() }).define()?;
    /// # Ok(()) }
    /// ```
    pub fn prompt_ref<I: Serialize, P>(mut self, prompt: &Prompt<I, P>, input: impl Into<Option<I>>) -> Self {
        self.kind.prompt = Some(PromptOf::Given(prompt.untyped()));
        match input.into().map(|input| serde_json::to_value(&input)) {
            None => self.kind.input = None,
            Some(Err(error)) => self.kind.input = Some(Err(error.into())),
            Some(Ok(input)) => return self.prompt_input(input),
        }
        self
    }

    /// Sets the type of the agent's custom state.
    pub fn custom<C: CustomState>(self) -> AgentBuilder<C, NamedPrompt, T, O> {
        self.with_custom()
    }

    fn overriding(mut self, change: impl FnOnce(PromptOverrides) -> PromptOverrides) -> Self {
        self.kind.overrides = change(self.kind.overrides);
        self
    }
}

impl sealed::Sealed for NamedPrompt {}

impl<S: CustomState> AgentKind<S> for NamedPrompt {
    /// Fails with `NOT_FOUND` if the prompt does not exist, with `INVALID_ARGUMENT` if one of its tools needs
    /// another custom state than the agent's, and with the errors of rendering: the prompt is rendered once
    /// here, so that a broken one is found when the program starts.
    fn into_program(self, agent: &AgentOrigin<'_>) -> Result<AgentProgram<S>> {
        let of_agent = |error: Error| error.context(format_args!("agent '{}'", agent.name));
        if let Some(Err(error)) = self.input {
            return Err(of_agent(error.context("the prompt input")));
        }
        let prompt = match self.prompt {
            Some(PromptOf::Given(prompt)) => prompt,
            Some(PromptOf::Name(name)) => Prompt::lookup(agent.registry, &name).map_err(of_agent)?,
            None => Prompt::lookup(agent.registry, agent.name).map_err(of_agent)?,
        };
        let respond_only = match self.overrides.given_tools() {
            Some(tools) => check_tools::<S>(agent.name, agent.registry, tools)?,
            None => check_tools::<S>(agent.name, agent.registry, &prompt.tools()?)?,
        };
        let input = agent.prompt_input.cloned().unwrap_or_default();
        let rendering = prompt.render_around(&input, Messages::new(), Context::new());
        // A prompt whose computed parts wait for something cannot be tried here.
        if let Some(rendered) = rendering.now_or_never() {
            let rendered = rendered.and_then(|rendered| rendered.overridden(&self.overrides));
            rendered.map_err(of_agent)?;
        }
        note_overrides(agent.registry, agent.name, &self.overrides);
        note_prompt(agent.registry, agent.name, &prompt);
        Ok(AgentProgram {
            function: prompt_function(
                AgentPrompt::new(prompt.clone(), agent.registry),
                input,
                self.overrides,
            ),
            prompt: Some(prompt),
            respond_only,
        })
    }
}

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
    forwards! {
        overrides;

        /// Sets the model in place of the prompt's.
        model(model: impl Into<ModelReference>);

        /// Lays settings for the model over the prompt's, key by key.
        config(config: impl Serialize);

        /// Adds a tool to those that take the place of the prompt's.
        tool(tool: impl IntoTool);

        /// Sets the tools in place of the prompt's; an empty list leaves the model without any.
        tools(tools: impl IntoIterator<Item = impl IntoTool>);

        /// Decides whether the model may, must or must not call tools.
        tool_choice(choice: ToolChoice);

        /// Sets in how many rounds of a turn the model may request tools before the turn fails.
        max_rounds(rounds: u32);

        /// Sets the documents to answer from, in place of the prompt's.
        docs(docs: impl IntoIterator<Item = impl Into<Document>>);
    }

    /// Has the model answer with JSON of this type; [`AgentReply::data`](crate::AgentReply::data) reads it.
    pub fn output<D: JsonSchema>(self) -> Self {
        self.overriding(PromptOverrides::output::<D>)
    }

    forwards! {
        overrides;

        /// Sets the format of answers: `text`, `json`, `array`, `jsonl`, `enum`, or a custom one.
        output_format(format: impl Into<String>);

        /// Sets whether instructions about the format are added to the request, and their text.
        output_instructions(instructions: impl Into<OutputInstructions>);

        /// Adds middleware to that which takes the place of the prompt's; of several the first is the
        /// outermost.
        use_middleware(middleware: impl IntoMiddleware);
    }
}
