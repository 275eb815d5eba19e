//! A model that plays a script and remembers what it was asked, and tools to run a script against middleware.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use everturn_ai::{
    FinishReason, Generate, IntoMiddleware, Message, ModelInfo, ModelRequest, ModelResponse,
    ModelResponseChunk, Part, Role, ToolRequest, define_model,
};
use everturn_core::{Emitter, Error, HandlerResult, Registry, Result};
use serde_json::Value;

/// One answer of a scripted model.
pub(crate) struct Reply {
    chunks: Vec<&'static str>,
    result: Result<ModelResponse>,
}

impl Reply {
    pub(crate) fn text(text: &str) -> Self {
        Self::from(Ok(ModelResponse::text_of(text)))
    }

    pub(crate) fn error(error: impl Into<Error>) -> Self {
        Self::from(Err(error.into()))
    }

    /// Requests to tools, with the references `0`, `1`, ...
    pub(crate) fn calls(calls: &[(&str, Value)]) -> Self {
        let request = |(index, (name, input)): (usize, &(&str, Value))| {
            Part::from(ToolRequest::new(*name, input.clone()).with_reference(index.to_string()))
        };
        let parts: Vec<Part> = calls.iter().enumerate().map(request).collect();
        Self::from(Ok(
            ModelResponse::new(Message::model(parts)).with_finish_reason(FinishReason::Stop)
        ))
    }

    /// The same answer after these chunks.
    pub(crate) fn after_chunks(self, chunks: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            chunks: chunks.into_iter().collect(),
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

/// A model that plays a script.
#[derive(Clone)]
pub(crate) struct Script(Arc<State>);

struct State {
    replies: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl Script {
    /// Registers a model that gives these replies, one for each call, and fails when there are no more.
    pub(crate) fn register(
        registry: &Registry,
        name: &str,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        Self::register_with(registry, name, ModelInfo::default(), replies)
    }

    pub(crate) fn register_with(
        registry: &Registry,
        name: &str,
        info: ModelInfo,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let replies = Mutex::new(replies.into_iter().collect());
        let script = Self(Arc::new(State {
            replies,
            requests: Mutex::default(),
        }));
        let playing = script.clone();
        define_model(registry, name, info, move |request, emitter, _context| {
            playing.clone().play(request, emitter)
        })
        .unwrap();
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
            emitter.send(ModelResponseChunk::from(chunk)).await?;
        }
        Ok(reply.result?)
    }

    /// What the model was asked so far.
    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.0.requests.lock().unwrap().clone()
    }

    /// How often the model was called.
    pub(crate) fn calls(&self) -> usize {
        self.0.requests.lock().unwrap().len()
    }
}

/// What one round of tool calls brought.
#[derive(Debug)]
pub(crate) struct Round {
    /// The tools' outputs, in the order of the calls.
    pub(crate) outputs: Vec<Value>,
    /// What middleware showed the model after them.
    pub(crate) shown: Vec<Part>,
}

impl Round {
    /// The only output, as text.
    pub(crate) fn answer(&self) -> &str {
        assert_eq!(self.outputs.len(), 1, "{:?}", self.outputs);
        self.outputs[0].as_str().expect("the output is text")
    }

    /// The text of all that was shown.
    pub(crate) fn shown_text(&self) -> String {
        self.shown.iter().filter_map(Part::as_text).collect()
    }
}

/// Has a model make rounds of tool calls with a middleware in use, and says what came of each.
pub(crate) async fn run_rounds<const N: usize>(
    middleware: impl IntoMiddleware,
    rounds: [&[(&str, Value)]; N],
) -> Result<Vec<Round>> {
    let registry = Registry::new();
    let replies = rounds
        .iter()
        .map(|calls| Reply::calls(calls))
        .chain([Reply::text("done")]);
    let script = Script::register(&registry, "scripted", replies);
    Generate::new(&registry)
        .model("scripted")
        .prompt("go on")
        .max_rounds(u32::try_from(N).unwrap())
        .use_middleware(middleware)
        .run()
        .await?;
    Ok(script.requests().iter().skip(1).map(last_round).collect())
}

fn last_round(request: &ModelRequest) -> Round {
    let answered = request
        .messages
        .rposition(|message| message.role() == Role::Tool)
        .expect("tools have answered");
    let responses = request
        .messages
        .get(answered)
        .unwrap()
        .content()
        .iter()
        .filter_map(Part::as_tool_response);
    let shown = request.messages.get(answered + 1);
    if let Some(shown) = shown {
        assert_eq!(shown.role(), Role::User);
    }
    Round {
        outputs: responses
            .map(|response| response.output.clone().unwrap_or_default())
            .collect(),
        shown: shown
            .map(|message| message.content().to_vec())
            .unwrap_or_default(),
    }
}
