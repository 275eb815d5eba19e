//! An answer in progress: deltas become parts, and are sent as chunks.

use everturn_ai::{JsonObject, ModelResponseChunk, Part, PartKind};
use everturn_core::{Emitter, Result};

/// The parts of an answer so far.
///
/// A delta is appended to the part before it if both are of one kind and neither has metadata, because a
/// signature closes its part.
pub(crate) struct Draft<'a> {
    emitter: &'a Emitter<ModelResponseChunk>,
    parts: Vec<Part>,
    open: Option<Open>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

struct Open {
    kind: Kind,
    text: String,
}

impl Open {
    fn close(self, metadata: JsonObject) -> Part {
        let kind = match self.kind {
            Kind::Text => PartKind::Text(self.text),
            Kind::Reasoning => PartKind::Reasoning(self.text),
        };
        Part::new(kind).with_metadata(metadata)
    }
}

impl<'a> Draft<'a> {
    /// Creates an empty answer whose chunks are sent to an emitter.
    pub(crate) fn new(emitter: &'a Emitter<ModelResponseChunk>) -> Self {
        Self {
            emitter,
            parts: Vec::new(),
            open: None,
        }
    }

    /// Returns whether there is a receiver of chunks.
    pub(crate) fn is_streaming(&self) -> bool {
        self.emitter.is_streaming()
    }

    /// Adds text, and sends it.
    ///
    /// # Errors
    /// `CANCELLED` if the receiver is gone.
    pub(crate) async fn text(&mut self, delta: &str) -> Result<()> {
        self.add(Kind::Text, delta).await
    }

    /// Adds reasoning, and sends it.
    ///
    /// # Errors
    /// `CANCELLED` if the receiver is gone.
    pub(crate) async fn reasoning(&mut self, delta: &str) -> Result<()> {
        self.add(Kind::Reasoning, delta).await
    }

    async fn add(&mut self, kind: Kind, delta: &str) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        match &mut self.open {
            Some(open) if open.kind == kind => open.text.push_str(delta),
            _ => {
                self.close();
                let text = delta.to_owned();
                self.open = Some(Open { kind, text });
            }
        }
        if !self.is_streaming() {
            return Ok(());
        }
        self.show(match kind {
            Kind::Text => Part::text(delta),
            Kind::Reasoning => Part::reasoning(delta),
        })
        .await
    }

    /// Sends a part that is not, or not yet, part of the answer.
    ///
    /// # Errors
    /// `CANCELLED` if the receiver is gone.
    pub(crate) async fn show(&self, part: Part) -> Result<()> {
        self.emitter.send(ModelResponseChunk::from(part)).await
    }

    /// Adds a whole part without sending it.
    pub(crate) fn push(&mut self, part: Part) {
        self.close();
        self.parts.push(part);
    }

    /// Closes the current part, if there is one: the next delta starts another.
    pub(crate) fn close(&mut self) {
        self.close_with(JsonObject::new());
    }

    /// Closes the current part with metadata. Without one, returns `false`.
    pub(crate) fn close_with(&mut self, metadata: JsonObject) -> bool {
        let closed = self.open.take().map(|open| open.close(metadata));
        let is_closed = closed.is_some();
        self.parts.extend(closed);
        is_closed
    }

    /// The parts of the answer.
    pub(crate) fn into_parts(mut self) -> Vec<Part> {
        self.close();
        self.parts
    }
}
