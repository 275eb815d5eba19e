//! Agents around a prompt: each turn renders the prompt around the conversation and asks the model.
//!
//! The prompt is rendered again every turn, with the conversation's prompt input and the live custom state
//! (`{{@custom.field}}`). The prompt's own messages are sent to the model and never become part of the
//! conversation; the messages of the user, the model and its tools do.

mod data;
mod inline;
mod named;
mod overrides;
mod tools;

pub use self::inline::{InlinePrompt, agent};
pub use self::named::{NamedPrompt, prompt_agent};
