//! Turns: one input, processed.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use everturn_ai::{FinishReason, Message, ModelResponseChunk};
use everturn_core::{Context, Emitter, Error, Registry, Result};
use serde::Serialize;
use serde_json::Value;

use super::outbox::{Outbox, Signal};
use crate::journal::TurnJournal;
use crate::{AgentFinishReason, AgentInput, AgentStreamChunk, Artifact, CustomState, Session, SnapshotId};

/// Where in the conversation a turn is. Found in the context of everything that runs inside the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnContext {
    /// The row that will hold the turn: reserved before the turn began. `None` without a store, and where rows are
    /// [named after what they hold](crate::SnapshotIds::ContentAddressed), unless the turn runs in the background.
    pub snapshot_id: Option<SnapshotId>,
    /// The row the turn goes on from.
    pub parent_snapshot_id: Option<SnapshotId>,
    /// The number of the turn in its invocation, from zero.
    pub turn_index: usize,
}

impl TurnContext {
    /// The turn this code runs in, if it runs in one.
    pub fn current() -> Option<Arc<Self>> {
        Context::current().extension()
    }
}

/// One turn under way, as its handler sees it. It is also the [`Session`]. Cloning gives another handle to it.
pub struct Turn<S = Value> {
    session: Session<S>,
    input: AgentInput,
    place: Arc<TurnContext>,
    context: Context,
    outbox: Outbox,
}

impl<S: CustomState> Turn<S> {
    pub(crate) fn new(
        session: Session<S>,
        input: AgentInput,
        place: Arc<TurnContext>,
        context: Context,
        outbox: Outbox,
    ) -> Self {
        Self {
            session,
            input,
            place,
            context,
            outbox,
        }
    }

    /// What the client sent. Its message is already part of the session.
    pub fn input(&self) -> &AgentInput {
        &self.input
    }

    /// What the user says, if the input is not only answers to interrupts.
    pub fn message(&self) -> Option<&Message> {
        self.input.message.as_ref()
    }

    /// The row that will hold this turn, if it has a name already; see [`TurnContext::snapshot_id`].
    pub fn snapshot_id(&self) -> Option<&SnapshotId> {
        self.place.snapshot_id.as_ref()
    }

    /// The row this turn goes on from.
    pub fn parent_snapshot_id(&self) -> Option<&SnapshotId> {
        self.place.parent_snapshot_id.as_ref()
    }

    /// The number of the turn in its invocation, from zero.
    pub fn turn_index(&self) -> usize {
        self.place.turn_index
    }

    /// The circumstances: who calls, and whether the work is cancelled.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The registry in which the agent finds models, tools and prompts.
    pub fn registry(&self) -> Registry {
        self.context
            .extension::<Registry>()
            .map(Arc::unwrap_or_clone)
            .unwrap_or_default()
    }

    /// The session, for code that outlives the turn.
    pub fn session(&self) -> &Session<S> {
        &self.session
    }

    /// Streams a chunk of the model's to the client and waits until it is taken.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE_EXCEEDED` if the work ends before that. Nothing after a detach.
    pub async fn send_chunk(&self, chunk: impl Into<ModelResponseChunk>) -> Result<()> {
        self.outbox().send(AgentStreamChunk::model(chunk.into())).await
    }

    /// Adds an artifact to the session, streams it to the client and waits until it is taken.
    ///
    /// The session has it before this waits.
    ///
    /// # Errors
    /// As [`Turn::send_chunk`].
    pub async fn send_artifact(&self, artifact: Artifact) -> Result<()> {
        self.session.add_artifact(artifact);
        self.outbox().taken().await
    }

    /// Tells the client what the agent is doing, in a type of the agent's own, and waits until it is taken.
    ///
    /// # Errors
    /// As [`Turn::send_chunk`]; `INTERNAL` if the status cannot be written as JSON.
    pub async fn send_status(&self, status: impl Serialize) -> Result<()> {
        let status = serde_json::to_value(status)?;
        self.outbox().send(AgentStreamChunk::status(status)).await
    }

    /// Where a generation sends its chunks to have them streamed to the client.
    pub fn emitter(&self) -> Emitter<ModelResponseChunk> {
        self.outbox().model_emitter()
    }

    pub(super) fn outbox(&self) -> &Outbox {
        &self.outbox
    }
}

impl<S> Clone for Turn<S> {
    fn clone(&self) -> Self {
        Self {
            session: self.session.clone(),
            input: self.input.clone(),
            place: Arc::clone(&self.place),
            context: self.context.clone(),
            outbox: self.outbox.clone(),
        }
    }
}

impl<S> Deref for Turn<S> {
    type Target = Session<S>;

    fn deref(&self) -> &Session<S> {
        &self.session
    }
}

impl<S> fmt::Debug for Turn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("input", &self.input)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// What a turn's handler returns: why the turn is over, if it says so. Nothing is inferred.
///
/// Made from `()`, from a reason of the agent's or the model's, or from an optional one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TurnResult {
    /// Why the turn is over.
    pub finish_reason: Option<AgentFinishReason>,
}

impl From<()> for TurnResult {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<AgentFinishReason> for TurnResult {
    fn from(reason: AgentFinishReason) -> Self {
        Self {
            finish_reason: Some(reason),
        }
    }
}

impl From<FinishReason> for TurnResult {
    fn from(reason: FinishReason) -> Self {
        AgentFinishReason::from(reason).into()
    }
}

impl<R: Into<AgentFinishReason>> From<Option<R>> for TurnResult {
    fn from(reason: Option<R>) -> Self {
        Self {
            finish_reason: reason.map(Into::into),
        }
    }
}

/// A turn handed to the function's loop. Dropped without a word, it is reported as failed, so that the invocation never
/// waits for a turn that nobody runs.
pub(crate) struct TurnStart {
    pub(crate) input: AgentInput,
    pub(crate) place: TurnContext,
    /// Where what happens is written down, if it is.
    pub(crate) journal: Option<Arc<TurnJournal>>,
    pub(crate) report: TurnReport,
}

/// The obligation to say how a turn ended.
pub(crate) struct TurnReport(Option<Outbox>);

impl TurnReport {
    pub(crate) fn new(outbox: Outbox) -> Self {
        Self(Some(outbox))
    }

    /// The turn is not run after all, and nobody is told.
    pub(crate) fn waive(&mut self) {
        self.0 = None;
    }

    /// Reports the end of the turn and waits until it is settled. Only the first report counts.
    ///
    /// # Errors
    /// Why the turn could not be made durable; `CANCELLED` if the invocation is over.
    pub(crate) async fn settle(
        &mut self,
        outcome: Result<Option<AgentFinishReason>>,
    ) -> Result<Option<SnapshotId>> {
        match self.0.take() {
            Some(outbox) => outbox.turn_done(outcome).await,
            None => Ok(None),
        }
    }
}

impl Drop for TurnReport {
    fn drop(&mut self) {
        if let Some(outbox) = self.0.take() {
            outbox.signal(Signal::TurnDone {
                outcome: Err(Error::cancelled("the turn was dropped before its end")),
                settled: None,
            });
        }
    }
}
