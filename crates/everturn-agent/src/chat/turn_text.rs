//! The text of a turn, accumulated over its chunks.
//!
//! Chunks share one text and store only their own length in it, so a chunk costs what it adds. A chunk copies
//! the text when it is first asked for it.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::AgentStreamChunk;

/// The text of a turn that is being streamed.
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
