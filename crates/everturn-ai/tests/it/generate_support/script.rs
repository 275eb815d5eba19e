//! A model that plays a script and remembers its requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use everturn_ai::{
    FinishReason, Message, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk, Part, ToolRequest,
    define_model,
};
use everturn_core::{Emitter, Error, HandlerResult, Registry, Result};
use serde_json::{Value, json};

/// The name of the model that [`Script::define`] registers, as in the recordings.
pub(crate) const PROGRAMMABLE: &str = "programmableModel";

/// One reply of a scripted model: chunks, then a response or an error.
pub(crate) struct Reply {
    pub(crate) chunks: Vec<ModelResponseChunk>,
    pub(crate) result: Result<ModelResponse>,
}

impl Reply {
    pub(crate) fn text(text: &str) -> Self {
        Self::from(Ok(ModelResponse::text_of(text)))
    }

    pub(crate) fn error(error: impl Into<Error>) -> Self {
        Self::from(Err(error.into()))
    }

    /// Asks for tools, with the references `0`, `1`, ...
    pub(crate) fn calls(calls: &[(&str, Value)]) -> Self {
        let request = |(index, (name, input)): (usize, &(&str, Value))| {
            Part::from(ToolRequest::new(*name, input.clone()).with_reference(index.to_string()))
        };
        let parts: Vec<Part> = calls.iter().enumerate().map(request).collect();
        Self::from(Ok(
            ModelResponse::new(Message::model(parts)).with_finish_reason(FinishReason::Stop)
        ))
    }

    /// Streams these texts first.
    pub(crate) fn after_chunks(self, chunks: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            chunks: chunks.into_iter().map(ModelResponseChunk::from).collect(),
            ..self
        }
    }
}

impl From<Result<ModelResponse>> for Reply {
    fn from(result: Result<ModelResponse>) -> Self {
        Self {
            chunks: Vec::new(),
            result,
        }
    }
}

/// A model that plays its replies, one for each call, and fails when there are no more.
#[derive(Clone)]
pub(crate) struct Script(Arc<State>);

struct State {
    replies: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl Script {
    /// Registers the model under the name that the recordings use.
    pub(crate) fn define(
        registry: &Registry,
        info: ModelInfo,
        replies: impl IntoIterator<Item = impl Into<Reply>>,
    ) -> Self {
        Self::register_with(registry, PROGRAMMABLE, info, replies)
    }

    pub(crate) fn register(
        registry: &Registry,
        name: &str,
        replies: impl IntoIterator<Item = impl Into<Reply>>,
    ) -> Self {
        Self::register_with(registry, name, ModelInfo::default(), replies)
    }

    pub(crate) fn register_with(
        registry: &Registry,
        name: &str,
        info: ModelInfo,
        replies: impl IntoIterator<Item = impl Into<Reply>>,
    ) -> Self {
        let replies = replies.into_iter().map(Into::into).collect();
        let script = Self(Arc::new(State {
            replies: Mutex::new(replies),
            requests: Mutex::default(),
        }));
        let playing = script.clone();
        define_model(registry, name, info, move |request, emitter, _context| {
            playing.clone().play(request, emitter)
        })
        .expect("the model is registered once");
        script
    }

    async fn play(
        self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
    ) -> HandlerResult<ModelResponse> {
        self.0.requests.lock().unwrap().push(request);
        let reply = self.0.replies.lock().unwrap().pop_front();
        let reply = reply.ok_or_else(|| Error::out_of_range("the script has ended"))?;
        for chunk in reply.chunks {
            emitter.send(chunk).await?;
        }
        Ok(reply.result?)
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.requests.lock().unwrap().len()
    }

    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.0.requests.lock().unwrap().clone()
    }

    pub(crate) fn json_requests(&self) -> Vec<Value> {
        self.requests().iter().map(|request| json!(request)).collect()
    }

    pub(crate) fn last_request(&self) -> Value {
        self.json_requests().pop().expect("the model was asked")
    }
}
