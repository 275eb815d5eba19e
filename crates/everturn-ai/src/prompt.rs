//! Prompts: requests to a model that are written once and used with many inputs.
//!
//! A prompt is defined in Rust ([`PromptDefinition`]) or in a `.prompt` file ([`load_prompts`]). Either way
//! it is rendered with an input, run or streamed, and registered so that tools, agents and clients find it by
//! name.
//!
//! ```
//! use everturn_ai::prompt::PromptDefinition;
//! use everturn_ai::{ModelInfo, ModelResponse, define_model};
//! use everturn_core::{Registry, Result};
//! use schemars::JsonSchema;
//! use serde::Serialize;
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Wish {
//!     dish: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! let registry = Registry::new();
//! define_model(&registry, "cook", ModelInfo::default(), |request, _emitter, _context| async move {
//!     let asked = request.messages.last().map(|message| message.text().into_owned());
//!     Ok(ModelResponse::text_of(asked.unwrap_or_default().to_uppercase()))
//! })?;
//!
//! let recipe = PromptDefinition::new("recipe")
//!     .input::<Wish>()
//!     .model("cook")
//!     .system("You are a chef.")
//!     .prompt("A recipe for {{dish}}, please.")
//!     .define(&registry)?;
//!
//! let reply = recipe.generate(Wish { dish: "leek soup".into() }).await?;
//! assert_eq!(reply.text(), "A RECIPE FOR LEEK SOUP, PLEASE.");
//! # Ok(()) }
//! ```
//!
//! A wrong input does not compile:
//!
//! ```compile_fail
//! # use everturn_ai::prompt::PromptDefinition;
//! # use everturn_core::{Registry, Result};
//! # #[derive(serde::Serialize, schemars::JsonSchema)]
//! # struct Wish { dish: String }
//! # async fn wrong(registry: Registry) -> Result<()> {
//! let recipe = PromptDefinition::new("recipe").input::<Wish>().prompt("{{dish}}").define(&registry)?;
//! recipe.generate(42).await?;
//! # Ok(()) }
//! ```
//!
//! # Variables
//!
//! `{{dish}}` comes from the input, `{{@auth.email}}` from the invocation's context, and `{{@custom.mood}}`
//! from the custom state, as it is now, of the session in which the prompt runs; Genkit's `{{@state.mood}}`
//! is the same value. Defaults ([`PromptDefinition::input_default`], `input.default` in a file) fill in key
//! by key what the input leaves out.
//!
//! # Where the conversation goes
//!
//! | the prompt declares | messages of the request |
//! |---|---|
//! | a system text | system, conversation |
//! | a system text and a user prompt | system, conversation, user prompt |
//! | a messages template with `{{history}}` | the conversation exactly there |
//! | a messages template without it | the conversation before the template's last user message |
//! | a messages function | the messages that it returns |
//! | fixed messages | only those: the conversation is left out |

mod definition;
mod file;
mod folder;
mod library;
mod names;
mod overrides;
mod prompt_action;
mod prompt_call;
mod rendered;
mod slot;

use std::marker::PhantomData;
use std::sync::Arc;

use everturn_core::{Context, Error, Registry, Result, WeakRegistry};
use serde::Serialize;
use serde_json::Value;

use self::definition::Parts;
pub use self::definition::PromptDefinition;
pub use self::folder::{PromptFolder, Reload, load_prompts};
pub use self::library::{define_helper, define_partial, with_prompt_state};
pub use self::names::{
    Mistakes, check_default_model, check_names, note_model, note_overrides, note_prompt, used_middleware,
};
pub use self::overrides::PromptOverrides;
pub use self::prompt_action::remove_prompt;
pub use self::prompt_call::PromptCall;
pub use self::rendered::{PromptPiece, RenderedPrompt};
pub use self::slot::{ContentSlot, MessagesSlot, PromptScope};
use crate::{GenerateStream, Generated, Messages, ModelRequest, ToolReference};

/// Returns the registry value under which a prompt is found by name.
fn value_key(name: &str) -> String {
    format!("prompt/{name}")
}

/// A prompt ready for use. `I` is its input type and `O` the type that its output is read as. Cloning is
/// cheap.
pub struct Prompt<I = Value, O = Value> {
    name: Arc<str>,
    shared: Arc<dyn PromptSource>,
    registry: Registry,
    types: PhantomData<fn(I) -> O>,
}

/// A source of a prompt's parts: memory, or a file that may change during development.
pub(crate) trait PromptSource: Send + Sync + 'static {
    /// Returns the current parts.
    fn parts(&self, registry: &Registry) -> Result<Arc<Parts>>;
}

/// A prompt source as it is kept in the registry.
struct Registered(Arc<dyn PromptSource>);

impl Prompt {
    /// Looks up the prompt with that name: as defined, or `folder/name.variant` for one from a file.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none.
    pub fn lookup(registry: &Registry, name: &str) -> Result<Self> {
        let found = registry.value::<Registered>(&value_key(name));
        let source = found.ok_or_else(|| {
            Error::not_found(format!("no prompt '{name}' is defined"))
                .with_reason(crate::reason::PROMPT_NOT_FOUND)
        })?;
        Ok(Self::from_source(registry, name, Arc::clone(&source.0)))
    }

    /// Sets Rust types for the input and output of a prompt that was looked up by name.
    pub fn typed<I: Serialize, O>(self) -> Prompt<I, O> {
        Prompt {
            name: self.name,
            shared: self.shared,
            registry: self.registry,
            types: PhantomData,
        }
    }
}

impl<I: Serialize, O> Prompt<I, O> {
    pub(crate) fn from_source(registry: &Registry, name: &str, shared: Arc<dyn PromptSource>) -> Self {
        Self {
            name: name.into(),
            shared,
            registry: registry.clone(),
            types: PhantomData,
        }
    }

    /// Returns the prompt's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the registry in which the prompt finds models, tools and middleware.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the tools that the prompt gives the model, by the prompt's own references.
    ///
    /// # Errors
    /// If the prompt is in a file that cannot be read.
    pub fn tools(&self) -> Result<Vec<ToolReference>> {
        Ok(self.shared.parts(&self.registry)?.settings.tools.clone())
    }

    /// The prompt without the Rust types of its input and output.
    pub fn untyped(&self) -> Prompt {
        Prompt::from_source(&self.registry, &self.name, Arc::clone(&self.shared))
    }

    /// Checks an input against the prompt's schema, with the prompt's defaults filled in; null uses the
    /// defaults alone.
    ///
    /// A prompt without a schema accepts any input.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field at fault; the prompt's own error if it is in a file that
    /// cannot be read.
    pub fn check_input(&self, input: &Value) -> Result<()> {
        let parts = self.shared.parts(&self.registry)?;
        let Some(schema) = &parts.settings.input_schema else {
            return Ok(());
        };
        let input = rendered::with_defaults(input, parts.settings.input_default.as_ref());
        let checked = schema.validate(&input);
        checked.map_err(|error| error.context(format_args!("the input of prompt '{}'", self.name)))
    }

    /// Renders the first request to a model, in the current context.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a template that does not render, `NOT_FOUND` for a name that does not exist.
    pub async fn render(&self, input: I) -> Result<ModelRequest> {
        self.call(input)?.render().await
    }

    /// Runs the prompt.
    ///
    /// # Errors
    /// As [`Prompt::render`], then as [`Generate::run`](crate::Generate::run).
    pub async fn generate(&self, input: I) -> Result<Generated<O>> {
        self.call(input)?.run().await
    }

    /// Runs the prompt and streams its chunks.
    ///
    /// # Errors
    /// As [`Prompt::render`].
    pub async fn stream(&self, input: I) -> Result<GenerateStream<O>> {
        self.call(input)?.stream().await
    }

    /// Creates a call that can override the prompt's settings: another model, more messages, other tools.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the input cannot be written as JSON.
    pub fn call(&self, input: I) -> Result<PromptCall<O>> {
        let input = serde_json::to_value(input).map_err(|error| {
            Error::invalid_argument(format!("the input of prompt '{}': {error}", self.name))
        })?;
        Ok(PromptCall::new(self.untyped(), input))
    }

    /// Renders the prompt around a conversation, with the prompt's messages separate from the conversation's.
    ///
    /// `null` as the input uses the prompt's defaults.
    ///
    /// # Errors
    /// As [`Prompt::render`].
    pub async fn render_around(
        &self,
        input: &Value,
        conversation: impl Into<Messages>,
        context: Context,
    ) -> Result<RenderedPrompt> {
        let parts = self.shared.parts(&self.registry)?;
        let conversation = conversation.into();
        rendered::render(&self.name, &parts, input, conversation, &self.registry, context).await
    }
}

impl<I, O> Clone for Prompt<I, O> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            shared: Arc::clone(&self.shared),
            registry: self.registry.clone(),
            types: PhantomData,
        }
    }
}

everturn_core::opaque_debug!(Prompt<I, O>, name);

/// A handle on a prompt that does not keep the prompt's registry alive, for actions and values that the
/// registry holds.
#[derive(Clone)]
pub struct WeakPrompt {
    name: Arc<str>,
    source: Arc<dyn PromptSource>,
    registry: WeakRegistry,
}

impl Prompt {
    /// Returns a handle that does not keep the prompt's registry alive.
    pub fn downgrade(&self) -> WeakPrompt {
        WeakPrompt {
            name: Arc::clone(&self.name),
            source: Arc::clone(&self.shared),
            registry: self.registry.downgrade(),
        }
    }
}

impl WeakPrompt {
    /// Returns the prompt.
    ///
    /// # Errors
    /// `UNAVAILABLE` once its registry is dropped.
    pub fn upgrade(&self) -> Result<Prompt> {
        let registry = self.registry.upgrade()?;
        Ok(Prompt::from_source(
            &registry,
            &self.name,
            Arc::clone(&self.source),
        ))
    }
}

everturn_core::opaque_debug!(WeakPrompt, name);
