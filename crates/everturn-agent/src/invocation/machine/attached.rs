//! The phase in which a client sends inputs and receives chunks.
//!
//! ```text
//!                asks          input          lock granted          ends           committed
//!   Between ──────────► Asking ─────► Locking ─────────────► InTurn ─────► Committing ─────────► Between
//!                                  (with a store)             │  ▲
//!                                                 round ended │  │ snapshot written
//!                                                             ▼  │
//!                                                            Saving
//! ```
//!
//! Where failed turns are kept, a turn that failed goes through `Keeping` instead of `Committing`.

use std::collections::VecDeque;

use super::detaching::Detaching;
use super::ending::Concluding;
use super::ending::Draining;
use super::saving::{Saving, TurnMeanwhile, settle_all};
use super::state::{Meanwhile, Step};
use super::stopping::Stopping;
use super::{Cause, Command, EndOfInput, Event, StoreSupport, TurnOutcome, TurnSnapshot};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Attached<I, E> {
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
    pub(super) fn new(store: StoreSupport) -> Self {
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

    pub(super) fn keeping_ends(self) -> Self {
        Self {
            keeps_end: true,
            ..self
        }
    }

    pub(super) fn keeping_failures(self) -> Self {
        Self {
            keeps_failures: self.store != StoreSupport::None,
            ..self
        }
    }

    pub(super) fn handle(self, event: Event<I, E>) -> Step<I, E> {
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
