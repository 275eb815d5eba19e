//! Agents around a prompt: each turn renders it around the conversation and asks the model.
//!
//! The prompt is rendered anew every turn, with the conversation's prompt input and the live custom state
//! (`{{@state.field}}`). What the prompt itself says is sent to the model and never becomes part of the conversation;
//! what the model, its tools and the user say does.

mod data;
mod inline;
mod named;
mod tools;

pub use self::inline::{InlinePrompt, agent};
pub use self::named::{NamedPrompt, prompt_agent};
