//! Invariants of an idle machine.

use super::*;

impl World {
    /// Invariants of an idle machine: nothing that could proceed is left waiting.
    pub(super) fn check(&mut self) -> Objection {
        ensure!(
            self.released == self.machine.is_released(),
            "released and not released"
        );
        ensure!(
            !self.client_open || self.turn_end_due.is_none(),
            "a turn ended and the client was not told"
        );
        self.turn_end_due = None;

        ensure!(self.rounds == 0 || self.saving, "a generation waits for nothing");

        ensure!(
            !self.lock_held || self.released || self.let_go || self.is_in_turn() || self.write_in_flight(),
            "the turn lock is held for nothing"
        );

        let drains = self.draining && self.client_open;
        match self.function {
            Function::Returned(_) => {
                ensure!(
                    self.released || self.write_in_flight() || self.lock_asked || drains,
                    "nothing to wait for, yet no end"
                );
            }
            Function::Unsettled => ensure!(
                self.committing || self.keeping || self.saving,
                "the function waits for a turn that is settled"
            ),
            Function::Asking => {
                let more_may_come = self.input == Input::Open && !self.cancelled && self.run == self.sent;
                let answered = self.offer.is_some();
                let recorded_first = self.recording && !self.cancelled;
                ensure!(
                    answered || self.write_in_flight() || self.lock_asked || more_may_come || recorded_first,
                    "the function asks and is not answered"
                );
            }
            Function::Running | Function::InTurn => {
                let left = self.client_gone && self.input != Input::Detached;
                ensure!(self.cancelled || !left, "the client left and the work goes on");
                ensure!(self.cancelled || !self.refused, "a refused turn was ignored");
                ensure!(
                    self.cancelled || !(self.lease_lost_in_time || self.abort_seen_in_time),
                    "aborted work goes on"
                );
            }
        }
        Ok(())
    }

    /// Objects if any event moves a machine that was released.
    pub(in crate::invocation::machine::tests) fn check_rest(&self) -> Objection {
        for event in every_event() {
            let mut machine = self.machine.clone();
            let commands = machine.handle(event.clone());
            ensure!(
                commands.is_empty() && machine == self.machine,
                "{event:?} woke the dead"
            );
        }
        Ok(())
    }
}

fn every_event() -> Vec<Happening> {
    vec![
        Event::Input(0),
        Event::Detach(vec![0]),
        Event::InputClosed,
        Event::ClientGone("late"),
        Event::NextInput,
        Event::LockGranted,
        Event::LockRefused("late"),
        Event::TurnRefused(0),
        Event::TurnEnded(TurnOutcome::Succeeded),
        Event::TurnEnded(TurnOutcome::Failed),
        Event::RoundEnded,
        Event::RoundCommitted(Commit::Snapshot),
        Event::EndCommitted(Commit::Snapshot),
        Event::Returned(Ok(())),
        Event::Returned(Err("late")),
        Event::TransformFailed("late"),
        Event::Drained,
        Event::TurnCommitted(Commit::Snapshot),
        Event::TurnKept(Commit::Snapshot),
        Event::CommitFailed("late"),
        Event::PendingWritten,
        Event::PendingFailed("late"),
        Event::ProgressRecorded,
        Event::FinalizeWritten,
        Event::FinalizeFailed("late"),
        Event::HeartbeatDue,
        Event::AbortSeen,
        Event::LeaseLost,
    ]
}
