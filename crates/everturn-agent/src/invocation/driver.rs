//! The driver: executes what the machine decides.
//!
//! Each invocation has one driver, in a task of its own. It turns what happens around it into events, hands them to the
//! [machine](super::machine) one at a time, and executes the commands that come back. It decides nothing. Work that waits
//! (for a store, a slow client, the turn lock) runs beside it and reports back as an event.

use std::collections::VecDeque;
use std::sync::Arc;

use everturn_core::{Context, Emitter, Error, Inputs, Result};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Definition;
use super::background::{Background, Rewritten};
use super::broadcast::Broadcast;
use super::client::{Client, Wire, WireEvent};
use super::function::{Function, Report, Turns};
use super::journals::Journals;
use super::machine::{Commit, Event, Machine, StoreSupport, TurnOutcome};
use super::opening::Opening;
use super::outbox::{ChunkSignal, MODEL_CHUNKS, Outbox, Signal};
use super::snapshots::{RowWritten, Snapshots};
use crate::cursor::{InvocationCursor, Saved};
use crate::session::Core;
use crate::snapshot::{BackgroundRun, Lease};
use crate::transform::shown_chunk;
use crate::turn_lock::AwaitedLock;
use crate::{
    AgentInput, AgentOutput, AgentResult, AgentSession, AgentStreamChunk, CustomState, Session, SessionState,
    SnapshotEvent, SnapshotId,
};

pub(super) type AgentEvent = Event<AgentInput, Error>;

/// One invocation under way. It is boxed because it is large.
pub(crate) struct Driver<S> {
    pub(super) machine: Machine<AgentInput, Error>,
    /// Answers that commands have at once. They are handled before anything from outside.
    pub(super) raised: VecDeque<AgentEvent>,
    pub(super) definition: Arc<Definition<S>>,
    pub(super) session: Arc<Core<S>>,
    pub(super) outbox: Outbox,
    pub(super) client: Client,
    pub(super) wire: Wire,
    pub(super) function: Function,
    pub(super) turns: Turns,
    /// The wait for the turn lock.
    pub(super) lock_queue: Option<BoxFuture<'static, Result<AwaitedLock>>>,
    pub(super) ledger: Option<InvocationCursor>,
    pub(super) writes: FuturesUnordered<BoxFuture<'static, Written>>,
    pub(super) background: Background,
    pub(super) broadcast: Broadcast,
    pub(super) snapshots: Snapshots,
    pub(super) journals: Journals,
    /// The state for the output of an invocation that fails; only where the client keeps the state.
    pub(super) last_good: Option<SessionState>,
    /// The state for the output, once the state transform was applied.
    pub(super) shown: Option<SessionState>,
    pub(super) result: Option<Result<AgentResult>>,
}

/// A store's answer to a command.
pub(super) enum Written {
    Row(RowWritten),
    /// The turn gets no snapshot, and its journal was dropped.
    NoRow,
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
    Wire(WireEvent),
    Function(Report),
}

impl<S: CustomState> Driver<S> {
    /// Starts the agent's function on a session.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the session's custom state does not fit the agent.
    pub(crate) fn start(
        definition: Arc<Definition<S>>,
        opening: Opening,
        inputs: Inputs<AgentInput>,
        emitter: Emitter<AgentStreamChunk>,
        caller: Context,
        answer: oneshot::Sender<Result<AgentOutput>>,
    ) -> Result<Box<Self>> {
        let support = match &opening.ledger {
            None => StoreSupport::None,
            Some(ledger) if ledger.can_watch() => StoreSupport::WithSubscription,
            Some(_) => StoreSupport::WithoutSubscription,
        };
        let keeps_ends =
            opening.ledger.is_some() && definition.snapshots.listens_to(SnapshotEvent::InvocationEnd);
        let machine = Machine::new(support);
        let machine = if keeps_ends {
            machine.keeping_ends()
        } else {
            machine
        };
        let client = Client::new(inputs, caller, answer);
        Self::assemble(definition, opening, client, emitter, machine)
    }

    /// Starts the agent's function on a run that was taken over, with the inputs that are left and without a client.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub(crate) fn take_over(
        definition: Arc<Definition<S>>,
        id: SnapshotId,
        run: BackgroundRun,
        opening: Opening,
        context: Context,
    ) -> Result<Box<Self>> {
        let (machine, commands) = Machine::take_over(run.inputs);
        let client = Client::departed(context);
        let mut driver = Self::assemble(definition, opening, client, Emitter::silent(), machine)?;
        driver.turns = Turns::after(run.turns);
        driver.wire.silence();
        driver.play_to_watchers();
        driver.go_to_background(id, run.lease);
        for command in commands {
            driver.execute(command);
        }
        Ok(driver)
    }

    fn assemble(
        definition: Arc<Definition<S>>,
        opening: Opening,
        client: Client,
        emitter: Emitter<AgentStreamChunk>,
        machine: Machine<AgentInput, Error>,
    ) -> Result<Box<Self>> {
        let Opening {
            session_id,
            state,
            ledger,
            differs_from_row,
        } = opening;
        let caller = client.context().clone();
        let work = CancellationToken::new();
        let keeps_rounds =
            ledger.is_some() && definition.snapshots.listens_to(SnapshotEvent::ToolIterationEnd);
        let (outbox, signals) = Outbox::new(work.clone(), emitter.is_streaming(), keeps_rounds);
        let transform = definition.state_transform.clone();
        let session = Core::new(session_id, state, outbox.publisher(), transform, caller.clone())?;
        let session = Arc::new(session);
        let last_good = ledger.is_none().then(|| session.state());
        let resumed = ledger.as_ref().is_some_and(|ledger| ledger.last().is_some());
        let snapshots = Snapshots::after(
            resumed.then(|| session.state()),
            differs_from_row.then(|| session.state()),
        );

        let handle = Session::new(Arc::clone(&session));
        let context = handle.enter(caller.detached().with_cancellation(work));
        let context = context.with_extension(Arc::new(definition.registry.clone()));
        let running = (definition.function)(AgentSession::new(handle, context.clone(), outbox.clone()));
        let function = Function::spawn(&definition.name, running, context, signals);

        Ok(Box::new(Self {
            machine,
            raised: VecDeque::new(),
            client,
            wire: Wire::new(emitter),
            function,
            turns: Turns::default(),
            lock_queue: None,
            ledger,
            writes: FuturesUnordered::new(),
            background: Background::new(definition.heartbeat.interval),
            broadcast: Broadcast::new(Arc::clone(&definition.run_log)),
            snapshots,
            journals: Journals::default(),
            last_good,
            shown: None,
            result: None,
            definition,
            session,
            outbox,
        }))
    }

    /// Runs the invocation to its end.
    pub(crate) async fn run(mut self: Box<Self>) {
        while !self.machine.is_released() {
            let Some(event) = self.next_event().await else {
                continue;
            };
            self.note(&event);
            for command in self.machine.handle(event) {
                self.execute(command);
            }
        }
        self.broadcast.finish().await;
    }

    /// Waits for something to happen and returns it as an event; `None` if the machine need not know.
    async fn next_event(&mut self) -> Option<AgentEvent> {
        if let Some(event) = self.raised.pop_front() {
            return Some(event);
        }
        let happened = self.next().await;
        self.interpret(happened)
    }

    /// Waits for something to happen. Of several things the client's input comes first, then its departure, then answers to
    /// commands, then the function: so a detach that could be read wins over everything.
    async fn next(&mut self) -> Happened {
        tokio::select! {
            biased;
            event = self.client.next() => Happened::Event(event),
            Some(written) = self.writes.next() => Happened::Written(written),
            awaited = lock_awaited(&mut self.lock_queue) => Happened::LockAwaited(Box::new(awaited)),
            event = self.background.next() => Happened::Event(event),
            event = self.wire.flush() => Happened::Wire(event),
            never = self.broadcast.work() => match never {},
            report = self.function.next() => Happened::Function(report),
        }
    }

    /// Returns the event that the machine must know of, if there is one.
    fn interpret(&mut self, happened: Happened) -> Option<AgentEvent> {
        match happened {
            Happened::Event(event) => Some(event),
            Happened::Written(written) => self.written(written),
            Happened::LockAwaited(awaited) => Some(self.lock_awaited(*awaited)),
            Happened::Wire(WireEvent::Broken(error)) => Some(Event::ClientGone(error)),
            Happened::Wire(WireEvent::Empty) => Some(self.drained()),
            Happened::Function(Report::Signal(signal)) => self.signalled(signal),
            Happened::Function(Report::Returned(result)) => Some(self.returned(result)),
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
                // The turn ended without waiting for this generation, so its round cannot become a snapshot any more.
                let _ = settled.send(Ok(()));
                None
            }
            Signal::TurnDone { outcome, settled } => {
                let ended = if outcome.is_ok() {
                    TurnOutcome::Succeeded
                } else {
                    TurnOutcome::Failed
                };
                if let Some(ledger) = &mut self.ledger {
                    ledger.turn_ended(ended == TurnOutcome::Succeeded);
                }
                self.tell_watchers_of_turn_end(&outcome);
                self.turns.end(outcome, settled);
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
    pub(super) fn show(&mut self, signal: ChunkSignal) -> Option<AgentEvent> {
        let ChunkSignal { chunk, taken } = signal;
        let unheard = self.wire.is_silent() && !self.broadcast.wants();
        let transform = self.definition.stream_transform.as_ref();
        let shown = match chunk.filter(|_| !unheard) {
            Some(chunk) => shown_chunk(transform, *chunk, self.client.context()),
            None => Ok(None),
        };
        match shown {
            Ok(chunk) if self.wire.is_silent() => self.broadcast.queue(chunk.as_ref(), taken),
            Ok(chunk) => self.wire.queue(chunk, taken),
            Err(error) => return Some(self.hide(error)),
        }
        None
    }

    /// Shows nothing more to anybody, because a transform failed.
    fn hide(&mut self, error: Error) -> AgentEvent {
        self.broadcast.close();
        Event::TransformFailed(error)
    }

    fn returned(&mut self, result: Result<AgentResult>) -> AgentEvent {
        let event = Event::Returned(result.as_ref().map(|_| ()).map_err(Clone::clone));
        self.result = Some(result);
        event
    }

    fn written(&mut self, written: Written) -> Option<AgentEvent> {
        Some(match written {
            Written::Row(written) => self.row_written(written),
            Written::NoRow => Event::TurnCommitted(Commit::Nothing),
            Written::Pending(Ok(saved)) => {
                if let Some(ledger) = &mut self.ledger {
                    ledger.wrote(&saved);
                    self.journals.tip_moved(ledger.tip_id());
                }
                self.snapshots.note_created(&saved.row.snapshot_id);
                self.go_to_background(saved.row.snapshot_id, Lease::first());
                Event::PendingWritten
            }
            Written::Pending(Err(error)) => {
                self.broadcast.close();
                Event::PendingFailed(error)
            }
            Written::Final(Ok(true)) => Event::FinalizeWritten,
            Written::Final(Ok(false)) => {
                self.broadcast.close();
                Event::FinalizeFailed(Error::aborted("the run's row is no longer ours"))
            }
            Written::Final(Err(error)) => {
                tracing::error!(session = %self.session.session_id(), %error, "the end of a background run was not saved");
                Event::FinalizeFailed(error)
            }
            Written::Progress(progress) => {
                if progress.is_written {
                    self.journals.begin();
                }
                progress.hold.event().unwrap_or(Event::ProgressRecorded)
            }
            Written::Beat(beat) => return beat.hold.event(),
        })
    }

    /// Follows where a worker would take the run over.
    fn note(&mut self, event: &AgentEvent) {
        if matches!(event, Event::LeaseLost) {
            // The watchers continue with the stream of the worker that took the run over.
            self.broadcast.close();
        }
        let (session, written) = (&self.session, self.snapshots.written.take());
        let state = || written.unwrap_or_else(|| session.state());
        self.snapshots.takeover.note(event, state);
    }
}

/// Waits for the turn lock if it was asked for; else for ever.
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
