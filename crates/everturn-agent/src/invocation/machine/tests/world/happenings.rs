//! The possible next events, and their effects on the world.

use super::*;

impl World {
    pub(super) fn client_events(&self, events: &mut Vec<Happening>) {
        if self.taken_over {
            return;
        }
        if self.input == Input::Open {
            events.extend([Event::Detach(vec![]), Event::InputClosed]);
            if self.sent < INPUTS {
                events.extend([Event::Input(self.sent), Event::Detach(vec![self.sent])]);
            }
            if self.sent + 1 < INPUTS {
                events.push(Event::Detach(vec![self.sent, self.sent + 1]));
            }
        }
        if !self.client_gone {
            events.push(Event::ClientGone("gone"));
        }
        events.push(Event::TransformFailed("transform"));
    }

    pub(super) fn function_events(&self, events: &mut Vec<Happening>) {
        let returns = [Event::Returned(Ok(())), Event::Returned(Err("function"))];
        if self.function == Function::InTurn && self.rounds < ROUNDS {
            events.push(Event::RoundEnded);
        }
        match self.function {
            Function::Running => {
                events.push(Event::NextInput);
                match self.offer {
                    // The turn loop was dropped: before the turn was handed to it, or after.
                    Some(input) => {
                        events.extend([Event::TurnRefused(input), Event::TurnEnded(TurnOutcome::Failed)]);
                    }
                    None => events.extend(returns),
                }
            }
            Function::InTurn => {
                events.push(Event::TurnEnded(TurnOutcome::Succeeded));
                events.push(Event::TurnEnded(TurnOutcome::Failed));
                events.extend(returns);
            }
            Function::Asking | Function::Unsettled | Function::Returned(_) => {}
        }
    }

    pub(super) fn answers(&self, events: &mut Vec<Happening>) {
        if self.lock_asked {
            events.extend([Event::LockGranted, Event::LockRefused("busy")]);
        }
        let commits = [Commit::Snapshot, Commit::Nothing];
        let commits = commits
            .into_iter()
            .filter(|commit| self.has_store || *commit == Commit::Nothing);
        if self.committing {
            events.extend(commits.clone().map(Event::TurnCommitted));
        }
        if self.saving {
            events.extend(commits.clone().map(Event::RoundCommitted));
        }
        if self.end == Write::InFlight {
            events.extend(commits.clone().map(Event::EndCommitted));
        }
        if self.keeping {
            events.extend(commits.map(Event::TurnKept));
        }
        if self.committing || self.keeping || self.saving || self.end == Write::InFlight {
            events.push(Event::CommitFailed("store"));
        }
        if self.draining {
            events.push(Event::Drained);
        }
        if self.pending == Write::InFlight {
            events.extend([Event::PendingWritten, Event::PendingFailed("store")]);
        }
        if self.recording {
            events.push(Event::ProgressRecorded);
        }
        if self.final_write == Write::InFlight {
            events.extend([Event::FinalizeWritten, Event::FinalizeFailed("store")]);
        }
        // Also after they were stopped: what was on its way still arrives.
        if self.heartbeat != Watch::NotYet {
            events.extend([Event::HeartbeatDue, Event::LeaseLost]);
        }
        if self.subscription != Watch::NotYet {
            events.push(Event::AbortSeen);
        }
    }

    pub(super) fn note(&mut self, event: &Happening) {
        match event {
            Event::Input(_) => self.sent += 1,
            Event::Detach(inputs) => {
                self.sent += u8::try_from(inputs.len()).expect("a few inputs");
                self.input = Input::Detached;
            }
            Event::InputClosed => self.input = Input::Closed,
            Event::ClientGone(_) => self.client_gone = true,
            Event::TransformFailed(_) => self.transform_failed = true,
            Event::NextInput => {
                self.function = Function::Asking;
                self.asked_in_vain = false;
            }
            Event::LockGranted => {
                self.lock_asked = false;
                self.lock_held = true;
            }
            Event::LockRefused(_) => self.lock_refused(),
            Event::TurnRefused(_) => {
                self.offer = None;
                self.run -= 1;
            }
            Event::TurnEnded(outcome) => {
                self.unrecorded |= self.pending != Write::Unwritten;
                self.ended = Some(*outcome);
                if self.offer.take().is_none() {
                    self.function = Function::Unsettled;
                }
                if self.saving {
                    self.ended_while_saving = Some(*outcome);
                } else {
                    self.turn_end_due = (*outcome == TurnOutcome::Failed).then_some(TurnOutcome::Failed);
                }
            }
            Event::RoundEnded => self.rounds += 1,
            Event::RoundCommitted(_) => self.saved(),
            Event::EndCommitted(_) => self.end = Write::Written,
            Event::CommitFailed(_) if self.saving => self.saved(),
            Event::CommitFailed(_) if self.end == Write::InFlight => {
                self.end = Write::Failed;
                self.end_failed_in_time = self.input != Input::Detached;
            }
            Event::Returned(result) => {
                let abandoned = (self.function == Function::InTurn).then_some(TurnOutcome::Failed);
                if self.saving {
                    self.ended_while_saving = self.ended_while_saving.or(abandoned);
                } else {
                    self.turn_end_due = abandoned;
                }
                self.function = Function::Returned(*result);
            }
            Event::Drained => self.draining = false,
            Event::TurnCommitted(_) => {
                self.committing = false;
                self.turn_end_due = Some(TurnOutcome::Succeeded);
            }
            Event::TurnKept(_) => {
                self.keeping = false;
                self.turn_end_due = Some(TurnOutcome::Failed);
            }
            Event::CommitFailed(_) => {
                self.committing = false;
                self.keeping = false;
                self.turn_end_due = Some(TurnOutcome::Failed);
            }
            Event::PendingWritten => {
                self.conversation.recorded();
                self.pending = Write::Written;
            }
            Event::PendingFailed(_) => self.pending = Write::Failed,
            Event::ProgressRecorded => {
                self.conversation.recorded();
                self.recording = false;
            }
            Event::FinalizeWritten => self.final_write = Write::Written,
            Event::FinalizeFailed(_) => self.final_write = Write::Failed,
            Event::AbortSeen => self.abort_seen_in_time |= self.result().is_none(),
            Event::LeaseLost => self.lease_lost_in_time |= self.result().is_none(),
            Event::HeartbeatDue => {}
        }
    }

    /// The first turn of an attached invocation that is refused the lock is its client's to hear as an error;
    /// a later one is a failed turn. A run that is refused the lock has no pending snapshot.
    fn lock_refused(&mut self) {
        self.lock_asked = false;
        self.reserved = self.lock_held;
        if self.let_go {
            self.pending = Write::Failed;
        } else if self.run == 0 {
            self.refused = true;
        } else {
            self.turn_end_due = Some(TurnOutcome::Failed);
        }
    }

    fn saved(&mut self) {
        self.saving = false;
        let ended = self.ended_while_saving.take();
        self.turn_end_due = ended.filter(|outcome| *outcome == TurnOutcome::Failed);
    }
}
