//! Built-in middleware.
//!
//! | type | name | hooks | what it does |
//! |---|---|---|---|
//! | [`Retry`] | `retry` | model | retries model calls after transient failures |
//! | [`Fallback`] | `fallback` | model | calls other models when one fails |
//! | [`ToolApproval`] | `toolApproval` | tool | interrupts before tools that are not on a list |
//! | `Filesystem` | `filesystem` | round, tool | gives the model tools for the files in one directory |
//! | `Skills` | `skills` | round | lets the model look up instructions |
//! | [`SimulateSystemPrompt`] | `simulateSystemPrompt` | model | a system prompt without a system role |
//! | [`AugmentWithContext`] | `augmentWithContext` | model | documents, written into the conversation |
//! | [`DownloadMedia`] | `downloadRequestMedia` | model | media behind URLs, given inline |
//! | [`ValidateSupport`] | `validateSupport` | model | rejects requests that a model does not support |
//! | [`SimulateConstrained`] | `simulateConstrainedGeneration` | model | an output schema in words |
//!
//! Each is used as a value, `.use_middleware(Retry::default().max_retries(5))`, or, once
//! [`register_builtin_middleware`] has defined it, by name with a JSON configuration, as `.prompt` files do.
//! Names may also be written with the prefix `genkit-middleware/`. A configuration with an unknown key is
//! rejected.
//!
//! `Filesystem` and `Skills` come with the feature `filesystem`; `downloadRequestMedia` is registered with
//! the feature `download`.
//!
//! In `.use_middleware(a).use_middleware(b)`, `a` is outside `b`. So `Retry` before [`Fallback`] tries all
//! the models again, and `Retry` after it retries only the first.

mod fallback;
#[cfg(feature = "filesystem")]
mod filesystem;
mod model_wrappers;
mod retry;
#[cfg(feature = "filesystem")]
mod skills;
mod tool_approval;

use everturn_core::{Registry, Result};

pub use self::{
    fallback::Fallback,
    model_wrappers::{
        AugmentWithContext, DownloadMedia, SimulateConstrained, SimulateSystemPrompt, ValidateSupport,
    },
    retry::Retry,
    tool_approval::ToolApproval,
};
#[cfg(feature = "filesystem")]
pub use self::{filesystem::Filesystem, skills::Skills};
use crate::{MiddlewareDefinition, define_middleware};

/// Registers all middleware of this module by name.
///
/// ```
/// use everturn_ai::builtin_middleware::register_builtin_middleware;
/// use everturn_ai::middleware_descriptions;
/// use everturn_core::{Registry, Result};
///
/// # fn main() -> Result<()> {
/// let registry = Registry::new();
/// register_builtin_middleware(&registry)?;
///
/// assert!(middleware_descriptions(&registry).iter().any(|description| description.name == "retry"));
/// # Ok(()) }
/// ```
///
/// # Errors
/// `ALREADY_EXISTS` if a middleware with one of the names is registered.
pub fn register_builtin_middleware(registry: &Registry) -> Result<()> {
    definitions()
        .into_iter()
        .try_for_each(|definition| define_middleware(registry, definition))
}

fn definitions() -> Vec<MiddlewareDefinition> {
    vec![
        MiddlewareDefinition::new("retry", |config: Retry, _| Ok(config))
            .description("Calls the model again after failures that may pass."),
        MiddlewareDefinition::new("fallback", |config: Fallback, _| Ok(config.checked()?))
            .description("Asks other models when one fails."),
        MiddlewareDefinition::new("toolApproval", |config: ToolApproval, _| Ok(config))
            .description("Interrupts before tools that are not on a list."),
        #[cfg(feature = "filesystem")]
        MiddlewareDefinition::new("filesystem", |config: Filesystem, _| Ok(config.open()?))
            .description("Gives the model tools for the files in one directory."),
        #[cfg(feature = "filesystem")]
        MiddlewareDefinition::new("skills", |config: Skills, _| Ok(config.scan()))
            .description("Lets the model look up instructions for special tasks."),
        MiddlewareDefinition::new("simulateSystemPrompt", |config: SimulateSystemPrompt, _| {
            Ok(config)
        })
        .description("Turns the system prompt into a user message."),
        MiddlewareDefinition::new("augmentWithContext", |config: AugmentWithContext, _| Ok(config))
            .description("Writes the request's documents into the conversation."),
        #[cfg(feature = "download")]
        MiddlewareDefinition::new(
            "downloadRequestMedia",
            |config: model_wrappers::HttpDownload, _| Ok(DownloadMedia::from(config)),
        )
        .description("Fetches media behind URLs and gives it to the model inline."),
        MiddlewareDefinition::new("validateSupport", |config: ValidateSupport, _| Ok(config))
            .description("Refuses requests that need what the model cannot do."),
        MiddlewareDefinition::new(
            "simulateConstrainedGeneration",
            |config: SimulateConstrained, _| Ok(config),
        )
        .description("Tells the model an output schema in words."),
    ]
}
