//! The agent's function while it runs, the signals that it sends to the driver, and the driver's answers.
//!
//! Everything around the function (the definition, the driver, the actions) is the same for all types of
//! custom state, so the function is behind a trait without that type.
//!
//! All signals pass one queue and so arrive in the order in which they happened: a patch before the chunks
//! that were sent after it, and all of a turn's chunks before the turn's end. Code that cannot wait (a change
//! of the custom state) leaves its chunk in the queue and continues. Code that can wait does so until the
//! client's side has taken its chunk; a model waits only if too many of its chunks are on their way.

use std::any::type_name;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use everturn_ai::{History, Messages, ModelResponseChunk};
use everturn_core::{Context, Emitter, Error, Result, Schema, catch_panic};
use futures::FutureExt;
use futures::future::{self, BoxFuture};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::agent_session::InvocationFacts;
use super::generate::MessagePositions;
use super::turn::TurnStart;
use crate::policy::transform::StateTransform;
use crate::session::{Core, Publisher};
use crate::storage::session_state::decode_custom;
use crate::{
    AgentFinishReason, AgentResult, AgentSession, AgentStreamChunk, CustomState, Session, SessionHandle,
    SessionId, SessionState, SnapshotId,
};

/// An agent's function: runs the turns of one invocation and returns its result.
pub(crate) type AgentFunction<S> =
    dyn Fn(AgentSession<S>) -> BoxFuture<'static, Result<AgentResult>> + Send + Sync;

/// Calls the agent's function on the session that was opened for it.
pub(crate) type BeginFunction =
    Box<dyn FnOnce(Context, Signals, InvocationFacts) -> BoxFuture<'static, Result<AgentResult>> + Send>;

/// An agent's function and the type of its custom state, which is private to the implementation.
pub(crate) trait UntypedFunction: Send + Sync {
    /// Returns the name of the type of the custom state.
    fn custom_type(&self) -> &'static str;

    /// Checks that a custom state is of the agent's type.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field at fault.
    fn check_custom(&self, custom: &Value) -> Result<()>;

    /// Creates the live state of a session, on which the function can then begin.
    ///
    /// # Errors
    /// As [`UntypedFunction::check_custom`].
    fn open(
        &self,
        session_id: SessionId,
        state: SessionState,
        signals: &Signals,
        transform: Option<StateTransform>,
        caller: Context,
    ) -> Result<(SessionHandle, BeginFunction)>;
}

/// A function with the type of its custom state.
pub(crate) struct TypedFunction<S>(pub(crate) Arc<AgentFunction<S>>);

impl<S: CustomState> UntypedFunction for TypedFunction<S> {
    fn custom_type(&self) -> &'static str {
        type_name::<S>()
    }

    fn check_custom(&self, custom: &Value) -> Result<()> {
        decode_custom::<S>(Some(custom)).map(drop)
    }

    fn open(
        &self,
        session_id: SessionId,
        state: SessionState,
        signals: &Signals,
        transform: Option<StateTransform>,
        caller: Context,
    ) -> Result<(SessionHandle, BeginFunction)> {
        let core = Core::<S>::new(session_id, state, signals.publisher(), transform, caller)?;
        let session = Session::new(Arc::new(core));
        let (handle, function) = (session.handle(), Arc::clone(&self.0));
        let begin = move |context: Context, signals: Signals, facts: InvocationFacts| {
            let facts = Arc::new(facts);
            function(AgentSession {
                session,
                context,
                signals,
                facts,
            })
        };
        Ok((handle, Box::new(begin)))
    }
}

/// The agent's function at work, and the queue of its signals.
pub(super) struct RunningFunction {
    signals: mpsc::UnboundedReceiver<Signal>,
    /// A signal that [`RunningFunction::next_chunk`] found instead of a chunk.
    found: Option<Signal>,
    work: Work,
    /// When a cancelled function is dropped.
    dropped_at: Option<Instant>,
}

/// The work of the function, and who polls it.
enum Work {
    /// The driver does: a turn in which nothing waits stays on one thread.
    InPlace(BoxFuture<'static, Result<AgentResult>>),
    /// A separate task, so that the driver renews its leases even while the function blocks its thread.
    Task(AbortOnDropHandle<Result<AgentResult>>),
    /// The function has returned.
    Over,
}

/// A report of the function.
pub(super) enum Report {
    Signal(Signal),
    Returned(Result<AgentResult>),
}

impl RunningFunction {
    /// Takes the function to work, which begins when its reports are first waited for.
    pub(super) fn new(
        agent: &str,
        running: BoxFuture<'static, Result<AgentResult>>,
        context: Context,
        signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Self {
        let what = format!("agent '{agent}'");
        let work = context.scope(async move { catch_panic(&what, running).await });
        Self {
            signals,
            found: None,
            work: Work::InPlace(work.in_current_span().boxed()),
            dropped_at: None,
        }
    }

    /// Moves the function into a separate task, unless it has one or has returned.
    pub(super) fn move_to_task(&mut self) {
        self.work = match std::mem::replace(&mut self.work, Work::Over) {
            Work::InPlace(work) => Work::Task(AbortOnDropHandle::new(tokio::spawn(work))),
            work => work,
        };
    }

    /// Drops the function after this time, unless it returns before.
    pub(super) fn drop_after(&mut self, grace: Duration) {
        self.dropped_at.get_or_insert(Instant::now() + grace);
    }

    /// Returns the next chunk, if the function has sent one already and nothing else before it.
    pub(super) fn next_chunk(&mut self) -> Option<ChunkSignal> {
        match self.signals.try_recv().ok()? {
            Signal::Chunk(signal) => Some(signal),
            other => {
                self.found = Some(other);
                None
            }
        }
    }

    /// Waits for the function's next report: every signal it gave before it returned, then that it returned.
    pub(super) async fn next(&mut self) -> Report {
        if let Some(signal) = self.found.take() {
            return Report::Signal(signal);
        }
        loop {
            let dropped_at = self.dropped_at;
            let patience = async {
                match dropped_at {
                    Some(moment) => tokio::time::sleep_until(moment).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                report = poll_fn(|cx| self.poll_report(cx)) => return report,
                () = patience => {
                    // Signals that the function sends until it is dropped still count.
                    self.work.end();
                    self.dropped_at = None;
                }
            }
        }
    }

    fn poll_report(&mut self, cx: &mut TaskContext<'_>) -> Poll<Report> {
        // The queue is looked at again below, so a signal that comes meanwhile need not wake the task that
        // gives it.
        let mut unwoken = TaskContext::from_waker(Waker::noop());
        if let Poll::Ready(Some(signal)) = self.signals.poll_recv(&mut unwoken) {
            return Poll::Ready(Report::Signal(signal));
        }
        let returned = self.work.poll(cx);
        if let Poll::Ready(Some(signal)) = self.signals.poll_recv(cx) {
            if let Poll::Ready(result) = returned {
                self.work = Work::InPlace(future::ready(result).boxed());
            }
            return Poll::Ready(Report::Signal(signal));
        }
        returned.map(Report::Returned)
    }
}

impl Work {
    /// Waits for the function to return, once; forever after that.
    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<AgentResult>> {
        let returned = match self {
            Self::InPlace(work) => work.poll_unpin(cx),
            Self::Task(task) => task
                .poll_unpin(cx)
                .map(|joined| joined.unwrap_or_else(|_| Err(dropped()))),
            Self::Over => Poll::Pending,
        };
        if returned.is_ready() {
            *self = Self::Over;
        }
        returned
    }

    /// Drops the function where it next waits.
    fn end(&mut self) {
        match self {
            Self::InPlace(work) => *work = future::ready(Err(dropped())).boxed(),
            Self::Task(task) => task.abort(),
            Self::Over => {}
        }
    }
}

fn dropped() -> Error {
    Error::cancelled("the work was cancelled and did not end in time")
}

/// How many chunks of a model may be on their way to the client. The model does not wait at each chunk, and a
/// slow client still slows it down.
pub(crate) const MODEL_CHUNKS: usize = 32;

/// A signal from an agent's function to the driver.
pub(crate) enum Signal {
    /// A chunk for the client.
    Chunk(ChunkSignal),
    /// A change could not be shown as it must be; the invocation fails.
    Fault(Error),
    /// The function is ready for a turn; the answer is `None` when no more come.
    NextTurn(Answer<Option<TurnStart>>),
    /// A round of this turn ended: its tools have answered. The generation waits until this conversation is
    /// saved, or need not be.
    RoundDone {
        turn: usize,
        // Boxed because it is large: the queue reserves room for many signals of this size.
        conversation: Box<Messages>,
        /// Answered with the snapshot, if one was written.
        settled: Answer<Option<SnapshotId>>,
    },
    /// The turn's handler returned. The answer is the snapshot that holds the turn, if one was written.
    TurnDone {
        outcome: Result<Option<AgentFinishReason>>,
        settled: Option<Answer<Option<SnapshotId>>>,
    },
}

/// A chunk for the client, or only a receipt for all chunks before it.
pub(crate) struct ChunkSignal {
    pub(crate) chunk: Option<Box<AgentStreamChunk>>,
    pub(crate) taken: Option<Receipt>,
}

impl From<AgentStreamChunk> for ChunkSignal {
    /// Creates a signal for a chunk without a receipt.
    fn from(chunk: AgentStreamChunk) -> Self {
        Self {
            chunk: Some(Box::new(chunk)),
            taken: None,
        }
    }
}

/// Releases the code that waits for a chunk. It is dropped when the chunk was taken, or is not sent after
/// all.
#[expect(dead_code, reason = "they are held to be dropped")]
pub(crate) enum Receipt {
    /// Code waits for this very chunk.
    Awaited(oneshot::Sender<()>),
    /// A model waits for room for another chunk.
    Room(OwnedSemaphorePermit),
}

/// The state that is left of the turn in progress if it fails.
pub(crate) struct Committed {
    /// The session's state at that moment.
    pub(crate) state: SessionState,
    /// The conversation of the model request, and the request so far, which the session does not have yet.
    pub(crate) asked: Option<(History, Messages)>,
}

/// The listeners to chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Audience {
    Client,
    /// The watchers of a background run.
    Watchers,
    Nobody,
}

pub(crate) type Answer<T> = oneshot::Sender<Result<T>>;

/// The function's end of the queue. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Signals(Arc<Shared>);

struct Shared {
    signals: mpsc::UnboundedSender<Signal>,
    /// Whether the model's chunks have a listener.
    streaming: bool,
    /// Whether the ends of rounds may become snapshots.
    keeps_rounds: bool,
    /// The schema of the statuses that the function sends, if the agent declares one.
    status_schema: Option<Schema>,
    /// Whether chunks of the model carry the positions of their messages.
    sends_positions: bool,
    audience: AtomicU8,
    /// Room for chunks of models.
    room: Arc<Semaphore>,
    work: CancellationToken,
    /// Why the work was cancelled.
    end: OnceLock<Error>,
    committed: Mutex<Option<Box<Committed>>>,
}

impl Shared {
    fn plays_to(&self, audience: Audience) -> bool {
        self.audience.load(Ordering::Acquire) == audience as u8
    }

    fn signal(&self, signal: Signal) {
        // The driver outlives the function, except when the process shuts down and the signal no longer
        // matters.
        let _ = self.signals.send(signal);
    }
}

impl Publisher for Shared {
    fn is_silenced(&self) -> bool {
        self.plays_to(Audience::Nobody)
    }

    fn post(&self, chunk: AgentStreamChunk) {
        if !self.is_silenced() {
            self.signal(Signal::Chunk(chunk.into()));
        }
    }

    fn fault(&self, error: Error) {
        self.signal(Signal::Fault(error));
    }
}

impl Signals {
    /// Creates a queue whose senders stop waiting when `work` is cancelled.
    pub(crate) fn new(
        work: CancellationToken,
        streaming: bool,
        keeps_rounds: bool,
        status_schema: Option<Schema>,
        sends_positions: bool,
    ) -> (Self, mpsc::UnboundedReceiver<Signal>) {
        let (signals, receiver) = mpsc::unbounded_channel();
        let audience = AtomicU8::new(Audience::Client as u8);
        (
            Self(Arc::new(Shared {
                signals,
                streaming,
                keeps_rounds,
                status_schema,
                sends_positions,
                audience,
                room: Arc::new(Semaphore::new(MODEL_CHUNKS)),
                work,
                end: OnceLock::new(),
                committed: Mutex::default(),
            })),
            receiver,
        )
    }

    /// Passes chunks to these listeners from now on; all other signals pass in any case.
    pub(crate) fn play_to(&self, audience: Audience) {
        self.0.audience.store(audience as u8, Ordering::Release);
    }

    pub(crate) fn is_silenced(&self) -> bool {
        self.0.is_silenced()
    }

    /// Returns the publisher by which the session streams its changes.
    pub(crate) fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::<Shared>::clone(&self.0)
    }

    /// Returns whether chunks of models carry their position in the session.
    pub(crate) fn sends_positions(&self) -> bool {
        self.0.sends_positions || self.0.plays_to(Audience::Watchers)
    }

    /// Notes the state that is left of the turn if it fails from now on.
    pub(crate) fn commit(&self, committed: Committed) {
        *self.0.committed.lock() = Some(Box::new(committed));
    }

    /// Takes the state that is left of the turn; `None` if a failure leaves nothing of it.
    pub(crate) fn take_committed(&self) -> Option<Box<Committed>> {
        self.0.committed.lock().take()
    }

    /// Returns whether the ends of rounds may become snapshots.
    pub(crate) fn keeps_rounds(&self) -> bool {
        self.0.keeps_rounds
    }

    /// Cancels the work, and fails the code that waits here with the reason.
    pub(crate) fn end(&self, why: Error) {
        // The first reason stays.
        let _ = self.0.end.set(why);
        self.close();
    }

    /// Cancels the work that an invocation leaves behind.
    pub(crate) fn close(&self) {
        self.0.work.cancel();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    /// Leaves a chunk in the queue and waits until the client's side has taken it.
    ///
    /// # Errors
    /// The reason of the cancellation, if the work is cancelled before that.
    pub(crate) fn send(&self, chunk: impl Into<Box<AgentStreamChunk>>) -> impl Future<Output = Result<()>> {
        self.pass(Some(chunk.into()))
    }

    /// Sends a status as [`Signals::send`] sends a chunk.
    ///
    /// # Errors
    /// As [`Signals::send`]; `INVALID_ARGUMENT` if the status does not fit the type that the agent declares.
    pub(crate) async fn send_status(&self, status: impl Serialize) -> Result<()> {
        let status = serde_json::to_value(status)?;
        if let Some(schema) = &self.0.status_schema {
            let unfit = |error: Error| error.context("the status does not fit the agent's status type");
            schema.validate(&status).map_err(unfit)?;
        }
        self.send(AgentStreamChunk::status(status)).await
    }

    /// Waits until the client's side has taken everything posted so far.
    ///
    /// # Errors
    /// As [`Signals::send`].
    pub(crate) async fn taken(&self) -> Result<()> {
        self.pass(None).await
    }

    async fn pass(&self, chunk: Option<Box<AgentStreamChunk>>) -> Result<()> {
        if self.is_silenced() {
            return self.goes_on();
        }
        let (taken, wait) = oneshot::channel();
        self.signal(Signal::Chunk(ChunkSignal {
            chunk,
            taken: Some(Receipt::Awaited(taken)),
        }));
        tokio::select! {
            biased;
            () = self.0.work.cancelled() => Err(self.why_ended()),
            // The sender is also dropped if the chunk is not sent after all: either way there is nothing to
            // wait for.
            _ = wait => Ok(()),
        }
    }

    /// Leaves a model's chunk in the queue as soon as there is room for it.
    async fn stream(&self, chunk: ModelResponseChunk, positions: Option<&MessagePositions>) -> Result<()> {
        self.goes_on()?;
        if self.is_silenced() {
            return Ok(());
        }
        let room = tokio::select! {
            biased;
            room = Arc::clone(&self.0.room).acquire_owned() => room.expect("the semaphore is never closed"),
            () = self.0.work.cancelled() => return Err(self.why_ended()),
        };
        if !self.is_silenced() {
            let position = positions.map(|positions| positions.of(&chunk));
            self.signal(Signal::Chunk(ChunkSignal {
                chunk: Some(Box::new(AgentStreamChunk::model(chunk).at(position))),
                taken: Some(Receipt::Room(room)),
            }));
        }
        Ok(())
    }

    fn goes_on(&self) -> Result<()> {
        if self.0.work.is_cancelled() {
            return Err(self.why_ended());
        }
        Ok(())
    }

    /// Returns the emitter for the chunks of a generation; it is silent without a listener.
    pub(crate) fn model_emitter(&self, positions: Option<MessagePositions>) -> Emitter<ModelResponseChunk> {
        let listened_to = self.0.plays_to(Audience::Watchers) || self.0.streaming && !self.is_silenced();
        if !listened_to {
            return Emitter::silent();
        }
        let signals = self.clone();
        Emitter::new(move |chunk| {
            let (signals, positions) = (signals.clone(), positions.clone());
            async move { Ok(signals.stream(chunk, positions.as_ref()).await?) }
        })
    }

    /// Waits for the next turn; `None` when no more come.
    pub(crate) async fn next_turn(&self) -> Result<Option<TurnStart>> {
        self.ask(Signal::NextTurn).await
    }

    /// Reports the end of a round, waits until the conversation is saved, or need not be, and returns its
    /// snapshot.
    ///
    /// # Errors
    /// The store's error; `CANCELLED` if the invocation has ended.
    pub(crate) async fn round_done(&self, turn: usize, conversation: Messages) -> Result<Option<SnapshotId>> {
        self.ask(|settled| Signal::RoundDone {
            turn,
            conversation: Box::new(conversation),
            settled,
        })
        .await
    }

    /// Reports that the turn's handler returned, and waits for the snapshot that holds the turn.
    pub(crate) async fn turn_done(
        &self,
        outcome: Result<Option<AgentFinishReason>>,
    ) -> Result<Option<SnapshotId>> {
        self.ask(|settled| Signal::TurnDone {
            outcome,
            settled: Some(settled),
        })
        .await
    }

    async fn ask<T>(&self, question: impl FnOnce(Answer<T>) -> Signal) -> Result<T> {
        let (answer, wait) = oneshot::channel();
        // If the driver has ended, it has dropped the sender of the answer.
        self.signal(question(answer));
        wait.await.unwrap_or_else(|_| Err(self.why_ended()))
    }

    /// Returns the reason for which the work was cancelled.
    pub(crate) fn why_ended(&self) -> Error {
        self.0
            .end
            .get()
            .cloned()
            .unwrap_or_else(|| Error::cancelled("the invocation has ended"))
    }
}
