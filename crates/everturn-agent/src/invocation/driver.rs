//! The driver: executes the commands of the machine.
//!
//! Each invocation has one driver. It turns everything that happens around it into events, hands them to the
//! [machine](super::machine) one at a time, and executes the commands that come back. It decides nothing.
//! Work that waits (for a store, a slow client, the turn lock) runs concurrently and completes with an event.
//!
//! The client's task polls the driver, and the driver polls the agent's function, so a turn in which nothing
//! waits runs without a context switch. Both move to separate tasks once the client has left: see
//! [`invoke`](super::start::invoke) and [`RunningFunction`].

mod run_worker;
pub(super) mod snapshots;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use everturn_ai::prompt::PromptOverrides;
use everturn_ai::{ToolErrors, is_limit, with_tool_errors, with_window};
use everturn_core::{Context, Emitter, Error, Inputs, Registry, Result, SpanRecorder};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use self::run_worker::{Rewritten, RunWorker};
use self::snapshots::{Journals, SnapshotWritten, Snapshots};
use super::agent_session::InvocationFacts;
use super::broadcast::Broadcast;
use super::client::{AnswerSender, Client, ClientStream, ClientStreamEvent, error_of, lost_the_session};
use super::cursor::{InvocationCursor, Saved};
use super::definition::CANCELLATION_GRACE;
use super::failure_log::FailedWork;
use super::function::{Audience, ChunkSignal, MODEL_CHUNKS, Report, RunningFunction, Signal, Signals};
use super::machine::{
    Cancellation, Cause, Command, EndOfInput, Event, Machine, Resolution, StoreSupport, TurnOutcome,
    TurnSnapshot,
};
use super::new_session::session_exists;
use super::repeated::answered_meanwhile;
use super::start::Opening;
use super::turn::{TurnContext, TurnReport, TurnStart, Turns};
use super::turn_lock::{AwaitedLock, LockAnswer, SESSION_BUSY};
use super::usage_tracker::UsageTracker;
use super::{Definition, RegistryGuard};
use crate::policy::transform::{shown_chunk, shown_state};
use crate::policy::visibility::exposure;
use crate::storage::snapshot::{BackgroundRun, Lease};
use crate::storage::stored_session::TenantStore;
use crate::{
    AddedMessages, AgentFinishReason, AgentInput, AgentOutput, AgentResult, AgentStreamChunk, FailedTurns,
    SessionHandle, SessionState, SnapshotEvent, SnapshotId, SnapshotIds, TurnDetails, TurnEnd, TurnStarted,
};

/// How long the answer to a client waits for its lock in the store to be released.
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);

/// An input on its way through the machine. It is boxed because it is large, and events and commands are
/// moved often.
pub(super) type QueuedInput = Box<AgentInput>;

pub(super) type AgentEvent = Event<QueuedInput, Error>;

/// One invocation in progress. It is boxed because it is large.
pub(crate) struct Driver {
    machine: Machine<QueuedInput, Error>,
    /// Answers that commands have at once. They are handled before anything from outside.
    raised: VecDeque<AgentEvent>,
    definition: Arc<Definition>,
    /// The agent's registry, kept until the invocation has ended.
    _registry: Registry,
    session: SessionHandle,
    signals: Signals,
    client: Client,
    client_stream: ClientStream,
    function: RunningFunction,
    turns: Turns,
    lock: LockWork,
    cursor: Option<Box<InvocationCursor>>,
    writes: FuturesUnordered<BoxFuture<'static, Written>>,
    background: RunWorker,
    broadcast: Broadcast,
    snapshots: Snapshots,
    journals: Journals,
    /// Whether the caller gave the session its custom state.
    gives_custom: bool,
    outcome: Outcome,
    /// Whether the work was cancelled because its result is no longer needed.
    is_stopped: bool,
    usage: Arc<UsageTracker>,
}

/// The work on turn locks and on calls of other turns that is in progress.
#[derive(Default)]
struct LockWork {
    /// The wait for the turn lock.
    queue: Option<BoxFuture<'static, Result<AwaitedLock>>>,
    /// Locks in the store that are being released, and calls of other turns that are noted as taken over.
    releases: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl LockWork {
    /// Waits until locks in the store are released, and calls are noted as taken over. A lock that takes too
    /// long lapses by itself, and a call is taken over again.
    async fn settle(&mut self) {
        if self.releases.is_empty() {
            return;
        }
        let released = async { while self.releases.next().await.is_some() {} };
        if tokio::time::timeout(RELEASE_PATIENCE, released).await.is_err() {
            self.releases.clear();
        }
    }
}

/// The parts of the output.
#[derive(Default)]
struct Outcome {
    /// The result of the agent's function, once it has returned.
    result: Option<Result<AgentResult>>,
    /// The state for the output, once the state transform was applied.
    shown: Option<Box<SessionState>>,
    /// The state for the output of an invocation that fails; only where the client keeps the state.
    last_good: Option<Box<SessionState>>,
}

/// A store's answer to a command.
enum Written {
    Snapshot(SnapshotWritten),
    Pending(Result<Box<Saved>>),
    Final(Result<bool>),
    Progress(Rewritten),
    Beat(Rewritten),
}

/// Something that happened around the driver.
enum Happened {
    Event(AgentEvent),
    Written(Written),
    LockAwaited(Box<Result<AwaitedLock>>),
    LockReleased,
    ClientStream(ClientStreamEvent),
    Function(Report),
}

impl Driver {
    /// Starts the agent's function on a session.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the session's stored custom state does not fit the agent, `INVALID_ARGUMENT`
    /// if the client's does not.
    pub(crate) fn start(
        definition: Arc<Definition>,
        opening: Opening,
        inputs: Inputs<AgentInput>,
        emitter: Emitter<AgentStreamChunk>,
        caller: Context,
        answer: AnswerSender,
    ) -> Result<Box<Self>> {
        let support = match &opening.cursor {
            None => StoreSupport::None,
            Some(cursor) if cursor.tenant().store().can_watch() => StoreSupport::WithSubscription,
            Some(_) => StoreSupport::WithoutSubscription,
        };
        let keeps_ends =
            opening.cursor.is_some() && definition.snapshots.listens_to(SnapshotEvent::InvocationEnd);
        let keeps_failures = definition.failed_turns == FailedTurns::Keep;
        let machine = Machine::new(support).keeping(keeps_ends, keeps_failures);
        let client = Client::new(inputs, caller, answer);
        Self::assemble(definition, opening, client, emitter, machine)
    }

    /// Starts the agent's function on a run that was taken over, with the inputs that are left and without a
    /// client.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub(crate) fn take_over(
        definition: Arc<Definition>,
        id: SnapshotId,
        run: BackgroundRun,
        opening: Opening,
        context: Context,
    ) -> Result<Box<Self>> {
        let (machine, commands) = Machine::take_over(run.inputs.into_iter().map(Box::new).collect());
        let client = Client::departed(context, run.by_program);
        let mut driver = Self::assemble(definition, opening, client, Emitter::silent(), machine)?;
        driver.turns = Turns::after(run.turns);
        // There is no client, so chunks go to the watchers from the beginning.
        driver.client_stream.silence();
        driver.play_to_watchers();
        driver.go_to_background(id, run.lease);
        for command in commands {
            driver.execute(command);
        }
        Ok(driver)
    }

    /// Puts the parts of an invocation together and spawns the agent's function.
    fn assemble(
        definition: Arc<Definition>,
        opening: Opening,
        client: Client,
        emitter: Emitter<AgentStreamChunk>,
        machine: Machine<QueuedInput, Error>,
    ) -> Result<Box<Self>> {
        let (cursor, init) = (opening.cursor, opening.init);
        let caller = client.context().clone();
        let work = CancellationToken::new();
        let keeps_rounds = cursor.is_some() && definition.snapshots.listens_to(SnapshotEvent::RoundEnd);
        let (signals, receiver) = Signals::new(
            work.clone(),
            emitter.is_streaming(),
            keeps_rounds,
            definition.status_schema.clone(),
            caller.extension::<TurnDetails>().is_some(),
        );
        let transform = definition.state_transform.clone();
        let opened_session = opening.session_id.clone();
        let opened = definition.function.open(
            opening.session_id,
            opening.state,
            &signals,
            transform,
            caller.clone(),
        );
        let is_stored = cursor.is_some() || init.session_id.is_some() || init.snapshot_id.is_some();
        let (session, run_function) = opened.map_err(|error| {
            if is_stored {
                definition.unreadable_state(&opened_session, &caller, &error)
            } else {
                // A client that keeps the state sent it, and may read what is wrong with it.
                error.with_public()
            }
        })?;
        // Only clients that keep the state need the last good one; others resume from the last snapshot.
        let last_good = cursor.is_none().then(|| Box::new(session.state()));
        let resumed = cursor.as_ref().is_some_and(|cursor| cursor.last().is_some());
        let newest = resumed.then(|| session.state());
        let unsaved = opening.differs_from_snapshot.then(|| session.state());
        let is_at_head = cursor.as_ref().is_some_and(|cursor| cursor.is_at_head());
        let listed = if is_at_head {
            opening.listed
        } else {
            newest.clone()
        };
        let snapshots = Snapshots::after(newest, unsaved, listed, opening.call);

        // The work is cancelled by the machine alone: after a detach it must outlive its caller's
        // cancellation.
        let context = session.enter(caller.detached().with_cancellation(work));
        let registry = definition.registry.upgrade()?;
        let used_before = cursor.as_deref().map(InvocationCursor::used_before);
        let limits = definition.limits.for_call(&caller, &registry);
        // Agents that this one calls have their own meters inside this one.
        let store = definition.store.clone();
        let tenant = store.map(|store| TenantStore::new(store, definition.scope(&caller)));
        let repeated_calls = limits.most_repeated_calls();
        let usage = UsageTracker::begin(&caller, limits, &used_before.unwrap_or_default(), tenant);
        RegistryGuard::release(&caller);
        let mut context = with_settings(usage.enter(context), &definition, &registry);
        let overrides = caller
            .extension::<PromptOverrides>()
            .filter(|overrides| !overrides.is_empty());
        if overrides.is_some() {
            // They are for this invocation, not for the agents that it calls.
            context = context.with_extension(Arc::new(PromptOverrides::new()));
        }
        let facts = InvocationFacts {
            definition: Arc::clone(&definition),
            is_of_client: !client.is_program(),
            is_clients_word: opening.is_clients_word,
            init,
            overrides,
            snapshots: snapshots.created(),
            limit: definition.state_limit(),
            usage: Arc::clone(&usage),
            repeated_calls,
        };
        let running = run_function(context.clone(), signals.clone(), facts);
        let function = RunningFunction::new(&definition.name, running, context, receiver);

        Ok(Box::new(Self {
            machine,
            raised: VecDeque::new(),
            client,
            client_stream: ClientStream::new(emitter),
            function,
            turns: Turns::beginning_with(opening.first_turn),
            lock: LockWork::default(),
            cursor,
            writes: FuturesUnordered::new(),
            background: RunWorker::new(definition.heartbeat.interval),
            broadcast: Broadcast::new(Arc::clone(&definition.run_log)),
            snapshots,
            journals: Journals::default(),
            gives_custom: opening.gives_custom,
            outcome: Outcome {
                last_good,
                ..Outcome::default()
            },
            is_stopped: false,
            usage,
            definition,
            _registry: registry,
            session,
            signals,
        }))
    }

    /// Moves the agent's function into a separate task.
    pub(super) fn move_function_to_task(&mut self) {
        self.function.move_to_task();
    }

    /// Runs the invocation to its end.
    pub(crate) async fn run(mut self: Box<Self>) {
        while !self.machine.is_released() {
            let event = if let Some(event) = self.raised.pop_front() {
                event
            } else {
                let happened = self.next().await;
                let Some(event) = self.interpret(happened) else {
                    continue;
                };
                event
            };
            self.note(&event);
            for command in self.machine.handle(event) {
                // A client that has its answer may begin its next turn in another process at once.
                if let Command::Resolve(resolution) = &command {
                    if !matches!(resolution, Resolution::Detached) {
                        self.release_lock();
                    }
                    self.lock.settle().await;
                }
                self.execute(command);
            }
        }
        self.release_lock();
        self.lock.settle().await;
        self.broadcast.finish().await;
    }

    /// Waits for something to happen. Of several things the client's input comes first, then its departure,
    /// then answers to commands, then the function: so a detach that could be read wins over everything.
    async fn next(&mut self) -> Happened {
        let LockWork { queue, releases } = &mut self.lock;
        tokio::select! {
            // The order is part of the contract with the machine, see "What the driver raises" there. All
            // futures here may be dropped at any await without losing anything.
            biased;
            event = self.client.next() => Happened::Event(event),
            Some(written) = self.writes.next() => Happened::Written(written),
            Some(()) = releases.next() => Happened::LockReleased,
            never = renew_lock(&mut self.cursor) => match never {},
            awaited = lock_awaited(queue) => Happened::LockAwaited(Box::new(awaited)),
            event = self.background.next() => Happened::Event(event),
            event = self.client_stream.flush() => Happened::ClientStream(event),
            never = self.broadcast.work() => match never {},
            report = self.function.next() => Happened::Function(report),
        }
    }

    /// Returns the event for the machine, if there is one.
    fn interpret(&mut self, happened: Happened) -> Option<AgentEvent> {
        match happened {
            Happened::Event(event) => Some(event),
            Happened::Written(written) => self.written(written),
            Happened::LockAwaited(awaited) => Some(self.lock_awaited(*awaited)),
            Happened::LockReleased => None,
            Happened::ClientStream(ClientStreamEvent::Broken(error)) => Some(Event::ClientGone(error)),
            Happened::ClientStream(ClientStreamEvent::Empty) => Some(self.drained()),
            Happened::Function(Report::Signal(signal)) => self.signalled(signal),
            Happened::Function(Report::Returned(result)) => {
                // The machine needs the outcome, not the result, which waits here for the output.
                let event = Event::Returned(result.as_ref().map(|_| ()).map_err(Clone::clone));
                self.outcome.result = Some(result);
                Some(event)
            }
        }
    }

    fn signalled(&mut self, signal: Signal) -> Option<AgentEvent> {
        match signal {
            Signal::Chunk(signal) => self.show_all(signal),
            Signal::Fault(error) => Some(self.hide(error)),
            Signal::NextTurn(answer) => {
                self.turns.ask(answer);
                Some(Event::NextInput)
            }
            Signal::RoundDone {
                turn,
                conversation,
                settled,
            } => {
                if self.turns.is_running(turn) {
                    self.snapshots.wait(*conversation, settled);
                    return Some(Event::RoundEnded);
                }
                // The turn ended without waiting for this generation, so its round can no longer become a
                // snapshot.
                let _ = settled.send(Ok(None));
                None
            }
            Signal::TurnDone { outcome, settled } => {
                let is_stopped = outcome.as_ref().is_err_and(|error| self.is_stop(error));
                let ended = match &outcome {
                    Ok(_) => TurnOutcome::Succeeded,
                    Err(error) => {
                        self.roll_back(error);
                        TurnOutcome::Failed
                    }
                };
                self.journals.rest();
                if let Some(cursor) = &mut self.cursor {
                    cursor.turn_ended(ended == TurnOutcome::Succeeded);
                }
                self.turns.end(outcome, is_stopped, settled);
                self.tell_watchers_of_turn_end(ended);
                Some(Event::TurnEnded(ended))
            }
        }
    }

    /// Passes on a chunk and those that were sent right after it, so that a burst of chunks is one event.
    fn show_all(&mut self, first: ChunkSignal) -> Option<AgentEvent> {
        let mut failed = self.show(first);
        // Bounded, because the client's inputs must be read too.
        for _ in 1..MODEL_CHUNKS {
            if failed.is_some() {
                break;
            }
            let next = self.function.next_chunk()?;
            failed = self.show(next);
        }
        failed
    }

    /// Passes a chunk on to the client or, after a detach, to the watchers of the run.
    fn show(&mut self, signal: ChunkSignal) -> Option<AgentEvent> {
        let ChunkSignal { chunk, taken } = signal;
        // A transform is user code: it does not run for a chunk without a receiver.
        let is_discarded = self.client_stream.is_silent() && !self.broadcast.wants();
        let transform = self.definition.stream_transform.as_ref();
        let shown = match chunk.filter(|_| !is_discarded) {
            Some(chunk) => shown_chunk(transform, *chunk, self.client.context()),
            None => Ok(None),
        };
        match shown {
            // After a detach the wire is silent and chunks are for the watchers of the run.
            Ok(chunk) if self.client_stream.is_silent() => self.broadcast.queue(chunk.as_ref(), taken),
            Ok(chunk) => self.client_stream.queue(chunk, taken),
            Err(error) => return Some(self.hide(error)),
        }
        None
    }

    /// Stops sending chunks, because a transform failed.
    fn hide(&mut self, error: Error) -> AgentEvent {
        self.broadcast.close();
        Event::TransformFailed(error)
    }

    fn written(&mut self, written: Written) -> Option<AgentEvent> {
        Some(match written {
            Written::Snapshot(written) => self.snapshot_written(written),
            Written::Pending(Ok(saved)) => {
                if let Some(cursor) = &mut self.cursor {
                    cursor.wrote(&saved);
                    self.journals.moved_on(cursor.precondition());
                }
                self.snapshots.note_created(&saved.snapshot.snapshot_id);
                self.go_to_background(saved.snapshot.snapshot_id, Lease::first());
                Event::PendingWritten
            }
            Written::Pending(Err(error)) => {
                // The chunks that waited for the run's stream have no stream to go to.
                self.broadcast.close();
                Event::PendingFailed(error)
            }
            Written::Final(Ok(true)) => Event::FinalizeWritten,
            Written::Final(Ok(false)) => {
                self.broadcast.close();
                Event::FinalizeFailed(Error::aborted("the run is no longer this worker's"))
            }
            Written::Final(Err(error)) => {
                self.failed_work()
                    .log("saving the end of a background run", &error);
                Event::FinalizeFailed(error)
            }
            Written::Progress(progress) => {
                // The recorded state holds these turns, so a takeover does not replay them.
                if progress.is_written {
                    self.lock.releases.extend(self.journals.begin());
                }
                progress.hold.event().unwrap_or(Event::ProgressRecorded)
            }
            Written::Beat(beat) => return beat.hold.event(),
        })
    }

    /// Updates the takeover point.
    fn note(&mut self, event: &AgentEvent) {
        if matches!(event, Event::LeaseLost) {
            // The watchers continue with the stream of the worker that took the run over.
            self.broadcast.close();
        }
        let (session, written) = (&self.session, self.snapshots.written.take());
        let state = || written.unwrap_or_else(|| session.state());
        self.snapshots.takeover.note(event, state);
    }

    /// Describes this invocation for the log line of a failure.
    fn failed_work(&self) -> FailedWork<'_> {
        FailedWork {
            agent: &self.definition.name,
            session: self.session.session_id(),
            context: self.client.context(),
        }
    }

    fn execute(&mut self, command: Command<QueuedInput, Error>) {
        match command {
            Command::TakeLock => self.take_lock(),
            Command::LeaveQueue => {
                self.lock.queue = None;
                self.release_lock();
            }
            Command::ReleaseLock => self.release_lock(),
            Command::StartTurn { input, snapshot } => self.start_turn(input, snapshot),
            Command::FailTurn(error) => self.turns.fail(error),
            Command::EndInput(EndOfInput::Closed) => self.turns.answer(Ok(None)),
            Command::EndInput(EndOfInput::Cancelled) => self.turns.answer(Err(self.signals.why_ended())),
            Command::CommitTurn => self.commit_turn(),
            Command::KeepTurn => self.keep_turn(),
            Command::CommitRound => self.commit_round(),
            Command::SettleRound(outcome) => self.snapshots.settle_round(outcome),
            Command::CommitEnd => self.commit_end(),
            Command::SendTurnEnd(outcome) => self.send_turn_end(outcome),
            Command::SettleTurn(outcome) => self.turns.settle(outcome),
            Command::SilenceClient => {
                self.signals.play_to(Audience::Nobody);
                self.client_stream.silence();
            }
            Command::Drain => self.client_stream.drain(),
            Command::CancelWork(why) => self.cancel_work(why),
            Command::LetClientGo => self.let_client_go(),
            Command::WritePending { inputs } => self.write_pending(inputs),
            Command::RecordProgress { inputs } => self.record_progress(inputs),
            Command::StartHeartbeat => self.background.start_beats(),
            Command::StopHeartbeat => self.background.stop_beats(),
            // The stream begins with the current status, so an abort from before the subscription is not
            // missed.
            Command::SubscribeStatus => {
                let statuses = self
                    .cursor
                    .as_ref()
                    .zip(self.background.snapshot())
                    .and_then(|(cursor, snapshot)| cursor.tenant().watch(snapshot));
                self.background.watch(statuses);
            }
            Command::UnsubscribeStatus => self.background.watch(None),
            Command::Beat => self.beat(),
            Command::Finalize(ending) => self.finalize(ending),
            Command::Resolve(resolution) => {
                let output = self.output(resolution);
                self.client.answer(output);
            }
            // The function may have left tasks behind, which hold the session's signals.
            Command::Release => {
                self.signals.play_to(Audience::Nobody);
                self.signals.close();
            }
        }
    }

    fn take_lock(&mut self) {
        let Some(cursor) = &mut self.cursor else {
            return;
        };
        let answer = match cursor.take_lock(&self.turns.reserve()) {
            Ok(LockAnswer::Granted) => Event::LockGranted,
            Ok(LockAnswer::Queued(turn)) => {
                // Waiting is a separate event: meanwhile the client may leave or detach.
                self.lock.queue = Some(turn.wait().boxed());
                return;
            }
            Err(error) => Event::LockRefused(error),
        };
        // This event comes before all others that were raised: the lock is held from this moment.
        self.raised.push_front(answer);
    }

    /// Keeps the turn lock after the wait for it. If the session moved on meanwhile, its new state is loaded.
    fn lock_awaited(&mut self, awaited: Result<AwaitedLock>) -> AgentEvent {
        let taken = awaited.and_then(|awaited| {
            let moved_to = self.cursor.as_mut().map(|cursor| cursor.keep_lock(awaited));
            match moved_to.transpose()?.flatten() {
                Some(_) if self.gives_custom => Err(session_exists(self.session.session_id())),
                Some(moved_to) if self.snapshots.is_answered_in(&moved_to) => {
                    Err(answered_meanwhile(self.cursor.as_deref()))
                }
                Some(moved_to) => {
                    self.usage.moved_to(moved_to.usage());
                    let reloaded = self.session.live().reload(moved_to.state.unwrap_or_default());
                    reloaded.map_err(|error| {
                        let (session, caller) = (self.session.session_id(), self.client.context());
                        self.definition.unreadable_state(session, caller, &error)
                    })
                }
                None => Ok(()),
            }
        });
        match taken {
            Ok(()) => Event::LockGranted,
            Err(error) => {
                if let Some(cursor) = self.cursor.as_mut().filter(|_| error.is(SESSION_BUSY)) {
                    cursor.was_refused();
                }
                // The lock may have been granted before the state could not be loaded; keeping it would block
                // the session.
                self.release_lock();
                Event::LockRefused(error)
            }
        }
    }

    fn release_lock(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            self.lock.releases.extend(cursor.release_lock());
        }
    }

    /// Hands the turn to the turn loop that waits for it, if one still does.
    fn start_turn(&mut self, input: QueuedInput, snapshot: TurnSnapshot) {
        let Some(waiting) = self.turns.waiting() else {
            self.raised.push_front(Event::TurnRefused(input));
            return;
        };
        let reserved = match snapshot {
            TurnSnapshot::Own => self.turns.reserved.as_ref(),
            TurnSnapshot::OfRun => self.background.snapshot(),
        };
        let reserved = reserved.cloned();
        self.snapshots.turn_begins(self.session.state());
        self.signals.take_committed();
        // A content-addressed snapshot has no id yet, unless it is that of a background run.
        let is_named =
            self.definition.snapshot_ids == SnapshotIds::Uuid || self.background.snapshot().is_some();
        let journal = self.journal_for(&input, reserved.as_ref());
        let counted_with = reserved.as_ref().and_then(|own| self.counted_with(own));
        self.usage
            .begin_turn(self.account_for(&input, reserved.as_ref()), counted_with);
        let place = TurnContext {
            snapshot_id: reserved.filter(|_| is_named),
            parent_snapshot_id: self.cursor.as_deref().and_then(InvocationCursor::last).cloned(),
            turn_index: self.turns.begin(),
        };
        let started = self.tells_details().then(|| TurnStarted {
            session_id: self.session.session_id().clone(),
            snapshot_id: place.snapshot_id.clone(),
            position: self.session.state().messages.len(),
        });
        let start = TurnStart {
            journal,
            input,
            place,
            report: TurnReport::new(self.signals.clone()),
        };
        if let Err(Ok(Some(mut start))) = waiting.send(Ok(Some(start))) {
            // The turn loop was dropped just now.
            start.report.waive();
            self.turns.take_back();
            self.raised.push_front(Event::TurnRefused(start.input));
        } else if let Some(started) = started {
            self.announce(AgentStreamChunk::turn_start(started));
        }
    }

    /// Returns whether the caller asked for the details of turns.
    fn tells_details(&self) -> bool {
        self.client.context().extension::<TurnDetails>().is_some()
    }

    /// Returns the messages that the turn added, if the caller asked for them.
    fn added(&self) -> Option<AddedMessages> {
        let begun = self.snapshots.begun_with().filter(|_| self.tells_details())?;
        let messages = self.session.state().messages;
        // A turn may have shortened the history.
        let position = begun.min(messages.len());
        Some(AddedMessages {
            position,
            messages: messages.since(position).cloned().collect(),
        })
    }

    fn send_turn_end(&mut self, outcome: TurnOutcome) {
        let usage = self.usage.end_turn();
        let end = match outcome {
            TurnOutcome::Succeeded => TurnEnd {
                snapshot_id: self.turns.last.snapshot.clone(),
                finish_reason: self.turns.last.reason,
                usage,
                added: self.added(),
            },
            TurnOutcome::Failed => TurnEnd {
                snapshot_id: self.turns.last.kept.take(),
                finish_reason: Some(self.turns.last.failure()),
                usage,
                added: None,
            },
        };
        self.announce(AgentStreamChunk::turn_end(end));
    }

    /// Sends the client a chunk that is not the function's.
    fn announce(&mut self, chunk: AgentStreamChunk) {
        if !self.client_stream.is_silent() {
            let failed = self.show(chunk.into());
            self.raised.extend(failed);
        }
    }

    /// Returns whether an error means that the work was stopped by its caller or by a limit, and did not
    /// fail. The status alone is not enough: a provider may have been stopped too.
    fn is_stop(&self, error: &Error) -> bool {
        self.is_stopped || is_limit(error)
    }

    fn cancel_work(&mut self, why: Cancellation<Error>) {
        let by_agent = matches!(&why, Cancellation::Stopped(cause) if !matches!(cause, Cause::ClientGone(_)));
        self.is_stopped = !by_agent;
        let why = match why {
            Cancellation::Stopped(cause) => error_of(cause),
            Cancellation::Aborted => Error::aborted("the run was aborted"),
            Cancellation::Fenced => Error::aborted("another worker has taken the run over"),
        };
        self.signals.end(why);
        let grace = self.definition.cancellation_grace;
        self.function.drop_after(grace.unwrap_or(CANCELLATION_GRACE));
    }

    /// Stops following the client; chunks are for the watchers of the run from now on.
    fn let_client_go(&mut self) {
        self.client.let_go();
        self.play_to_watchers();
    }

    /// Applies the state transform to the output's state, after every chunk was taken.
    fn drained(&mut self) -> AgentEvent {
        if self.cursor.is_some() || !matches!(self.outcome.result, Some(Ok(_))) {
            return Event::Drained;
        }
        match self.shape(self.session.state()) {
            Ok(shown) => {
                self.outcome.shown = shown.map(Box::new);
                Event::Drained
            }
            Err(error) => Event::TransformFailed(error),
        }
    }

    fn shape(&self, state: SessionState) -> Result<Option<SessionState>> {
        let transform = self.definition.state_transform.as_ref();
        shown_state(
            transform,
            state,
            Some(self.session.session_id()),
            self.client.context(),
        )
    }

    fn output(&mut self, resolution: Resolution<Error>) -> Result<AgentOutput> {
        match resolution {
            Resolution::Completed => Ok(self.completed()),
            Resolution::Failed(cause) => {
                let error = error_of(cause);
                // Another process was first, and nothing has happened here: the caller gets the error itself,
                // as if the turn lock of this process had refused it.
                if self.snapshots.is_none_written() && lost_the_session(&error) {
                    Err(error)
                } else {
                    // The call succeeds with an output that holds the failure. Its span shows the failure.
                    SpanRecorder::of(self.client.context()).mark_failed(&error);
                    self.failed_work().log("an invocation", &error);
                    Ok(self.failed(&error))
                }
            }
            Resolution::Detached => Ok(AgentOutput {
                snapshot_id: self.background.snapshot().cloned(),
                finish_reason: Some(AgentFinishReason::Detached),
                ..self.identity()
            }),
            Resolution::Rejected(cause) => Err(error_of(cause)),
        }
    }

    fn identity(&self) -> AgentOutput {
        AgentOutput {
            session_id: Some(self.session.session_id().clone()),
            snapshot_id: self.cursor.as_deref().and_then(InvocationCursor::last).cloned(),
            snapshot_ids: self.reported_snapshots(),
            usage: self.usage.of_invocation(),
            ..AgentOutput::default()
        }
    }

    fn completed(&mut self) -> AgentOutput {
        let finish_reason = self.finish_reason();
        let AgentResult {
            message,
            artifacts,
            output,
            ..
        } = self
            .outcome
            .result
            .take()
            .and_then(Result::ok)
            .unwrap_or_default();
        AgentOutput {
            state: self.outcome.shown.take().map(|shown| *shown),
            message,
            artifacts: (!artifacts.is_empty()).then_some(artifacts),
            finish_reason,
            output,
            ..self.identity()
        }
    }

    /// Returns the output of an invocation that failed, with the last good state. If the transform fails on
    /// that state too, the output holds none: the caller must receive the first error.
    fn failed(&mut self, error: &Error) -> AgentOutput {
        let state = self
            .outcome
            .last_good
            .take()
            .and_then(|state| self.shape(*state).ok().flatten());
        let identity = self.identity();
        AgentOutput {
            state,
            // A turn that was kept can be tried again from its own snapshot.
            snapshot_id: self.turns.last.snapshot.clone().or(identity.snapshot_id),
            finish_reason: Some(if self.is_stop(error) {
                AgentFinishReason::Aborted
            } else {
                AgentFinishReason::Failed
            }),
            error: Some(error.to_wire(exposure(self.client.context()))),
            ..identity
        }
    }

    /// Returns the finish reason that the function gives, else that of the last turn.
    fn finish_reason(&self) -> Option<AgentFinishReason> {
        let given = self
            .outcome
            .result
            .as_ref()
            .and_then(|result| result.as_ref().ok()?.finish_reason);
        given.or(self.turns.last.reason)
    }
}

/// Returns the context with what the agent and its application provide to the work.
fn with_settings(context: Context, definition: &Definition, registry: &Registry) -> Context {
    // Weak, because models and tools, which the registry holds, may keep their context.
    let context = context.with_extension(Arc::new(registry.downgrade()));
    let context = context.with_dependencies(registry.dependencies());
    let context = with_window(context, definition.window.clone());
    with_tool_errors(context, definition.tool_errors.unwrap_or(ToolErrors::Fail))
}

/// Renews the lease of the lock in the store, if one is held.
async fn renew_lock(cursor: &mut Option<Box<InvocationCursor>>) -> Infallible {
    match cursor {
        Some(cursor) => cursor.renew_lock().await,
        None => std::future::pending().await,
    }
}

/// Waits for the queued turn lock; forever if none is queued.
async fn lock_awaited(queue: &mut Option<BoxFuture<'static, Result<AwaitedLock>>>) -> Result<AwaitedLock> {
    match queue {
        Some(waiting) => {
            let awaited = waiting.await;
            *queue = None;
            awaited
        }
        None => std::future::pending().await,
    }
}
