//! The commands, one by one.

use everturn_core::{Error, Result};

use super::machine::{Command, EndOfInput, Event, PendingId, TurnOutcome, TurnRow};
use super::turn::{TurnContext, TurnReport, TurnStart};
use super::{AgentEvent, Driver};
use crate::cursor::InvocationCursor;
use crate::turn_lock::{AwaitedLock, LockAnswer};
use crate::{
    AgentFinishReason, AgentInput, AgentStreamChunk, CustomState, Snapshot, SnapshotId, SnapshotIds, TurnEnd,
};

impl<S: CustomState> Driver<S> {
    pub(super) fn execute(&mut self, command: Command<AgentInput, Error>) {
        match command {
            Command::StartTurn { input, row } => self.start_turn(input, row),
            Command::EndInput(EndOfInput::Closed) => self.turns.answer(Ok(None)),
            Command::EndInput(EndOfInput::Cancelled) => self.turns.answer(Err(self.outbox.why_ended())),
            Command::CommitTurn => self.commit_turn(),
            Command::CommitIteration => self.commit_iteration(),
            Command::SettleIteration(outcome) => self.snapshots.settle_iteration(outcome),
            Command::CommitEnd => self.commit_end(),
            Command::SendTurnEnd(outcome) => self.send_turn_end(outcome),
            Command::SettleTurn(outcome) => self.settle_turn(outcome),
            Command::SuppressWire => {
                self.outbox.silence();
                self.wire.silence();
            }
            Command::Drain => self.wire.drain(),
            Command::CancelWork => self.cancel_work(),
            Command::WritePending { id, inputs } => self.detach(id, inputs),
            Command::RecordProgress { inputs } => self.record_progress(inputs),
            Command::StartHeartbeat => self.background.start_beats(),
            Command::StopHeartbeat => self.background.stop_beats(),
            Command::SubscribeStatus => {
                let statuses = self
                    .ledger
                    .as_ref()
                    .zip(self.background.row())
                    .and_then(|(ledger, row)| ledger.watch(row));
                self.background.watch(statuses);
            }
            Command::UnsubscribeStatus => self.background.watch(None),
            Command::Beat => self.beat(),
            Command::FinalizeRow(ending) => self.finalize(ending),
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

    fn start_turn(&mut self, input: AgentInput, row: TurnRow) {
        let reserved = match row {
            TurnRow::Own => self.ledger.as_ref().map(|_| SnapshotId::fresh()),
            TurnRow::Pending => self.background.row().cloned(),
        };
        let admission = match (&mut self.ledger, &reserved, row) {
            (Some(ledger), Some(id), TurnRow::Own) => ledger.take_lock(id),
            // A background run has the session until it is over.
            _ => Ok(LockAnswer::Granted),
        };
        match admission {
            Ok(LockAnswer::Granted) => self.hand_over(input, reserved),
            Ok(LockAnswer::Queued(turn)) => {
                self.admissions.wait(turn);
                self.admissions.start = reserved.map(|reserved| (input, reserved));
            }
            Err(error) => self.refuse_turn(error),
        }
    }

    /// Hands the turn to the loop that waits for it, if one still does.
    fn hand_over(&mut self, input: AgentInput, reserved: Option<SnapshotId>) {
        let Some(waiting) = self.turns.waiting() else {
            self.release_session();
            self.raised.push_front(Event::TurnRefused(input));
            return;
        };
        // A row that is named after what it holds has no name yet, unless it is that of a background run.
        let is_named = self.definition.snapshot_ids == SnapshotIds::Uuid || self.background.row().is_some();
        let journal = self.journal_for(&input, reserved.as_ref());
        let place = TurnContext {
            snapshot_id: reserved.clone().filter(|_| is_named),
            parent_snapshot_id: self.ledger.as_ref().and_then(InvocationCursor::last).cloned(),
            turn_index: self.turns.begin(reserved),
        };
        let start = TurnStart {
            journal,
            input,
            place,
            report: TurnReport::new(self.outbox.clone()),
        };
        if let Err(Ok(Some(mut start))) = waiting.send(Ok(Some(start))) {
            start.report.waive();
            self.turns.take_back();
            self.release_session();
            self.raised.push_front(Event::TurnRefused(start.input));
        }
    }

    /// A turn could not have the session. If it is the first, nothing has happened yet, and the caller gets the error
    /// itself; later it is a turn that failed.
    fn refuse_turn(&mut self, error: Error) {
        let event = if self.turns.is_first() {
            Event::InputRejected(error.clone())
        } else {
            self.turns.begin(None);
            Event::TurnEnded(TurnOutcome::Failed)
        };
        self.turns.answer(Err(error));
        self.raised.push_front(event);
    }

    /// The wait for the session is over.
    pub(super) fn admitted(&mut self, admitted: Result<AwaitedLock>) -> Option<AgentEvent> {
        let taken = admitted.and_then(|admitted| {
            let moved_to = self.ledger.as_mut().map(|ledger| ledger.keep_lock(admitted));
            match moved_to.transpose()?.flatten() {
                Some(Snapshot { state, .. }) => self.session.reload(state.unwrap_or_default()),
                None => Ok(()),
            }
        });
        let (start, detach) = (self.admissions.start.take(), self.admissions.detach.take());
        match taken {
            Ok(()) => {
                if let Some((id, inputs)) = detach {
                    self.write_pending(id, inputs);
                }
                if let Some((input, reserved)) = start {
                    self.hand_over(input, Some(reserved));
                }
                None
            }
            Err(error) => {
                self.release_session();
                if start.is_some() {
                    self.refuse_turn(error.clone());
                }
                detach.map(|_| Event::PendingFailed(error))
            }
        }
    }

    fn send_turn_end(&mut self, outcome: TurnOutcome) {
        let end = match outcome {
            TurnOutcome::Succeeded => TurnEnd {
                snapshot_id: self.turns.row().cloned(),
                finish_reason: self.turns.reason(),
            },
            TurnOutcome::Failed => TurnEnd {
                snapshot_id: None,
                finish_reason: Some(AgentFinishReason::Failed),
            },
        };
        self.announce(AgentStreamChunk::turn_end(end));
    }

    /// Shows the client a chunk of the driver's own.
    pub(super) fn announce(&mut self, chunk: AgentStreamChunk) {
        if !self.wire.is_silent() {
            let failed = self.show(chunk.into());
            self.raised.extend(failed);
        }
    }

    fn settle_turn(&mut self, outcome: Result<(), Error>) {
        self.turns.settle(outcome);
        self.release_session();
    }

    /// Lets others have the session; a run that goes on without its client keeps it.
    fn release_session(&mut self) {
        if let Some(ledger) = self.ledger.as_mut().filter(|_| !self.client.has_detached()) {
            ledger.release_lock();
        }
    }

    fn cancel_work(&mut self) {
        let why = self
            .why
            .clone()
            .unwrap_or_else(|| Error::cancelled("the work was cancelled"));
        self.outbox.end(why.clone());
        self.function.drop_after(self.definition.cancellation_grace);
        if self.admissions.give_up_start().is_some() {
            self.turns.answer(Err(why));
        }
    }

    /// Writes the pending row, waiting for the session first where it is not ours yet.
    fn detach(&mut self, id: PendingId, inputs: Vec<AgentInput>) {
        self.client.let_go();
        self.play_to_watchers();
        let id = match id {
            PendingId::OfRunningTurn => {
                let waiting = self.admissions.start.as_ref().map(|(_, reserved)| reserved);
                self.turns
                    .reserved()
                    .or(waiting)
                    .cloned()
                    .unwrap_or_else(SnapshotId::fresh)
            }
            PendingId::Fresh => SnapshotId::fresh(),
        };
        if self.admissions.is_waiting() {
            self.admissions.detach = Some((id, inputs));
            return;
        }
        match self.ledger.as_mut().map(|ledger| ledger.take_lock(&id)) {
            Some(Ok(LockAnswer::Granted)) => self.write_pending(id, inputs),
            Some(Ok(LockAnswer::Queued(turn))) => {
                self.admissions.wait(turn);
                self.admissions.detach = Some((id, inputs));
            }
            Some(Err(error)) => self.raised.push_back(Event::PendingFailed(error)),
            None => {}
        }
    }
}
