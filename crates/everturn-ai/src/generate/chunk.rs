//! Chunks as a consumer receives them, and the text accumulated from them.
//!
//! Text accumulates only where it is needed, so that a long stream does not fill the memory: for partial
//! output if an output format was requested, and for the accumulated text if the stream has it enabled.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::output::OutputPlan;
use crate::format::{ChunkParser, ChunkText};
use crate::{ModelResponseChunk, Role};

/// A chunk of a streamed response.
pub struct Chunk<T = Value> {
    inner: ModelResponseChunk,
    partial: Option<Arc<Mutex<PartialOutput>>>,
    value: OnceLock<Option<Value>>,
    text: Option<(Arc<Mutex<String>>, usize)>,
    output: PhantomData<fn() -> T>,
}

impl<T> Chunk<T> {
    /// Parses the known, or new, part of the output; `None` if it is not a `T` yet.
    ///
    /// For `json` this is the whole value so far; for `array` and `jsonl` it is the items completed since the
    /// output of an earlier chunk was read.
    pub fn output(&self) -> Option<T>
    where
        T: DeserializeOwned,
    {
        serde_json::from_value(self.output_value()?).ok()
    }

    /// Like [`Chunk::output`], as JSON; includes output that is not yet a complete `T`.
    pub fn output_value(&self) -> Option<Value> {
        let parsed = || self.partial.as_ref()?.lock().parse();
        self.value.get_or_init(parsed).clone()
    }

    /// Returns the text of this message up to and including this chunk; `None` unless the stream
    /// [accumulates](super::GenerateStream::accumulating).
    pub fn accumulated_text(&self) -> Option<String> {
        let (text, len) = self.text.as_ref()?;
        Some(text.lock()[..*len].to_owned())
    }

    /// Returns the chunk as it is sent on the wire.
    pub fn into_inner(self) -> ModelResponseChunk {
        self.inner
    }
}

impl<T> Deref for Chunk<T> {
    type Target = ModelResponseChunk;

    fn deref(&self) -> &ModelResponseChunk {
        &self.inner
    }
}

everturn_core::opaque_debug!(Chunk<T>, inner);

/// The state that a consumer keeps of the message being streamed.
#[derive(Default)]
pub(super) struct Accumulation {
    keeps_text: bool,
    index: Option<u32>,
    partial: Option<Arc<Mutex<PartialOutput>>>,
    text: Arc<Mutex<String>>,
    added: ChunkText,
}

impl Accumulation {
    pub(super) fn keep_text(&mut self) {
        self.keeps_text = true;
    }

    /// Wraps a chunk for the consumer. A chunk with another index starts another message.
    pub(super) fn dress<T>(&mut self, chunk: ModelResponseChunk, plan: Option<&OutputPlan>) -> Chunk<T> {
        if chunk.index != self.index {
            let parser = plan.and_then(OutputPlan::chunk_parser);
            let partial = parser.map(|parser| Arc::new(Mutex::new(PartialOutput::new(parser))));
            *self = Self {
                keeps_text: self.keeps_text,
                index: chunk.index,
                partial,
                ..Self::default()
            };
        }
        // The stream also has chunks of tools, which are not output.
        let is_models = chunk.role == Some(Role::Model);
        let partial = self.partial.clone().filter(|_| is_models);
        if let Some(partial) = &partial {
            partial.lock().waiting.push(&chunk);
        }
        let text = self.keeps_text.then(|| {
            let mut text = self.text.lock();
            // Shared by all chunks of the message; each chunk stores only its length.
            text.push_str(&self.added.added(&chunk));
            (Arc::clone(&self.text), text.len())
        });
        Chunk {
            inner: chunk,
            partial,
            value: OnceLock::new(),
            text,
            output: PhantomData,
        }
    }
}

/// The parser of one streamed message, and the chunks it has not parsed yet.
struct PartialOutput {
    parser: Box<dyn ChunkParser>,
    waiting: Waiting,
}

#[derive(Default)]
struct Waiting {
    text: String,
    added: ChunkText,
}

impl Waiting {
    fn push(&mut self, chunk: &ModelResponseChunk) {
        let added = self.added.added(chunk);
        self.text.push_str(&added);
    }
}

impl PartialOutput {
    fn new(parser: Box<dyn ChunkParser>) -> Self {
        Self {
            parser,
            waiting: Waiting::default(),
        }
    }

    /// Parses the pending chunks on demand: parsing everything so far with every chunk would be quadratic.
    fn parse(&mut self) -> Option<Value> {
        let waiting = ModelResponseChunk::new(std::mem::take(&mut self.waiting.text));
        self.parser.parse_chunk(&waiting).ok().flatten()
    }
}
