//! Asking a model of a plugin.

use std::sync::{Arc, Mutex};

use everturn_ai::{Message, ModelRequest, ModelResponse, ModelResponseChunk, Part, call_model};
use everturn_core::{Context, Emitter, Plugin, Registry, Result};
use serde_json::Value;

/// An answer, and what was streamed of it.
pub(crate) struct Asked {
    pub(crate) result: Result<ModelResponse>,
    pub(crate) chunks: Vec<ModelResponseChunk>,
}

impl Asked {
    /// The parts of the answer, as JSON.
    pub(crate) fn parts(&self) -> Value {
        let message = self.result.as_ref().unwrap().message.as_ref();
        serde_json::to_value(message.unwrap().content()).unwrap()
    }

    /// The parts that were streamed, as JSON.
    pub(crate) fn streamed(&self) -> Vec<Value> {
        let parts = self.chunks.iter().flat_map(|chunk| &chunk.content);
        parts.map(|part| serde_json::to_value(part).unwrap()).collect()
    }

    /// The text that was streamed.
    pub(crate) fn streamed_text(&self) -> String {
        self.chunks
            .iter()
            .map(|chunk| chunk.text().into_owned())
            .collect()
    }
}

/// Asks a model and follows its stream.
pub(crate) async fn ask(plugin: impl Plugin, model: &str, request: ModelRequest) -> Asked {
    let registry = Registry::new();
    registry.install(Arc::new(plugin)).unwrap();
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&chunks);
    let emitter = Emitter::new(move |chunk| {
        kept.lock().unwrap().push(chunk);
        std::future::ready(Ok(()))
    });
    let result = call_model(&registry, model, request, emitter, Context::new()).await;
    let chunks = std::mem::take(&mut *chunks.lock().unwrap());
    Asked { result, chunks }
}

/// A request of one user message.
pub(crate) fn question(text: &str) -> ModelRequest {
    ModelRequest::new(Message::user(text))
}

/// A request of one user message with settings.
pub(crate) fn question_with(config: Value) -> ModelRequest {
    ModelRequest {
        config: Some(config),
        ..question("Leeks?")
    }
}

/// A part from JSON.
pub(crate) fn part(value: Value) -> Part {
    serde_json::from_value(value).unwrap()
}

/// Messages from JSON.
pub(crate) fn messages(value: Value) -> Vec<Message> {
    serde_json::from_value(value).unwrap()
}
