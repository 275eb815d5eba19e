//! The decisions of one agent invocation: a pure, synchronous state machine.
//!
//! [`Machine::handle`] takes an [`Event`] (something happened) and returns the [`Command`]s that follow from
//! it (something must be done). It does not wait, read a clock, draw random numbers or access a store. One
//! driver executes the commands and reports the results; it decides nothing. Inputs (`I`) and errors (`E`)
//! pass through unchanged. [`TakeoverPoint`] follows the same events and records the state from which a
//! worker would continue a lost run. A test (`tests/enumeration.rs`) explores every reachable state with this
//! code.
//!
//! # Phases
//!
//! ```text
//!                    function returned            drained
//!   ┌─► Attached ───────── * ──────────► Draining ───────────────────────────► Released
//!          │   │ client gone, transform failed,  │                               ▲ ▲
//!          │   │ lock or detach refused          │ detach                        │ │
//!          │   └──────────────► Stopping ────────┼── function returned ───────────┘ │
//!          │ detach                ▲             │                                 │
//!          ▼                       │ pending     │                                 │
//!      Detaching ◄─────────────────┼─────────────┘                                 │
//!          │ └─────────────────────┘ snapshot failed, lock refused                 │
//!          │ pending snapshot written                                              │
//!          ▼          function returned              snapshot finalized            │
//!   ┌─► Background ───────────────────► Finalizing ────────────────────────────────┤
//!  takeover    │ abort, lease lost       ▲ aborted                                 │
//!              └────► WindingDown ───────┴─────── fenced ──────────────────────────┘
//! ```
//!
//! \* Where the end of an invocation may become a snapshot, a function that returned normally goes through
//! `Concluding` until that snapshot is written. Its exits are those of `Attached`: a detach leads to
//! `Detaching`, everything else to `Stopping`.
//!
//! # What the driver raises
//!
//! Events are handled one at a time, in the order in which they happened. If several are ready at once, the
//! driver takes them in this order: **answers that a command has at once, the client's input, the client's
//! departure, other answers to commands, the function**. A detach that could be read therefore wins over a
//! disconnect that followed it and over a function that finished meanwhile, and a departure that happened
//! wins over the error it causes.
//!
//! - **Client**: [`Input`](Event::Input), [`Detach`](Event::Detach) and [`InputClosed`](Event::InputClosed)
//!   are read eagerly from the start, in every state of the turn. Nothing is read after a detach.
//! - **Caller**: [`ClientGone`](Event::ClientGone) is raised at most once: the caller cancelled,
//!   disconnected, or passed its deadline.
//! - **Function**: [`NextInput`](Event::NextInput), [`RoundEnded`](Event::RoundEnded),
//!   [`TurnEnded`](Event::TurnEnded) and [`Returned`](Event::Returned). The turn loop pulls its inputs. Each
//!   turn that was handed over ends with one `TurnEnded`, also if its future is dropped (a guard raises
//!   `Failed`). A `RoundEnded` comes only from the running turn, and each is settled once, in order.
//!   `Returned` is the last event.
//! - **Client stream**: [`TransformFailed`](Event::TransformFailed) reports that a stream or state transform
//!   failed. That chunk and all later ones are withheld.
//! - **Store**: [`AbortSeen`](Event::AbortSeen) and [`LeaseLost`](Event::LeaseLost) come from the status
//!   subscription, or from a heartbeat or a record that found the snapshot changed.
//! - **Timer**: [`HeartbeatDue`](Event::HeartbeatDue) is raised between `StartHeartbeat` and `StopHeartbeat`.
//! - **Answers**: every command that requires an answer gets exactly one; see the commands.
//!
//! The answer about the turn lock may take long, because another invocation may hold the session, and a
//! function may drop its turn loop while its turn waits. If no loop waits when the turn could begin,
//! [`TurnRefused`](Event::TurnRefused) answers, and the input keeps its place. If the function requests a
//! turn while an earlier request is open or a turn is on its way, both are one request: the driver answers
//! the newest.
//!
//! # What a command obliges the driver to do
//!
//! Commands are executed in order, and none blocks the driver: work that waits (for a store, a slow client,
//! the turn lock) runs concurrently and completes with an event. See [`Command`] for the effect and the
//! answer of each.
//!
//! # Races
//!
//! - The turn waits for the lock, then
//!   - the lock is refused: the first turn rejects the invocation with the refusal; a later one is a failed
//!     turn.
//!   - the function returns: the turn leaves the queue, and the input is discarded.
//!   - the client is gone, or a transform fails: the turn leaves the queue, work is cancelled, and the turn
//!     loop ends.
//!   - a detach is read: the run takes the turn's place in the queue. The turn is the run's first, and begins
//!     when the pending snapshot is durable.
//!   - the function drops its turn loop: the lock is released, and the input keeps its place.
//! - A detach was read, then
//!   - the lock is refused: as if the pending snapshot had failed.
//!   - the function returns: the detach wins. The pending snapshot is written, and finalized at once if the
//!     function is done.
//!   - the client is gone: the work continues, because a background run has no client.
//!   - an input rides on the detach: before it runs, the client stream is silent and the pending snapshot is
//!     durable.
//! - A detach was read and the pending snapshot is in flight, then the turn ends, or the function requests a
//!   turn or returns: there is no snapshot of the turn and no `turnEnd`. The next turn, or the final write,
//!   waits for the pending snapshot.
//! - A detach without a store that can push, while a turn runs: work is cancelled; failed output once the
//!   function has returned.
//! - The pending snapshot fails while the function runs: the same.
//! - The client is gone, then
//!   - a detach is read: cancelled; the detach is no longer accepted.
//!   - the turn succeeds: its snapshot is still written; the result is an error, not a failed output.
//!   - the function fails because of it: the invocation is rejected with the function's error.
//! - The function returned, then
//!   - a detach is read before the output is sent: the detach wins. An input riding on it is discarded,
//!     because no function is left to run it.
//!   - the client is gone with chunks unread: the invocation is rejected, because the output has no receiver.
//!   - an abort arrives while the final write is in flight: the store decides; the final write keeps the
//!     status `aborted`.
//! - A transform fails
//!   - while the function runs: the client stream is silent, and work is cancelled; failed output. Later
//!     transform errors are dropped.
//!   - on the last chunks, after the function failed: the function's error stays the cause.
//!   - on the last chunks, after the function succeeded: failed output; snapshots already written stay.
//!   - and then the client is gone: the invocation is rejected with the transform's error.
//! - A turn-end write is in flight, then
//!   - a detach is read: the write ends first, or fails the turn. The pending snapshot becomes its child, and
//!     the lock is kept between the two.
//!   - the function returns (its turn loop is dropped): the write settles, its `turnEnd` is sent, then the
//!     output.
//!   - the write fails: the turn fails with the store's error; the function may continue with the next input.
//! - A turn fails, and failed turns are kept: as with a turn-end write in flight. If the failure cannot be
//!   written, the turn still fails.
//! - A snapshot inside a turn is in flight, then
//!   - another round ends (parallel generations): its snapshot waits for the first and becomes its child.
//!   - the turn ends (its generation was dropped): the snapshot is written first; the turn's becomes its
//!     child.
//!   - the function returns: the snapshot is written, then `turnEnd` with `failed` and the output are sent.
//!   - a detach is read: the snapshot is written first. The pending snapshot becomes its child and holds the
//!     state at which the turn began; if the turn ended meanwhile, it becomes the child of the turn's
//!     snapshot.
//!   - the client is gone, or a transform fails: work is cancelled at once. The snapshot is written before
//!     anything else is written or answered.
//!   - the write fails: the generation fails with the store's error, and so does the turn.
//! - Detached, or work cancelled, then a round ends: no snapshot is taken; the generation continues.
//! - The snapshot of the end is in flight, then
//!   - a detach is read: the write succeeds or fails first; the pending snapshot follows and is finalized at
//!     once.
//!   - the client is gone, or a transform fails: the snapshot is written, then the answer is sent.
//!   - the write fails: failed output, with the store's error. A detach that is read before that output
//!     leaves a failed snapshot.
//! - The function returns with inputs queued: they are discarded.
//! - A turn ended with more inputs queued, then the function requests a turn: the next turn waits until the
//!   pending snapshot records that the last one is done.
//! - Progress is being recorded, then
//!   - the function drops its loop and returns: the final write decides; a record that lands after it changes
//!     nothing.
//!   - an abort arrives, or the lease is lost: the function's request is answered with the cancellation.
//! - An abort arrived, then
//!   - the function returns, with any result: the run ends as aborted.
//!   - the lease is lost: nothing is written; the new owner sees the abort.
//! - The lease is lost (another worker took over), then the function returns: nothing is written.
//! - Released, then any event: nothing.

mod background;
mod command;
mod detaching;
mod ending;
mod event;
mod stopping;
mod takeover_point;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::background::{Background, Finalizing, WindingDown};
pub(crate) use self::command::{Cancellation, Cause, Command, EndOfInput, Ending, Resolution, TurnSnapshot};
use self::detaching::Detaching;
use self::ending::{Concluding, Draining, Saving, TurnMeanwhile, settle_all};
pub(crate) use self::event::{Commit, Event, TurnOutcome};
use self::stopping::Stopping;
pub(crate) use self::takeover_point::TakeoverPoint;

/// One invocation, from its start to its release.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Machine<I, E> {
    phase: Phase<I, E>,
}

impl<I: Clone, E: Clone> Machine<I, E> {
    /// Creates the machine of an invocation with a client; its function is about to run.
    pub(crate) fn new(store: StoreSupport) -> Self {
        Self {
            phase: Attached::new(store).into(),
        }
    }

    /// Sets whether the end of the invocation may become a snapshot, and whether turns that failed are kept
    /// as snapshots if there is a store.
    pub(crate) fn keeping(mut self, ends: bool, failures: bool) -> Self {
        if let Phase::Attached(attached) = &mut self.phase {
            attached.keeps_end = ends;
            attached.keeps_failures = failures && attached.store != StoreSupport::None;
        }
        self
    }

    /// Creates the machine of a background run that this worker took over: there is no client, and `inputs`
    /// are complete. Its function is about to run on the last committed state.
    pub(crate) fn take_over(inputs: Vec<I>) -> (Self, Vec<Command<I, E>>) {
        let Step { phase, commands } = Background::take_over(inputs.into());
        (Self { phase }, commands)
    }

    /// Handles an event and returns the commands that follow. An event without meaning in the current phase
    /// changes nothing.
    pub(crate) fn handle(&mut self, event: Event<I, E>) -> Vec<Command<I, E>> {
        let step = match std::mem::replace(&mut self.phase, Phase::Released) {
            Phase::Attached(phase) => phase.handle(event),
            Phase::Concluding(phase) => phase.handle(event),
            Phase::Draining(phase) => phase.handle(event),
            Phase::Stopping(phase) => phase.handle(event),
            Phase::Detaching(phase) => phase.handle(event),
            Phase::Background(phase) => phase.handle(event),
            Phase::WindingDown(phase) => phase.handle(event),
            Phase::Finalizing(phase) => phase.handle(&event),
            Phase::Released => Step::to(Phase::Released),
        };
        self.phase = step.phase;
        step.commands
    }

    /// Returns whether the invocation has ended.
    pub(crate) fn is_released(&self) -> bool {
        matches!(self.phase, Phase::Released)
    }
}

/// The abilities of the agent's store: a detach needs one that pushes status changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StoreSupport {
    /// There is no store; the client keeps the state.
    None,
    /// Snapshots can be written, but their status changes are not pushed.
    WithoutSubscription,
    /// Snapshots can be written and watched.
    WithSubscription,
}

impl StoreSupport {
    /// Checks whether a detach can be accepted.
    fn admit_detach<E>(self) -> Result<(), Cause<E>> {
        match self {
            Self::None => Err(Cause::DetachWithoutStore),
            Self::WithoutSubscription => Err(Cause::DetachWithoutSubscription),
            Self::WithSubscription => Ok(()),
        }
    }
}

/// The phase of an invocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase<I, E> {
    /// A client sends inputs and receives chunks.
    Attached(Attached<I, E>),
    /// The function returned normally; the end of the invocation is being saved.
    Concluding(Concluding),
    /// The function returned; the last chunks are on their way.
    Draining(Draining<E>),
    /// The work was cancelled before any detach; the function has yet to return.
    Stopping(Stopping<E>),
    /// A detach was accepted; its pending snapshot is not yet written.
    Detaching(Detaching<I, E>),
    /// The work continues without a client.
    Background(Background<I>),
    /// Background work was cancelled; the function has yet to return.
    WindingDown(WindingDown),
    /// The final write of a background run is in progress.
    Finalizing(Finalizing),
    /// The invocation has ended.
    Released,
}

macro_rules! phase_from {
    ($($phase:ident $(<$($parameter:ident),+>)?),+ $(,)?) => {
        $(impl<I, E> From<$phase $(<$($parameter),+>)?> for Phase<I, E> {
            fn from(phase: $phase $(<$($parameter),+>)?) -> Self {
                Self::$phase(phase)
            }
        })+
    };
}

phase_from!(
    Attached<I, E>,
    Concluding,
    Draining<E>,
    Stopping<E>,
    Detaching<I, E>,
    Background<I>,
    WindingDown,
    Finalizing,
);

/// The activity of the function while the machine waits for a write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Meanwhile<E> {
    /// It runs, or waits for its turn to be settled.
    Running,
    /// It waits for an input.
    Asking,
    /// It is done.
    Returned(Result<(), E>),
}

/// The outcome of one event: the new phase and the commands.
struct Step<I, E> {
    phase: Phase<I, E>,
    commands: Vec<Command<I, E>>,
}

impl<I, E> Step<I, E> {
    /// Creates a step without commands; a step to the same phase is an event without effect.
    fn to(phase: impl Into<Phase<I, E>>) -> Self {
        Self {
            phase: phase.into(),
            commands: Vec::new(),
        }
    }

    /// Appends a command.
    fn emit(mut self, command: Command<I, E>) -> Self {
        self.commands.push(command);
        self
    }

    /// Prepends commands.
    fn preceded_by(mut self, commands: impl IntoIterator<Item = Command<I, E>>) -> Self {
        self.commands.splice(0..0, commands);
        self
    }
}

/// The phase in which a client sends inputs and receives chunks.
///
/// ```text
///                asks          input          lock granted          ends           committed
///   Between ──────────► Asking ─────► Locking ─────────────► InTurn ─────► Committing ─────────► Between
///                                  (with a store)             │  ▲
///                                                 round ended │  │ snapshot written
///                                                             ▼  │
///                                                            Saving
/// ```
///
/// Where failed turns are kept, a turn that failed goes through `Keeping` instead of `Committing`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Attached<I, E> {
    store: StoreSupport,
    /// Whether the end of the invocation may become a snapshot.
    keeps_end: bool,
    /// Whether a turn that failed is kept as a snapshot.
    keeps_failures: bool,
    function: Function<I, E>,
    queue: VecDeque<I>,
    input: InputSide,
    /// How many turns have begun.
    begun: usize,
}

/// The activity of the agent's function. It waits for an input only while the queue is empty and the input
/// open: otherwise it was answered at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Function<I, E> {
    /// It runs outside any turn.
    Between,
    Asking,
    /// It asks, and its turn on this input waits for the session's turn lock.
    Locking(I),
    /// It runs a turn on this input.
    InTurn(I),
    /// It runs a turn on this input, while a snapshot inside the turn is being written.
    Saving(I, Saving<E>),
    /// Its turn succeeded and is being made durable.
    Committing(Meanwhile<E>),
    /// Its turn failed and is being kept.
    Keeping(Meanwhile<E>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum InputSide {
    Open,
    Closed,
}

impl<I: Clone, E: Clone> Attached<I, E> {
    fn new(store: StoreSupport) -> Self {
        Self {
            store,
            keeps_end: false,
            keeps_failures: false,
            function: Function::Between,
            queue: VecDeque::new(),
            input: InputSide::Open,
            begun: 0,
        }
    }

    fn handle(self, event: Event<I, E>) -> Step<I, E> {
        match event {
            // While a snapshot is in flight the function's events are only noted: each snapshot is the child
            // of the one before, so the next one cannot be begun.
            Event::RoundEnded | Event::TurnEnded(_) | Event::NextInput | Event::Returned(_)
                if matches!(self.function, Function::Saving(..)) =>
            {
                self.note_while_saving(event)
            }
            Event::RoundEnded => self.save_round(),
            Event::RoundCommitted(_) => self.saved(Ok(())),
            Event::CommitFailed(error) if matches!(self.function, Function::Saving(..)) => {
                self.saved(Err(error))
            }
            Event::Input(input) => self.accept(input),
            Event::InputClosed => self.close_input(),
            Event::Detach(inputs) => self.detach(inputs),
            Event::NextInput => self.ask(),
            Event::LockGranted => self.locked(),
            Event::LockRefused(error) => self.refused(error),
            Event::TurnRefused(input) => self.take_back(input),
            Event::TurnEnded(outcome) => self.end_turn(outcome),
            Event::TurnCommitted(_) | Event::TurnKept(_) => self.settle(Ok(())),
            Event::CommitFailed(error) => self.settle(Err(error)),
            Event::Returned(result) => self.finish(result),
            Event::ClientGone(error) => self.stop(Cause::ClientGone(error)),
            Event::TransformFailed(error) => self.stop(Cause::Transform(error)),
            _ => Step::to(self),
        }
    }

    fn accept(mut self, input: I) -> Step<I, E> {
        if self.input == InputSide::Open {
            self.queue.push_back(input);
        }
        self.feed()
    }

    fn close_input(mut self) -> Step<I, E> {
        self.input = InputSide::Closed;
        self.feed()
    }

    fn ask(mut self) -> Step<I, E> {
        match &mut self.function {
            Function::Committing(meanwhile @ Meanwhile::Running)
            | Function::Keeping(meanwhile @ Meanwhile::Running) => *meanwhile = Meanwhile::Asking,
            function @ Function::Between => *function = Function::Asking,
            // A turn that waits for the lock, or is on its way to the function, answers this request too.
            _ => {}
        }
        self.feed()
    }

    /// Answers the function's request, if there is an answer.
    fn feed(mut self) -> Step<I, E> {
        if !matches!(self.function, Function::Asking) {
            return Step::to(self);
        }
        if let Some(input) = self.queue.pop_front() {
            if self.store == StoreSupport::None {
                // The client keeps the state, so there is no session that two turns could share.
                return self.start(input);
            }
            self.function = Function::Locking(input);
            Step::to(self).emit(Command::TakeLock)
        } else if self.input == InputSide::Closed {
            self.function = Function::Between;
            Step::to(self).emit(Command::EndInput(EndOfInput::Closed))
        } else {
            Step::to(self)
        }
    }

    fn start(mut self, input: I) -> Step<I, E> {
        self.begun += 1;
        self.function = Function::InTurn(input.clone());
        Step::to(self).emit(Command::StartTurn {
            input,
            snapshot: TurnSnapshot::Own,
        })
    }

    fn locked(self) -> Step<I, E> {
        match self.function {
            Function::Locking(ref input) => {
                let input = input.clone();
                self.start(input)
            }
            _ => Step::to(self),
        }
    }

    /// Handles the refusal of the turn lock. Before the first turn nothing has happened, so the caller gets
    /// the error itself; later it is a failed turn.
    fn refused(mut self, error: E) -> Step<I, E> {
        if !matches!(self.function, Function::Locking(_)) {
            return Step::to(self);
        }
        // The turn loop waits for an answer in both cases.
        let failure = Command::FailTurn(error.clone());
        self.function = Function::Between;
        if self.begun > 0 {
            Step::to(self)
                .emit(Command::SendTurnEnd(TurnOutcome::Failed))
                .emit(failure)
        } else {
            self.stop(Cause::LockRefused(error)).preceded_by([failure])
        }
    }

    fn take_back(mut self, input: I) -> Step<I, E> {
        if !matches!(self.function, Function::InTurn(_)) {
            return Step::to(self);
        }
        self.function = Function::Between;
        // The turn did not begin. A later refusal of the lock may still be the invocation's first event.
        self.begun -= 1;
        self.queue.push_front(input);
        Step::to(self).emit(Command::ReleaseLock)
    }

    fn save_round(mut self) -> Step<I, E> {
        match self.function {
            Function::InTurn(input) => {
                self.function = Function::Saving(input, Saving::begin());
                Step::to(self).emit(Command::CommitRound)
            }
            // A generation outside a running turn cannot become a snapshot, and must not wait for one.
            _ => Step::to(self).emit(Command::SettleRound(Ok(()))),
        }
    }

    fn note_while_saving(mut self, event: Event<I, E>) -> Step<I, E> {
        if let Function::Saving(input, saving) = self.function {
            self.function = Function::Saving(input, saving.note(event));
        }
        Step::to(self)
    }

    /// Continues after the snapshot inside the turn was written or failed, with what happened meanwhile.
    fn saved(mut self, snapshot: Result<(), E>) -> Step<I, E> {
        let Function::Saving(input, Saving { waiting, turn }) = self.function else {
            return Step::to(self);
        };
        self.function = Function::Between;
        let next = match turn {
            // Rounds of concurrent generations get their snapshots one after the other.
            TurnMeanwhile::Running if waiting > 0 => {
                let saving = Saving {
                    waiting: waiting - 1,
                    turn,
                };
                self.function = Function::Saving(input, saving);
                return Step::to(self)
                    .emit(Command::SettleRound(snapshot))
                    .emit(Command::CommitRound);
            }
            TurnMeanwhile::Running => {
                self.function = Function::InTurn(input);
                Step::to(self)
            }
            TurnMeanwhile::Ended(TurnOutcome::Succeeded, meanwhile) => {
                self.function = Function::Committing(meanwhile);
                Step::to(self).emit(Command::CommitTurn)
            }
            TurnMeanwhile::Ended(TurnOutcome::Failed, meanwhile) => self.fail(meanwhile),
            TurnMeanwhile::Abandoned(result) => self.abandon(result),
        };
        next.preceded_by(settle_all(snapshot, waiting))
    }

    fn end_turn(mut self, outcome: TurnOutcome) -> Step<I, E> {
        if !matches!(self.function, Function::InTurn(_)) {
            return Step::to(self);
        }
        match outcome {
            TurnOutcome::Succeeded => {
                self.function = Function::Committing(Meanwhile::Running);
                Step::to(self).emit(Command::CommitTurn)
            }
            TurnOutcome::Failed => self.fail(Meanwhile::Running),
        }
    }

    /// The turn failed: it is kept first, where failed turns are.
    fn fail(mut self, meanwhile: Meanwhile<E>) -> Step<I, E> {
        if !self.keeps_failures {
            return self.go_on(meanwhile, TurnOutcome::Failed, Ok(()));
        }
        self.function = Function::Keeping(meanwhile);
        Step::to(self).emit(Command::KeepTurn)
    }

    fn settle(mut self, commit: Result<(), E>) -> Step<I, E> {
        let meanwhile = match std::mem::replace(&mut self.function, Function::Between) {
            Function::Committing(meanwhile) => meanwhile,
            // It failed already, whether that could be written or not.
            Function::Keeping(meanwhile) => return self.go_on(meanwhile, TurnOutcome::Failed, Ok(())),
            function => {
                self.function = function;
                return Step::to(self);
            }
        };
        let outcome = if commit.is_ok() {
            TurnOutcome::Succeeded
        } else {
            TurnOutcome::Failed
        };
        self.go_on(meanwhile, outcome, commit)
    }

    /// Continues after the turn, with what the function did meanwhile.
    fn go_on(mut self, meanwhile: Meanwhile<E>, outcome: TurnOutcome, settled: Result<(), E>) -> Step<I, E> {
        let next = match meanwhile {
            Meanwhile::Running => {
                self.function = Function::Between;
                Step::to(self)
            }
            Meanwhile::Asking => {
                self.function = Function::Asking;
                self.feed()
            }
            Meanwhile::Returned(result) => self.conclude(result),
        };
        // Between two turns the lock is free for other invocations, even if the next turn requests it at
        // once.
        next.preceded_by([
            Command::SendTurnEnd(outcome),
            Command::SettleTurn(settled),
            Command::ReleaseLock,
        ])
    }

    /// Continues after the function returned: saves the end of the invocation, if it may be a snapshot, and
    /// answers the client.
    fn conclude(self, result: Result<(), E>) -> Step<I, E> {
        if self.keeps_end && result.is_ok() {
            Concluding::begin(self.store)
        } else {
            Draining::begin(self.store, result)
        }
    }

    /// Handles a function that returned from the middle of its turn. The turn still gets an end, because
    /// clients count turns.
    fn abandon(self, result: Result<(), E>) -> Step<I, E> {
        self.conclude(result)
            .preceded_by([Command::SendTurnEnd(TurnOutcome::Failed), Command::ReleaseLock])
    }

    fn finish(mut self, result: Result<(), E>) -> Step<I, E> {
        match self.function {
            Function::Between | Function::Asking => self.conclude(result),
            // The turn never began, and its input can no longer run.
            Function::Locking(_) => self.conclude(result).preceded_by([Command::LeaveQueue]),
            Function::InTurn(_) => self.abandon(result),
            Function::Saving(..) => self.note_while_saving(Event::Returned(result)),
            Function::Committing(_) => {
                self.function = Function::Committing(Meanwhile::Returned(result));
                Step::to(self)
            }
            Function::Keeping(_) => {
                self.function = Function::Keeping(Meanwhile::Returned(result));
                Step::to(self)
            }
        }
    }

    fn detach(mut self, inputs: Vec<I>) -> Step<I, E> {
        if let Err(cause) = self.store.admit_detach() {
            return self.stop(cause);
        }
        // Inputs that wait were accepted before the detach and become part of the run.
        self.queue.extend(inputs);
        let step = match self.function {
            Function::Between => Detaching::begin(Meanwhile::Running, self.queue),
            Function::Asking => Detaching::begin(Meanwhile::Asking, self.queue),
            Function::Locking(input) => Detaching::await_lock(input, self.queue),
            Function::InTurn(input) => Detaching::in_turn(input, self.queue),
            Function::Saving(input, saving) => Detaching::await_round(input, saving, self.queue),
            Function::Committing(meanwhile) | Function::Keeping(meanwhile) => {
                Detaching::await_commit(meanwhile, self.queue)
            }
        };
        // First of all: after a detach the client gets its output and no further chunk.
        step.preceded_by([Command::SilenceClient])
    }

    fn stop(self, cause: Cause<E>) -> Step<I, E> {
        let stopping = Stopping::because(cause).keeping_failures(self.keeps_failures);
        let step = match self.function {
            Function::Between | Function::InTurn(_) => stopping.begin(Meanwhile::Running),
            Function::Asking => stopping.begin(Meanwhile::Asking),
            Function::Locking(_) => stopping
                .begin(Meanwhile::Asking)
                .preceded_by([Command::LeaveQueue]),
            Function::Saving(_, saving) => stopping.begin_while_saving(saving),
            Function::Committing(meanwhile) | Function::Keeping(meanwhile) => {
                stopping.with_commit_in_flight().begin(meanwhile)
            }
        };
        step.preceded_by([Command::SilenceClient])
    }
}
