//! Agents around a registered prompt, defined in Rust or in a `.prompt` file.

use std::sync::Arc;

use everturn_ai::Messages;
use everturn_ai::prompt::Prompt;
use everturn_core::{Context, Registry, Result};
use futures::FutureExt;
use serde_json::Value;

use super::tools::check_tools;
use crate::agent::{AgentOrigin, sealed};
use crate::invocation::{AgentFunction, prompt_function};
use crate::{AgentBuilder, AgentKind, CustomState};

/// Defines an agent around the registered prompt of the same name, or of another (see [`AgentBuilder::prompt`]).
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
    AgentBuilder::new(registry, name, NamedPrompt { prompt: None })
}

/// The kind of an agent around a registered prompt.
pub struct NamedPrompt {
    prompt: Option<String>,
}

impl<S: CustomState> AgentBuilder<S, NamedPrompt> {
    /// Sets the prompt, if it does not have the agent's name, and the agent's [prompt
    /// input](AgentBuilder::prompt_input); null leaves the prompt input as it is.
    pub fn prompt(mut self, name: impl Into<String>, input: impl Into<Value>) -> Self {
        self.kind.prompt = Some(name.into());
        match input.into() {
            Value::Null => self,
            input => self.prompt_input(input),
        }
    }

    /// Sets the type of the agent's custom state.
    pub fn state<T: CustomState>(self) -> AgentBuilder<T, NamedPrompt> {
        self.with_state()
    }
}

impl sealed::Sealed for NamedPrompt {}

impl<S: CustomState> AgentKind<S> for NamedPrompt {
    /// Fails with `NOT_FOUND` if there is no such prompt, with `INVALID_ARGUMENT` if one of its tools needs another
    /// custom state than the agent's, and with the errors of rendering: the prompt is rendered once here, so that a
    /// broken one is found when the program starts.
    fn into_function(self, agent: &AgentOrigin<'_>) -> Result<Arc<AgentFunction<S>>> {
        let prompt = Prompt::lookup(agent.registry, self.prompt.as_deref().unwrap_or(agent.name))
            .map_err(|error| error.context(format_args!("agent '{}'", agent.name)))?;
        check_tools::<S>(agent.name, agent.registry, &prompt.tools()?)?;
        let input = agent.prompt_input.cloned().unwrap_or_default();
        let rendering = prompt.render_around(&input, Messages::new(), Context::new());
        // A prompt whose computed parts wait for something cannot be tried here.
        if let Some(Err(error)) = rendering.now_or_never() {
            return Err(error.context(format_args!("agent '{}'", agent.name)));
        }
        Ok(prompt_function(prompt, input))
    }
}
