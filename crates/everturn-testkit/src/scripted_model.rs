//! A model with a script.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use everturn_ai::{
    Model, ModelAction, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk, register_model,
};
use everturn_core::{Context, Emitter, Error, HandlerResult, Reason, Registry, Result};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::{Reply, contains};

/// The reason of the error `FAILED_PRECONDITION` for a call after the end of a [`ScriptedModel`]'s script.
pub const SCRIPT_OVER: Reason = Reason::new("script-over");

/// A model that plays prepared replies in order and records its requests.
///
/// Clones share the script, so a test keeps one and registers another.
///
/// ```
/// use everturn_ai::{Message, ModelRequest};
/// use everturn_core::{Registry, Result};
/// use everturn_testkit::{Reply, ScriptedModel};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// let model = ScriptedModel::new().reply(Reply::tool("in_season", json!({"month": 2}))).reply("Leek soup.");
/// let action = model.register(&registry, "chef")?;
///
/// let response = action.run(ModelRequest::new(Message::user("Something with leeks?"))).await?;
///
/// assert_eq!(response.message.expect("it answered").tool_requests().count(), 1);
/// model.assert_asked(0, &json!({"messages": [{"role": "user", "content": [{"text": "Something with leeks?"}]}]}));
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct ScriptedModel(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    info: ModelInfo,
    script: VecDeque<Box<Entry>>,
    fallback: Option<Arc<Fallback>>,
    calls: Vec<Call>,
}

type Entry = dyn FnOnce(&ModelRequest) -> Reply + Send;
type Fallback = dyn Fn(&ModelRequest) -> Reply + Send + Sync;

/// One call of a [`ScriptedModel`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Call {
    /// The request.
    pub request: ModelRequest,
    /// Whether the caller asked for chunks.
    pub is_streaming: bool,
    /// The context of the call.
    pub context: Context,
}

impl ScriptedModel {
    /// Returns a model with an empty script.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Adds a reply at the end of the script.
    pub fn reply(self, reply: impl Into<Reply>) -> Self {
        self.push(reply);
        self
    }

    /// Adds several replies.
    pub fn replies(self, replies: impl IntoIterator<Item = impl Into<Reply>>) -> Self {
        replies.into_iter().fold(self, Self::reply)
    }

    /// Adds a reply that is made from the request.
    pub fn reply_with<R: Into<Reply>>(self, make: impl FnOnce(&ModelRequest) -> R + Send + 'static) -> Self {
        self.state()
            .script
            .push_back(Box::new(move |request| make(request).into()));
        self
    }

    /// Adds a reply to a script that may already be running.
    pub fn push(&self, reply: impl Into<Reply>) {
        let reply = reply.into();
        self.state().script.push_back(Box::new(move |_| reply));
    }

    /// Sets how the model replies after the end of the script, instead of failing.
    pub fn otherwise<R: Into<Reply>>(
        self,
        make: impl Fn(&ModelRequest) -> R + Send + Sync + 'static,
    ) -> Self {
        self.state().fallback = Some(Arc::new(move |request| make(request).into()));
        self
    }

    /// Sets the model's description, before the model is registered. By default it supports everything.
    pub fn with_info(self, info: ModelInfo) -> Self {
        self.state().info = info;
        self
    }

    /// Registers the model under a name.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if a model of that name exists.
    pub fn register(&self, registry: &Registry, name: impl Into<String>) -> Result<ModelAction> {
        register_model(registry, name, self.clone())
    }

    /// Returns every call so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Returns every request so far, in order.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.state()
            .calls
            .iter()
            .map(|call| call.request.clone())
            .collect()
    }

    /// Returns the request of the last call.
    pub fn last_request(&self) -> Option<ModelRequest> {
        self.state().calls.last().map(|call| call.request.clone())
    }

    /// Returns the number of replies that have not been played.
    pub fn replies_left(&self) -> usize {
        self.state().script.len()
    }

    /// Checks that the request of a call, counted from 0, [`contains`] this JSON.
    ///
    /// # Panics
    /// If there was no such call, or its request does not contain the JSON. The message contains the
    /// location.
    #[track_caller]
    pub fn assert_asked(&self, call: usize, expected: &Value) {
        let requests = self.requests();
        let Some(request) = requests.get(call) else {
            panic!(
                "the model was called {} times, so there is no call {call}",
                requests.len()
            );
        };
        let request = serde_json::to_value(request).expect("a request has a JSON form");
        if let Err(difference) = contains(&request, expected) {
            panic!(
                "call {call} had another request than expected, {difference}\nthe request was {request:#}"
            );
        }
    }

    /// Checks the number of calls.
    ///
    /// # Panics
    /// If there were more or fewer calls.
    #[track_caller]
    pub fn assert_calls(&self, expected: usize) {
        let actual = self.state().calls.len();
        assert!(
            actual == expected,
            "the model was called {actual} times, expected {expected}"
        );
    }

    /// Checks that every reply was played.
    ///
    /// # Panics
    /// If some were not.
    #[track_caller]
    pub fn assert_finished(&self) {
        let left = self.replies_left();
        assert!(left == 0, "{left} replies of the script were not used");
    }

    /// Records the call and returns its reply. The lock is not held while a test's closure runs.
    fn answer(&self, request: &ModelRequest, is_streaming: bool, context: &Context) -> Result<Reply> {
        let (entry, fallback, count) = {
            let mut state = self.state();
            state.calls.push(Call {
                request: request.clone(),
                is_streaming,
                context: context.clone(),
            });
            (
                state.script.pop_front(),
                state.fallback.clone(),
                state.calls.len(),
            )
        };
        match (entry, fallback) {
            (Some(entry), _) => Ok(entry(request)),
            (None, Some(fallback)) => Ok(fallback(request)),
            (None, None) => Err(script_over(request, count)),
        }
    }
}

fn script_over(request: &ModelRequest, count: usize) -> Error {
    let last = request
        .messages
        .last()
        .map(|message| format!("; its last message is {message:?}"))
        .unwrap_or_default();
    let before = count - 1;
    Error::failed_precondition(format!(
        "the scripted model has {before} replies and was called once more{last}; add a reply, or set a default with `otherwise`"
    ))
    .with_reason(SCRIPT_OVER)
}

impl Model for ScriptedModel {
    fn info(&self) -> ModelInfo {
        self.state().info.clone()
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        context: Context,
    ) -> HandlerResult<ModelResponse> {
        let reply = self.answer(&request, emitter.is_streaming(), &context)?;
        Ok(context.guard(reply.play(&emitter)).await?)
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        formatter
            .debug_struct("ScriptedModel")
            .field("played", &state.calls.len())
            .field("left", &state.script.len())
            .finish_non_exhaustive()
    }
}
