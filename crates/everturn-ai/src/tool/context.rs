//! The context of a tool call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use everturn_core::{Context, Emitter, Error, FromContext, HandlerResult, Requirement, Result};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Tool;
use crate::{Approval, EffectId, ModelResponseChunk, Part, Role, ToolRequest, ToolResponse, metadata};

/// The context of one tool call. Cloning is cheap.
#[derive(Clone)]
pub struct ToolContext {
    context: Context,
    call: Arc<Call>,
}

struct Call {
    /// The tool request of the model or of a restart.
    part: Option<Part>,
    emitter: Emitter<ModelResponseChunk>,
    attachments: Mutex<Vec<Part>>,
    effect: OnceLock<EffectId>,
    /// Whether the tool's own code has begun to run.
    has_begun: AtomicBool,
}

impl ToolContext {
    /// Creates a context for running a tool by hand.
    pub fn new(context: Context) -> Self {
        Self::build(context, None, Emitter::silent())
    }

    /// Creates a context for the call in `part`, a tool request.
    pub fn for_request(context: Context, part: Part, emitter: Emitter<ModelResponseChunk>) -> Self {
        Self::build(context, Some(part), emitter)
    }

    fn build(context: Context, part: Option<Part>, emitter: Emitter<ModelResponseChunk>) -> Self {
        Self {
            context,
            call: Arc::new(Call {
                part,
                emitter,
                attachments: Mutex::default(),
                effect: OnceLock::new(),
                has_begun: AtomicBool::new(false),
            }),
        }
    }

    /// Sets the identity that the call had before.
    pub(crate) fn with_effect(self, id: EffectId) -> Self {
        // The identity is not set yet: this context was just created.
        let _ = self.call.effect.set(id);
        self
    }

    /// Records that the tool's own code starts to run: its arguments were accepted.
    pub(super) fn begin(&self) {
        self.call.has_begun.store(true, Ordering::Release);
    }

    /// Returns whether the tool's own code has started to run.
    pub(crate) fn has_begun(&self) -> bool {
        self.call.has_begun.load(Ordering::Acquire)
    }

    /// Replaces the inner context, for instance by that of the call's span.
    pub(super) fn within(self, context: Context) -> Self {
        Self { context, ..self }
    }

    /// Returns the invocation's context: the caller's identity, the deadline and the extensions.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the model's tool request; `None` when the tool is run by hand.
    pub fn request(&self) -> Option<&ToolRequest> {
        self.call.part.as_ref()?.as_tool_request()
    }

    /// Returns the identity of this call. If the effects of the turn are journaled, a call that is repeated
    /// after a crash has the identity of the first attempt; otherwise every call has its own.
    ///
    /// Pass it to the service that the tool acts on as its idempotency key, and declare the tool as
    /// [`Replay::Keyed`](crate::Replay::Keyed).
    pub fn effect_id(&self) -> &EffectId {
        self.call.effect.get_or_init(EffectId::random)
    }

    /// Creates the error with which a tool reports that it is unknown whether it took effect: `return
    /// Err(cx.outcome_unknown().into())`.
    ///
    /// The tool's [reconcile function](crate::Tool::with_reconcile) is called, as after a crash. If it cannot
    /// determine the outcome, the generation is interrupted; the answer gives the tool's output or restarts
    /// the call.
    ///
    /// In an agent with a store, every error of a [`Replay::Once`](crate::Replay::Once) tool has this meaning
    /// unless it states that [nothing happened](Error::nothing_happened).
    pub fn outcome_unknown(&self) -> Error {
        super::outcome_unknown(self.effect_id())
    }

    /// Returns whether this is an interrupted call that was restarted.
    pub fn is_restarted(&self) -> bool {
        self.answer_value().is_some()
    }

    /// Returns the answer with which the caller restarted an interrupted call: any value, or `true` if the
    /// caller sent none.
    ///
    /// The JavaScript client's `restart()` sends no answer, and Python's only with `resumed_metadata`. The
    /// answer of a restart without one is the `metadata` of the whole `resume`, or `true` if there is none.
    pub fn answer_value(&self) -> Option<&Value> {
        self.entry(metadata::RESUMED)
    }

    /// Returns the answer with which the caller restarted an interrupted call; `None` if the call was not
    /// restarted.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the answer is not a `T`.
    pub fn answer<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        read(self.answer_value(), "the answer that the call was restarted with")
    }

    /// Like [`ToolContext::answer`], with `plain` in place of the answer if the caller restarted the call
    /// without one.
    ///
    /// ```
    /// # use everturn_ai::ToolContext;
    /// # use serde::Deserialize;
    /// #[derive(Deserialize)]
    /// struct Approval {
    ///     limit: u32,
    /// }
    ///
    /// # fn approval(cx: &ToolContext) -> everturn_core::Result<u32> {
    /// // A caller who only says "go on" approves of the smallest sum.
    /// let Some(approval) = cx.answer_or_else(|| Approval { limit: 10 })? else {
    ///     return Err(cx.interrupt("How much may it cost?"));
    /// };
    /// # Ok(approval.limit) }
    /// ```
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the answer is not a `T`.
    pub fn answer_or_else<T: DeserializeOwned>(&self, plain: impl FnOnce() -> T) -> Result<Option<T>> {
        match self.answer_value() {
            Some(Value::Bool(true)) => Ok(Some(plain())),
            _ => self.answer(),
        }
    }

    /// Returns the data of the interrupt that a restarted call answers, from the conversation; `None` if the
    /// call was not restarted.
    pub fn interrupted_with(&self) -> Option<&Value> {
        self.entry(metadata::RESOLVED_INTERRUPT)
    }

    /// Returns the input before the caller replaced it; `None` if it was not replaced.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it was not a `T`.
    pub fn original_input<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        read(self.entry(metadata::REPLACED_INPUT), "the original input")
    }

    /// Returns the question that a restarted call answers, with the people who approved it; `None` if the
    /// call was not restarted, or the question was not recorded.
    pub fn approval(&self) -> Option<Approval> {
        self.answer_value()?;
        self.call.part.as_ref()?.approval()
    }

    fn entry(&self, key: &str) -> Option<&Value> {
        self.call.part.as_ref()?.metadata_entry(key)
    }

    /// Adds content, such as media, to the tool's response, in addition to its output.
    pub fn attach(&self, part: impl Into<Part>) {
        self.call.attachments.lock().push(part.into());
    }

    pub(super) fn take_attachments(&self) -> Vec<Part> {
        std::mem::take(&mut *self.call.attachments.lock())
    }

    /// Streams progress: a response marked as partial, which never becomes part of the conversation.
    ///
    /// It does not fail without a receiver.
    pub async fn send_partial(&self, output: impl Serialize) {
        let (Some(request), Ok(output)) = (self.request(), serde_json::to_value(output)) else {
            return;
        };
        let part = Part::from(ToolResponse::to(request, output)).with_metadata_entry(metadata::PARTIAL, true);
        self.send_chunk(ModelResponseChunk {
            role: Some(Role::Tool),
            ..ModelResponseChunk::new(part)
        })
        .await;
    }

    /// Streams a custom chunk. Like [`ToolContext::send_partial`] it does not fail.
    pub async fn send_chunk(&self, chunk: ModelResponseChunk) {
        if let Err(error) = self.call.emitter.send(chunk).await {
            tracing::debug!(%error, "a tool's chunk found no receiver");
        }
    }

    /// Creates the error with which a tool pauses the generation: `return
    /// Err(cx.interrupt(question).into())`.
    ///
    /// The data reaches the caller in the interrupted request's metadata; `()` means no data.
    pub fn interrupt(&self, data: impl Serialize) -> Error {
        super::interrupt(data)
    }
}

fn read<T: DeserializeOwned>(value: Option<&Value>, what: &str) -> Result<Option<T>> {
    let read = |value: &Value| T::deserialize(value);
    value
        .map(read)
        .transpose()
        .map_err(|error| Error::invalid_argument(format!("{what} cannot be read: {error}")).with_public())
}

everturn_core::opaque_debug!(ToolContext, context, call.part);

/// A type that a `#[tool]` function can take in addition to the model's input: every [`FromContext`] type,
/// and types that need the tool call itself.
///
/// ```
/// use everturn_ai::core::{Error, HandlerResult};
/// use everturn_ai::{FromToolContext, ToolContext};
///
/// /// The reference of the call in the model's message.
/// struct Reference(String);
///
/// impl FromToolContext for Reference {
///     fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
///         let reference = context.request().and_then(|request| request.reference.clone());
///         let missing = || Error::failed_precondition("the call has no reference");
///         Ok(Self(reference.ok_or_else(missing)?))
///     }
/// }
/// ```
///
/// The attribute recognises the framework's arguments by name: [`ToolContext`],
/// [`Context`](everturn_core::Context), [`Dep`](everturn_core::Dep) and
/// [`Principal`](everturn_core::Principal), also inside an `Option`, and an agent's `Session` and
/// `SessionHandle`. An argument of any other type that implements this trait is marked `#[context]`.
/// References to these types work too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a tool can take from its context",
    label = "`FromToolContext` is not implemented for this type",
    note = "arguments named `ToolContext`, `Context`, `Dep`, `Principal`, `Session` or `SessionHandle`, and those marked \
            `#[context]`, come from the context; give a type of your own another name if the model is to send it"
)]
pub trait FromToolContext: Sized + Send {
    /// Returns the requirement of this argument, if it can be checked before the tool is called.
    ///
    /// An agent compares the requirements of its tools with the values that it provides. Its definition fails
    /// if a tool's requirement is not met.
    fn requirement() -> Option<Requirement> {
        None
    }

    /// Extracts the argument from a call.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the call cannot provide it.
    fn from_tool_context(context: &ToolContext) -> HandlerResult<Self>;
}

impl FromToolContext for ToolContext {
    fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
        Ok(context.clone())
    }
}

/// An argument of every kind of function: a [`Dep`](everturn_core::Dep), the
/// [`Principal`](everturn_core::Principal), the context of the invocation.
impl<T: FromContext> FromToolContext for T {
    fn requirement() -> Option<Requirement> {
        <T as FromContext>::requirement()
    }

    fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
        T::from_context(context.context())
    }
}

impl Tool {
    /// Declares that the tool takes a `T` from its context.
    ///
    /// `#[tool]` does this for its arguments; a tool made from a closure declares it here if it calls
    /// [`FromToolContext::from_tool_context`] itself.
    pub fn requiring<T: FromToolContext>(self) -> Self {
        match T::requirement() {
            Some(requirement) if !self.requirements().contains(&requirement) => {
                self.edit(|inner| inner.requirements.push(requirement))
            }
            _ => self,
        }
    }

    /// Returns the requirements of the tool's arguments.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0.requirements
    }
}
