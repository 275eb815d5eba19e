//! Models: the trait that providers implement, and the wrappers between a request and a provider.
//!
//! A model is an action from [`ModelRequest`] to [`ModelResponse`] that may stream [`ModelResponseChunk`]s.
//! The same wrappers surround every provider's function. From the outside in, they check the configuration
//! and version, download media (if the model requests it), simulate a system prompt, write documents into the
//! conversation, describe an output schema in the prompt, reject unsupported requests, and measure the call.
//! Each acts only if the model declares that it needs it, and on a copy: the caller's messages never change.
//! None of them iterates over a long history.

mod background;
mod client_media;
mod fetch_rules;
mod lookup;
mod media_download;
mod preparation;
mod provider;
mod simulation;

#[cfg(feature = "download")]
mod http_fetcher;

use everturn_core::Action;

#[cfg(feature = "download")]
pub use self::http_fetcher::HttpMediaFetcher;
pub(crate) use self::lookup::ModelHandle;
pub use self::{
    background::{BackgroundModel, cancel_operation, check_operation},
    client_media::ClientMedia,
    fetch_rules::{Fetch, FetchBudget, FetchRules},
    lookup::{call_model, default_model, set_default_model},
    media_download::{FetchedMedia, MediaDownload, MediaFetcher},
    preparation::{OptionalMedia, validate_support},
    provider::{Model, define_model, model_action, register_model},
    simulation::{
        Citation, ContextAugmentation, SystemPromptWording, augment_with_context, needs_simulation,
        simulate_constrained, simulate_system_prompt, simulate_system_prompt_with,
    },
};
use crate::{ModelRequest, ModelResponse, ModelResponseChunk};

/// A model in the registry.
pub type ModelAction = Action<ModelRequest, ModelResponse, ModelResponseChunk>;
