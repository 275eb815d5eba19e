//! The agent's function: behind a trait without the type of its custom state, while it runs, and the state of
//! its turn loop that the driver keeps.
//!
//! Everything around the function (the definition, the driver, the actions) is the same for all types, so it
//! is compiled once and not again for each agent.

use std::any::type_name;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use everturn_core::{Context, Error, Result, catch_panic};
use futures::FutureExt;
use futures::future::{self, BoxFuture};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::agent_session::InvocationFacts;
use super::signals::{Answer, ChunkSignal, Signal, Signals};
use super::turn::TurnStart;
use crate::policy::transform::StateTransform;
use crate::session::Core;
use crate::storage::session_state::decode_custom;
use crate::{
    AgentFinishReason, AgentResult, AgentSession, CustomState, Session, SessionHandle, SessionId,
    SessionState, SnapshotId,
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
            function(AgentSession::new(session, context, signals, facts))
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
    reserved: Option<SnapshotId>,
    /// The id to reserve next, if the turn was given one before it was requested.
    given: Option<SnapshotId>,
    /// The snapshot that holds the last turn, if it was written.
    snapshot: Option<SnapshotId>,
    /// The finish reason of the last turn, if it succeeded and gave one.
    reason: Option<AgentFinishReason>,
    /// The snapshot that keeps the failure of the last turn, until its end is sent.
    kept: Option<SnapshotId>,
    /// Why the last turn failed, if it did.
    error: Option<Error>,
    /// Whether the last turn was stopped: by its caller, or by a limit.
    is_stopped: bool,
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
        self.snapshot = None;
        self.kept = None;
        self.reason = None;
        self.is_stopped = false;
        self.unsettled = true;
        let number = self.begun;
        self.running = Some(number);
        self.begun += 1;
        number
    }

    /// Counts a turn that could not begin, and reports it to the waiting loop.
    pub(super) fn fail(&mut self, error: Error) {
        self.begun += 1;
        self.snapshot = None;
        self.reason = None;
        self.is_stopped = false;
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
        self.is_stopped = is_stopped;
        (self.reason, self.error) = match outcome {
            Ok(reason) => (reason, None),
            Err(error) => (None, Some(error)),
        };
        self.settling = settled;
    }

    pub(super) fn committed(&mut self, snapshot: SnapshotId) {
        self.snapshot = Some(snapshot);
    }

    /// Notes that the failure of the turn is in a snapshot.
    pub(super) fn keep(&mut self, snapshot: SnapshotId) {
        self.kept = Some(snapshot.clone());
        self.snapshot = Some(snapshot);
    }

    /// Takes the snapshot of a failure whose end is being sent. A turn that never began has none.
    pub(super) fn take_kept(&mut self) -> Option<SnapshotId> {
        self.kept.take()
    }

    pub(super) fn settle(&mut self, outcome: Result<(), Error>) {
        if outcome.is_err() {
            self.reason = None;
        }
        if let Some(settling) = self.settling.take() {
            // The loop may have been dropped while it waited.
            let _ = settling.send(outcome.map(|()| self.snapshot.clone()));
        }
        self.unsettled = false;
    }

    pub(super) fn reserved(&self) -> Option<&SnapshotId> {
        self.reserved.as_ref()
    }

    pub(super) fn snapshot(&self) -> Option<&SnapshotId> {
        self.snapshot.as_ref()
    }

    pub(super) fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Returns how the last turn ended, if it did not succeed.
    pub(super) fn failure(&self) -> AgentFinishReason {
        if self.is_stopped {
            AgentFinishReason::Aborted
        } else {
            AgentFinishReason::Failed
        }
    }

    pub(super) fn reason(&self) -> Option<AgentFinishReason> {
        self.reason
    }
}
