//! The commands, one by one.

use everturn_core::{Error, Result};
use futures::FutureExt;

use super::machine::{Cancellation, Command, EndOfInput, Event, TurnOutcome, TurnSnapshot};
use super::output::error_of;
use super::turn::{TurnContext, TurnReport, TurnStart};
use super::{AgentEvent, Driver};
use crate::cursor::InvocationCursor;
use crate::turn_lock::{AwaitedLock, LockAnswer};
use crate::{AgentFinishReason, AgentInput, AgentStreamChunk, CustomState, Snapshot, SnapshotIds, TurnEnd};

impl<S: CustomState> Driver<S> {
    pub(super) fn execute(&mut self, command: Command<AgentInput, Error>) {
        match command {
            Command::TakeLock => self.take_lock(),
            Command::LeaveQueue => self.lock_queue = None,
            Command::ReleaseLock => self.release_lock(),
            Command::StartTurn { input, snapshot } => self.start_turn(input, snapshot),
            Command::FailTurn(error) => self.turns.fail(error),
            Command::EndInput(EndOfInput::Closed) => self.turns.answer(Ok(None)),
            Command::EndInput(EndOfInput::Cancelled) => self.turns.answer(Err(self.outbox.why_ended())),
            Command::CommitTurn => self.commit_turn(),
            Command::CommitRound => self.commit_round(),
            Command::SettleRound(outcome) => self.snapshots.settle_round(outcome),
            Command::CommitEnd => self.commit_end(),
            Command::SendTurnEnd(outcome) => self.send_turn_end(outcome),
            Command::SettleTurn(outcome) => self.turns.settle(outcome),
            Command::SuppressWire => {
                self.outbox.silence();
                self.wire.silence();
            }
            Command::Drain => self.wire.drain(),
            Command::CancelWork(why) => self.cancel_work(why),
            Command::LetClientGo => self.let_client_go(),
            Command::WritePending { inputs } => self.write_pending(inputs),
            Command::RecordProgress { inputs } => self.record_progress(inputs),
            Command::StartHeartbeat => self.background.start_beats(),
            Command::StopHeartbeat => self.background.stop_beats(),
            Command::SubscribeStatus => {
                let statuses = self
                    .ledger
                    .as_ref()
                    .zip(self.background.snapshot())
                    .and_then(|(ledger, snapshot)| ledger.watch(snapshot));
                self.background.watch(statuses);
            }
            Command::UnsubscribeStatus => self.background.watch(None),
            Command::Beat => self.beat(),
            Command::Finalize(ending) => self.finalize(ending),
            Command::Resolve(resolution) => {
                let output = self.output(resolution);
                self.client.answer(output);
            }
            Command::Release => {
                self.outbox.silence();
                self.outbox.end(Error::cancelled("the invocation is over"));
            }
        }
    }

    fn take_lock(&mut self) {
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        let answer = match ledger.take_lock(&self.turns.reserve()) {
            Ok(LockAnswer::Granted) => Event::LockGranted,
            Ok(LockAnswer::Queued(turn)) => {
                self.lock_queue = Some(turn.wait().boxed());
                return;
            }
            Err(error) => Event::LockRefused(error),
        };
        self.raised.push_front(answer);
    }

    /// Keeps the turn lock after the wait for it. If the session moved on meanwhile, its new state is loaded.
    pub(super) fn lock_awaited(&mut self, awaited: Result<AwaitedLock>) -> AgentEvent {
        let taken = awaited.and_then(|awaited| {
            let moved_to = self.ledger.as_mut().map(|ledger| ledger.keep_lock(awaited));
            match moved_to.transpose()?.flatten() {
                Some(Snapshot { state, .. }) => self.session.reload(state.unwrap_or_default()),
                None => Ok(()),
            }
        });
        match taken {
            Ok(()) => Event::LockGranted,
            Err(error) => {
                self.release_lock();
                Event::LockRefused(error)
            }
        }
    }

    fn release_lock(&mut self) {
        if let Some(ledger) = &mut self.ledger {
            ledger.release_lock();
        }
    }

    /// Hands the turn to the turn loop that waits for it, if one still does.
    fn start_turn(&mut self, input: AgentInput, snapshot: TurnSnapshot) {
        let Some(waiting) = self.turns.waiting() else {
            self.raised.push_front(Event::TurnRefused(input));
            return;
        };
        let reserved = match snapshot {
            TurnSnapshot::Own => self.turns.reserved(),
            TurnSnapshot::OfRun => self.background.snapshot(),
        };
        let reserved = reserved.cloned();
        // A snapshot that is named after what it holds has no name yet, unless it is that of a background run.
        let is_named =
            self.definition.snapshot_ids == SnapshotIds::Uuid || self.background.snapshot().is_some();
        let journal = self.journal_for(&input, reserved.as_ref());
        let place = TurnContext {
            snapshot_id: reserved.filter(|_| is_named),
            parent_snapshot_id: self.ledger.as_ref().and_then(InvocationCursor::last).cloned(),
            turn_index: self.turns.begin(),
        };
        let start = TurnStart {
            journal,
            input,
            place,
            report: TurnReport::new(self.outbox.clone()),
        };
        if let Err(Ok(Some(mut start))) = waiting.send(Ok(Some(start))) {
            // The turn loop was dropped just now.
            start.report.waive();
            self.turns.take_back();
            self.raised.push_front(Event::TurnRefused(start.input));
        }
    }

    fn send_turn_end(&mut self, outcome: TurnOutcome) {
        let end = match outcome {
            TurnOutcome::Succeeded => TurnEnd {
                snapshot_id: self.turns.snapshot().cloned(),
                finish_reason: self.turns.reason(),
            },
            TurnOutcome::Failed => TurnEnd {
                snapshot_id: None,
                finish_reason: Some(AgentFinishReason::Failed),
            },
        };
        self.announce(AgentStreamChunk::turn_end(end));
    }

    /// Sends the client a chunk that is not the function's.
    pub(super) fn announce(&mut self, chunk: AgentStreamChunk) {
        if !self.wire.is_silent() {
            let failed = self.show(chunk.into());
            self.raised.extend(failed);
        }
    }

    fn cancel_work(&mut self, why: Cancellation<Error>) {
        let why = match why {
            Cancellation::Stopped(cause) => error_of(cause),
            Cancellation::Aborted => Error::aborted("the run was aborted"),
            Cancellation::Fenced => Error::aborted("another worker has taken the run over"),
        };
        self.outbox.end(why);
        self.function.drop_after(self.definition.cancellation_grace);
    }

    /// Stops following the client; chunks are for the watchers of the run from now on.
    fn let_client_go(&mut self) {
        self.client.let_go();
        self.play_to_watchers();
    }
}
