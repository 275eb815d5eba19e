//! Turns: one input, and all that follows until the agent has answered it.

use std::ops::Deref;
use std::sync::Arc;

use everturn_ai::{FinishReason, Message, ModelResponseChunk, Role};
use everturn_core::{Context, Emitter, Error, Registry, Result, WeakRegistry};
use serde::Serialize;
use serde_json::Value;

use super::function::{Answer, Committed, Signal, Signals};
use super::generate::MessagePositions;
use crate::journal::TurnJournal;
use crate::{AgentFinishReason, AgentInput, AgentStreamChunk, Artifact, CustomState, Session, SnapshotId};

/// The place of a turn in its conversation. It is an extension of the context of all code that runs inside
/// the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnContext {
    /// The id of the snapshot that will hold the turn, reserved before the turn began. `None` without a
    /// store, and where snapshots are [named after their content](crate::SnapshotIds::ContentAddressed),
    /// unless the turn runs in the background.
    pub snapshot_id: Option<SnapshotId>,
    /// The snapshot that the turn continues.
    pub parent_snapshot_id: Option<SnapshotId>,
    /// The number of the turn in its invocation, from zero.
    pub turn_index: usize,
}

impl TurnContext {
    /// Returns the turn in which the calling code runs, if it runs in one.
    pub fn current() -> Option<Arc<Self>> {
        Context::current().extension()
    }
}

/// A turn as its handler sees it: one input to be answered, and the [`Session`] through `Deref`. Cloning
/// gives another handle to the same turn.
#[derive(Clone)]
pub struct Turn<S = Value> {
    pub(super) session: Session<S>,
    pub(super) input: AgentInput,
    pub(super) place: Arc<TurnContext>,
    pub(super) context: Context,
    pub(super) signals: Signals,
}

impl<S: CustomState> Turn<S> {
    /// Returns the input that the client sent. Its message is already part of the session.
    pub fn input(&self) -> &AgentInput {
        &self.input
    }

    /// Returns the user's message; `None` if the input only answers interrupts.
    pub fn message(&self) -> Option<&Message> {
        self.input.message.as_ref()
    }

    /// Returns the id of the snapshot that will hold this turn, if it is known already; see
    /// [`TurnContext::snapshot_id`].
    pub fn snapshot_id(&self) -> Option<&SnapshotId> {
        self.place.snapshot_id.as_ref()
    }

    /// Returns the snapshot that this turn continues.
    pub fn parent_snapshot_id(&self) -> Option<&SnapshotId> {
        self.place.parent_snapshot_id.as_ref()
    }

    /// Returns the number of the turn in its invocation, from zero.
    pub fn turn_index(&self) -> usize {
        self.place.turn_index
    }

    /// Returns the context of the turn: who calls, and whether the work is cancelled.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the registry in which the agent finds models, tools and prompts.
    pub fn registry(&self) -> Registry {
        self.context
            .extension::<WeakRegistry>()
            .and_then(|registry| registry.upgrade().ok())
            .unwrap_or_default()
    }

    /// Returns the session, for code that outlives the turn.
    pub fn session(&self) -> &Session<S> {
        &self.session
    }

    /// Streams a chunk to the client as the model's, and waits until the client has taken it.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE_EXCEEDED` if the work ends before that. After a detach nothing is waited for.
    pub async fn send_chunk(&self, chunk: impl Into<ModelResponseChunk>) -> Result<()> {
        let chunk = chunk.into();
        let is_new = self.signals().sends_positions() && chunk.role != Some(Role::Tool);
        let position = is_new.then(|| self.messages().len());
        self.signals()
            .send(AgentStreamChunk::model(chunk).at(position))
            .await
    }

    /// Adds an artifact to the session, streams it to the client, and waits until the client has taken it.
    ///
    /// The artifact is part of the session before the wait begins.
    ///
    /// # Errors
    /// As [`Turn::send_chunk`].
    pub async fn send_artifact(&self, artifact: Artifact) -> Result<()> {
        self.session.add_artifact(artifact);
        self.signals().taken().await
    }

    /// Streams an artifact to the client without adding it to the session, and waits until the client has
    /// taken it.
    ///
    /// For a preview, or for content that the client alone keeps: no snapshot and no output holds it.
    ///
    /// # Errors
    /// As [`Turn::send_chunk`].
    pub async fn stream_artifact(&self, artifact: Artifact) -> Result<()> {
        self.signals().send(AgentStreamChunk::artifact(artifact)).await
    }

    /// Streams a status of the agent's own type to the client, and waits until the client has taken it.
    ///
    /// # Errors
    /// As [`Turn::send_chunk`]; `INTERNAL` if the status cannot be written as JSON, `INVALID_ARGUMENT` if it
    /// does not fit the type that the agent [declares](crate::AgentBuilder::status).
    pub async fn send_status(&self, status: impl Serialize) -> Result<()> {
        self.signals().send_status(status).await
    }

    /// Returns the error of this turn as one that keeps what the turn has done: its messages, its changes of
    /// the custom state and its artifacts are part of the failed turn's snapshot, from which the conversation
    /// can be continued.
    ///
    /// Without it, an error of the turn's code leaves nothing of the turn.
    ///
    /// ```
    /// # use everturn_agent::Turn;
    /// # use everturn_ai::{FinishReason, Message};
    /// # use everturn_core::{Error, HandlerResult};
    /// async fn book(turn: Turn) -> HandlerResult<FinishReason> {
    ///     turn.add_message(Message::model("The flight is booked."));
    ///     // … the hotel's service does not answer:
    ///     Err(turn.committed(Error::unavailable("the hotel's service is down")).into())
    /// }
    /// ```
    pub fn committed(&self, error: impl Into<Error>) -> Error {
        self.signals.commit(Committed {
            state: self.session.state(),
            asked: None,
        });
        error.into()
    }

    /// Returns the emitter that streams a generation's chunks to the client.
    pub fn emitter(&self) -> Emitter<ModelResponseChunk> {
        let session = self.session.clone();
        let positions = self
            .signals()
            .sends_positions()
            .then(|| MessagePositions::new(move || session.messages()));
        self.signals().model_emitter(positions)
    }

    pub(super) fn signals(&self) -> &Signals {
        &self.signals
    }
}

impl<S> Deref for Turn<S> {
    type Target = Session<S>;

    fn deref(&self) -> &Session<S> {
        &self.session
    }
}

everturn_core::opaque_debug!(Turn<S>, input, place);

/// The result of a turn's handler: the turn's finish reason, if the handler gives one.
///
/// It converts from `()`, from an [`AgentFinishReason`] or a model's [`FinishReason`], and from an `Option`
/// of either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TurnResult {
    /// The reason for which the turn ended.
    pub finish_reason: Option<AgentFinishReason>,
}

impl From<()> for TurnResult {
    fn from((): ()) -> Self {
        Self::default()
    }
}

everturn_core::conversions! {
    From<AgentFinishReason> for TurnResult: |reason| Self {
        finish_reason: Some(reason),
    };
    From<FinishReason> for TurnResult: |reason| AgentFinishReason::from(reason).into();
}

impl<R: Into<AgentFinishReason>> From<Option<R>> for TurnResult {
    fn from(reason: Option<R>) -> Self {
        Self {
            finish_reason: reason.map(Into::into),
        }
    }
}

/// A turn on its way to the function's turn loop. If it is dropped instead of run, it is reported as failed,
/// so that the invocation never waits for an abandoned turn.
pub(crate) struct TurnStart {
    pub(crate) input: Box<AgentInput>,
    pub(crate) place: TurnContext,
    /// The turn's journal, if the agent keeps one.
    pub(crate) journal: Option<Arc<TurnJournal>>,
    pub(crate) report: TurnReport,
}

/// The obligation to report the end of a turn.
pub(crate) struct TurnReport(Option<Signals>);

impl TurnReport {
    pub(crate) fn new(signals: Signals) -> Self {
        Self(Some(signals))
    }

    /// Drops the obligation: the turn did not begin.
    pub(crate) fn waive(&mut self) {
        self.0 = None;
    }

    /// Reports the end of the turn and waits until it is settled. Only the first report counts.
    ///
    /// # Errors
    /// The store's error if the turn could not be made durable; `CANCELLED` if the invocation has ended.
    pub(crate) async fn settle(
        &mut self,
        outcome: Result<Option<AgentFinishReason>>,
    ) -> Result<Option<SnapshotId>> {
        match self.0.take() {
            Some(signals) => signals.turn_done(outcome).await,
            None => Ok(None),
        }
    }
}

impl Drop for TurnReport {
    fn drop(&mut self) {
        if let Some(signals) = self.0.take() {
            signals.signal(Signal::TurnDone {
                outcome: Err(Error::cancelled("the turn was dropped before its end")),
                settled: None,
            });
        }
    }
}

/// The state of the invocation's turns that the driver keeps.
#[derive(Default)]
pub(super) struct Turns {
    /// Answers the turn loop that waits for a turn.
    asking: Option<Answer<Option<TurnStart>>>,
    /// Answers the turn loop that waits for its turn to be settled.
    settling: Option<Answer<Option<SnapshotId>>>,
    /// How many turns have begun in this invocation.
    begun: usize,
    /// The number of the turn that runs.
    running: Option<usize>,
    /// Whether the turn that began last is yet to be settled.
    unsettled: bool,
    /// The id reserved for the turn in progress, or for the background run.
    pub(super) reserved: Option<SnapshotId>,
    /// The id to reserve next, if the turn was given one before it was requested.
    given: Option<SnapshotId>,
    pub(super) last: LastTurn,
}

/// The turn that began last.
#[derive(Default)]
pub(super) struct LastTurn {
    /// The snapshot that holds the turn or its failure, if it was written.
    pub(super) snapshot: Option<SnapshotId>,
    /// The snapshot of its failure, until the turn's end is sent.
    pub(super) kept: Option<SnapshotId>,
    /// Its finish reason, if it succeeded and gave one.
    pub(super) reason: Option<AgentFinishReason>,
    /// Why it failed, if it did.
    pub(super) error: Option<Error>,
    /// Whether it was stopped: by its caller, or by a limit.
    is_stopped: bool,
}

impl LastTurn {
    /// Returns how the turn ended, if it did not succeed.
    pub(super) fn failure(&self) -> AgentFinishReason {
        if self.is_stopped {
            AgentFinishReason::Aborted
        } else {
            AgentFinishReason::Failed
        }
    }
}

impl Turns {
    /// Returns the turns of an invocation of which other workers have run `begun`.
    pub(super) fn after(begun: usize) -> Self {
        Self {
            begun,
            ..Self::default()
        }
    }

    /// Returns the turns of an invocation whose first has this id already.
    pub(super) fn beginning_with(given: Option<SnapshotId>) -> Self {
        Self {
            given,
            ..Self::default()
        }
    }

    /// Returns how many turns have ended. The turn in progress, if any, does not count.
    pub(super) fn over(&self) -> usize {
        self.begun - usize::from(self.unsettled)
    }

    /// Reserves a snapshot id for the next turn, or for the background run.
    pub(super) fn reserve(&mut self) -> SnapshotId {
        let id = self.given.take().unwrap_or_else(SnapshotId::generate);
        self.reserved.insert(id).clone()
    }

    /// Keeps the answer for the turn loop that asks. A loop that asked before has stopped waiting.
    pub(super) fn ask(&mut self, answer: Answer<Option<TurnStart>>) {
        self.asking = Some(answer);
    }

    /// Takes the answer for the turn loop that waits for a turn, if one still does.
    pub(super) fn waiting(&mut self) -> Option<Answer<Option<TurnStart>>> {
        self.asking.take().filter(|asking| !asking.is_closed())
    }

    pub(super) fn answer(&mut self, answer: Result<Option<TurnStart>>) {
        if let Some(asking) = self.asking.take() {
            let _ = asking.send(answer);
        }
    }

    /// Begins a turn and returns its number.
    pub(super) fn begin(&mut self) -> usize {
        self.last = LastTurn::default();
        self.unsettled = true;
        self.begun += 1;
        *self.running.insert(self.begun - 1)
    }

    /// Counts a turn that could not begin, and reports it to the waiting loop.
    pub(super) fn fail(&mut self, error: Error) {
        self.begun += 1;
        self.last = LastTurn::default();
        self.answer(Err(error));
    }

    /// Undoes the beginning of a turn that was never run.
    pub(super) fn take_back(&mut self) {
        self.begun -= 1;
        self.running = None;
        self.unsettled = false;
    }

    /// Returns whether the turn of this number has begun and not ended.
    pub(super) fn is_running(&self, number: usize) -> bool {
        self.running == Some(number)
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.running.is_some()
    }

    pub(super) fn end(
        &mut self,
        outcome: Result<Option<AgentFinishReason>>,
        is_stopped: bool,
        settled: Option<Answer<Option<SnapshotId>>>,
    ) {
        self.running = None;
        self.last.is_stopped = is_stopped;
        (self.last.reason, self.last.error) = match outcome {
            Ok(reason) => (reason, None),
            Err(error) => (None, Some(error)),
        };
        self.settling = settled;
    }

    pub(super) fn settle(&mut self, outcome: Result<(), Error>) {
        if outcome.is_err() {
            self.last.reason = None;
        }
        if let Some(settling) = self.settling.take() {
            // The loop may have been dropped while it waited.
            let _ = settling.send(outcome.map(|()| self.last.snapshot.clone()));
        }
        self.unsettled = false;
    }
}
