//! The chunks of a turn, as a chat shows them.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use everturn_core::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::turn_text::TextSoFar;
use crate::storage::session_state::decode_custom;
use crate::{AgentStreamChunk, Artifact, CustomState, SnapshotCreated, TurnEnd};

/// A chunk of a turn.
#[derive(Debug, Clone)]
pub struct AgentChunk<S = Value, T = Value> {
    pub(super) raw: AgentStreamChunk,
    pub(super) accumulated: TextSoFar,
    pub(super) custom: Option<Arc<Value>>,
    pub(super) types: PhantomData<fn() -> (S, T)>,
}

impl<S: CustomState, T> AgentChunk<S, T> {
    /// Returns the text that the model added; empty if the chunk is of another kind.
    pub fn text(&self) -> Cow<'_, str> {
        self.raw
            .model_chunk
            .as_ref()
            .map(|chunk| chunk.text())
            .unwrap_or_default()
    }

    /// Returns the text of the turn up to this chunk.
    pub fn accumulated_text(&self) -> &str {
        self.accumulated.as_str()
    }

    /// Returns the reasoning that the model added.
    pub fn reasoning(&self) -> Cow<'_, str> {
        self.raw
            .model_chunk
            .as_ref()
            .map(|chunk| chunk.reasoning())
            .unwrap_or_default()
    }

    /// Returns the artifact that was added or replaced, if this chunk is one.
    pub fn artifact(&self) -> Option<&Artifact> {
        self.raw.artifact.as_ref()
    }

    /// Returns the custom state with every change up to this chunk, if it is known.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the custom state that the agent shows is not an `S`.
    pub fn custom(&self) -> Result<Option<S>> {
        self.custom
            .as_deref()
            .map(|custom| decode_custom(Some(custom)))
            .transpose()
    }

    /// Returns the status that the agent sent, if this chunk is one; JSON unless the agent
    /// [declares](crate::AgentBuilder::status) its type.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the status is not a `T`.
    pub fn status(&self) -> Result<Option<T>>
    where
        T: DeserializeOwned,
    {
        let decode = |status: &Value| {
            T::deserialize(status).map_err(|error| Error::invalid_argument(error.to_string()))
        };
        self.raw.status.as_ref().map(decode).transpose()
    }

    /// Returns the snapshot that was taken, if this chunk reports one.
    pub fn snapshot_created(&self) -> Option<&SnapshotCreated> {
        self.raw.snapshot_created.as_ref()
    }

    /// Returns whether another worker took the background run over and restarts the turn: the chunks of the
    /// turn before this one do not count.
    pub fn is_taken_over(&self) -> bool {
        self.raw.taken_over
    }

    /// Returns the end of the turn, if this chunk is it.
    pub fn turn_end(&self) -> Option<&TurnEnd> {
        self.raw.turn_end.as_ref()
    }

    /// Returns the chunk as it is on the wire.
    pub fn raw(&self) -> &AgentStreamChunk {
        &self.raw
    }
}
