//! The entries of a journal.

use everturn_ai::{EffectId, ModelResponse, ToolOutcome};
use everturn_core::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::Change;
use crate::store::{BegunCall, JournalRecord};

/// One entry of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(super) enum Entry {
    /// Another attempt took the turn up.
    #[serde(rename = "claimed")]
    TakenUp,
    /// A model replied.
    Replied {
        effect: EffectId,
        response: Box<ModelResponse>,
    },
    /// A call that must not be made twice began.
    Started {
        effect: EffectId,
        call: String,
        /// What to list of the call while its outcome is unknown; `None` for an effect inside a tool, whose
        /// outcome is part of the tool's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        begun: Option<Box<BegunCall>>,
    },
    /// A call ended.
    Ended {
        effect: EffectId,
        /// The digest of the tool and its input.
        call: String,
        /// The reply that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply: Option<EffectId>,
        outcome: Box<ToolOutcome>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changes: Vec<Change>,
    },
    /// A call that began has failed without effect.
    Failed { effect: EffectId },
    /// Another turn of the session has taken these calls over, whose outcomes were unknown: its conversation
    /// has their outcomes, or asks for them. A retry of this turn still reconciles or asks.
    Adopted { effects: Vec<EffectId> },
    /// The attempt failed for good: the next one starts over, and repeats no call that must not be made
    /// twice.
    Abandoned,
}

/// Entries that were written together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Batch<E = Entry> {
    /// The attempt that wrote them.
    pub(super) by: String,
    /// The turn that the attempt is at: turns that continue from the same state share a journal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) turn: String,
    pub(super) entries: Vec<E>,
}

impl Batch {
    pub(super) fn read(record: &JournalRecord) -> Result<Self> {
        Self::deserialize(&record.body).map_err(|error| {
            Error::data_loss(format!(
                "record {} of a turn's journal cannot be read: {error}",
                record.sequence
            ))
        })
    }
}

impl<E: Serialize> Batch<E> {
    pub(super) fn body(&self) -> Result<Value> {
        Ok(serde_json::to_value(self)?)
    }
}
