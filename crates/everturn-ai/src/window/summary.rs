//! Summaries of messages outside the window, and where they are stored.
//!
//! A summary is stored once, in the metadata of the next model message. So it is in every store, in every
//! branch after that message and in every export, and costs nothing in later turns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cut::is_safe;
use super::view::View;
use crate::{Feature, Message, Part, metadata};

/// The summary of the start of a conversation, in the metadata entry [`summary`](metadata::SUMMARY) of a
/// model message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Summary {
    /// The number of messages that the summary covers: the first ones of the conversation, without system
    /// messages.
    pub up_to: usize,
    /// The characters of those messages. A summary is not used in a conversation that begins differently.
    pub characters: u64,
    /// The model that wrote the summary.
    pub model: String,
    /// The summary.
    pub text: String,
}

impl Summary {
    /// Returns the summary on a message.
    pub fn on(message: &Message) -> Option<Self> {
        if message.stats().messages_with(Feature::Summary) == 0 {
            return None;
        }
        Self::deserialize(message.metadata_entry(metadata::SUMMARY)?).ok()
    }

    /// Returns the message with this summary in its metadata.
    pub(super) fn stored_on(&self, message: Message) -> Message {
        match serde_json::to_value(self) {
            Ok(value) => message.with_metadata_entry(metadata::SUMMARY, value),
            Err(_) => message,
        }
    }

    /// Returns the part that gives the model the summary.
    pub(super) fn part(text: &str) -> Part {
        Part::text(format!(
            "[Summary of the conversation before this message]\n{text}\n[End of the summary]"
        ))
        .with_metadata_entry(metadata::PURPOSE, metadata::PURPOSE_SUMMARY)
    }
}

/// A stored summary, and the index of the first message that it does not cover.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) at: usize,
    pub(super) text: String,
}

/// Returns the two newest usable summaries of the conversation, the older one first.
pub(super) fn newest(view: &View<'_>) -> Vec<Stored> {
    let mut found = Vec::new();
    let mut end = view.len();
    while let Some(index) = view.messages.last_with(Feature::Summary, end) {
        let stored = view
            .messages
            .get(index)
            .and_then(|message| usable(view, index, message));
        found.extend(stored);
        if found.len() == 2 {
            break;
        }
        end = index;
    }
    found.reverse();
    found
}

fn usable(view: &View<'_>, index: usize, message: &Message) -> Option<Stored> {
    let summary = Summary::on(message)?;
    let at = view.conversation_index(summary.up_to);
    // The conversation may have been rewritten since, or be another one.
    let fits = at <= index && view.characters_before(at) == summary.characters && is_safe(view, at);
    fits.then_some(Stored {
        at,
        text: summary.text,
    })
}
