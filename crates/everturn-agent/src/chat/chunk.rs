//! The chunks of a turn, as a chat shows them, and the text that they add up to.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use everturn_core::{Error, Result};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;

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

/// The text of a turn that is being streamed.
///
/// Chunks share it and store only their own length in it, so a chunk costs what it adds. A chunk copies the
/// text when it is first asked for it.
#[derive(Debug, Default)]
pub(super) struct TurnText(Arc<Mutex<String>>);

/// The text of a turn up to a chunk.
#[derive(Debug, Clone)]
pub(super) struct TextSoFar {
    whole: Arc<Mutex<String>>,
    length: usize,
    copy: OnceLock<Box<str>>,
}

impl TurnText {
    /// Begins another text. Earlier chunks keep theirs.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// Adds the text of a chunk, and returns all up to this chunk.
    pub(super) fn add(&mut self, chunk: &AgentStreamChunk) -> TextSoFar {
        if chunk.model_chunk.as_ref().is_some_and(|chunk| chunk.aggregated) {
            self.begin();
        }
        let mut text = self.0.lock();
        if let Some(chunk) = &chunk.model_chunk {
            text.push_str(&chunk.text());
        }
        TextSoFar {
            whole: Arc::clone(&self.0),
            length: text.len(),
            copy: OnceLock::new(),
        }
    }
}

impl TextSoFar {
    pub(super) fn as_str(&self) -> &str {
        self.copy.get_or_init(|| {
            let whole = self.whole.lock();
            whole[..self.length].into()
        })
    }
}
