//! Models: the trait that providers implement, and the wrappers between a request and a provider.
//!
//! A model is an action from [`ModelRequest`] to [`ModelResponse`] that may stream [`ModelResponseChunk`]s.
//! The same wrappers surround every provider's function. From the outside in, they check the configuration
//! and version, download media (if the model requests it), simulate a system prompt, write documents into the
//! conversation, describe an output schema in the prompt, reject unsupported requests, and measure the call.
//! Each acts only if the model declares that it needs it, and on a copy: the caller's messages never change.
//! None of them iterates over a long history.

mod action;
mod background;
mod client_media;
mod config_check;
mod constraint;
mod context_documents;
mod fetch_rules;
mod lookup;
mod media_download;
mod preparation;
mod provider;
mod support;
mod system_prompt;

#[cfg(feature = "download")]
mod http_fetcher;

use everturn_core::Action;

#[cfg(feature = "download")]
pub use self::http_fetcher::HttpMediaFetcher;
pub(crate) use self::lookup::ModelHandle;
pub use self::{
    action::{define_model, model_action, register_model},
    background::{BackgroundModel, cancel_operation, check_operation},
    client_media::ClientMedia,
    constraint::{needs_simulation, simulate_constrained},
    context_documents::{Citation, ContextAugmentation, augment_with_context},
    fetch_rules::{Fetch, FetchBudget, FetchRules},
    lookup::{call_model, default_model, set_default_model},
    media_download::{FetchedMedia, MediaDownload, MediaFetcher},
    provider::Model,
    support::{OptionalMedia, validate_support},
    system_prompt::{SystemPromptWording, simulate_system_prompt, simulate_system_prompt_with},
};
use crate::{ModelRequest, ModelResponse, ModelResponseChunk};

/// A model in the registry.
pub type ModelAction = Action<ModelRequest, ModelResponse, ModelResponseChunk>;
