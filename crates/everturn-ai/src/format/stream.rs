//! The text of a message while it is streamed.

use std::borrow::Cow;

use crate::ModelResponseChunk;

/// Tells what text is new in a chunk, also when chunks repeat everything before them.
#[derive(Debug, Clone, Default)]
pub struct ChunkText {
    seen: usize,
}

impl ChunkText {
    /// The text of `chunk` that no earlier chunk had.
    pub fn added<'a>(&mut self, chunk: &'a ModelResponseChunk) -> Cow<'a, str> {
        let text = chunk.text();
        if !chunk.aggregated {
            self.seen += text.len();
            return text;
        }
        let added = match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.get(self.seen..).unwrap_or_default()),
            Cow::Owned(text) => Cow::Owned(text.get(self.seen..).unwrap_or_default().to_owned()),
        };
        self.seen += added.len();
        added
    }
}
