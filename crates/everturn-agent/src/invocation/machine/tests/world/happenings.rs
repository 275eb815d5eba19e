//! What may happen next, and what has happened then.

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
        // A turn that may not begin can be a reason to reject, too.
        if self.input == Input::Open || (self.input == Input::Closed && self.offer.is_some()) {
            events.push(Event::InputRejected("invalid"));
        }
        if !self.client_gone {
            events.push(Event::ClientGone("gone"));
        }
        events.push(Event::TransformFailed("transform"));
    }

    pub(super) fn function_events(&self, events: &mut Vec<Happening>) {
        let returns = [Event::Returned(Ok(())), Event::Returned(Err("function"))];
        if self.function == Function::InTurn && self.iterations < ITERATIONS {
            events.push(Event::IterationEnded);
        }
        match self.function {
            Function::Running => {
                events.push(Event::NextInput);
                match self.offer {
                    Some(input) => events.push(Event::TurnRefused(input)),
                    None => events.extend(returns),
                }
            }
            Function::InTurn => {
                events.push(Event::TurnEnded(TurnOutcome::Succeeded));
                events.push(Event::TurnEnded(TurnOutcome::Failed));
                events.extend(returns);
            }
            // A turn that may not begin.
            Function::Asking if self.offer.is_some() => events.push(Event::TurnEnded(TurnOutcome::Failed)),
            Function::Asking | Function::Unsettled | Function::Returned(_) => {}
        }
    }

    pub(super) fn answers(&self, events: &mut Vec<Happening>) {
        if self.committing {
            events.extend([Event::TurnCommitted, Event::CommitFailed("store")]);
        }
        if self.saving {
            events.extend([Event::IterationCommitted, Event::CommitFailed("store")]);
        }
        if self.end_row == Row::InFlight {
            events.extend([Event::EndCommitted, Event::CommitFailed("store")]);
        }
        if self.draining {
            events.push(Event::Drained);
        }
        if self.pending_row == Row::InFlight {
            events.extend([Event::PendingWritten, Event::PendingFailed("store")]);
        }
        if self.recording {
            events.push(Event::ProgressRecorded);
        }
        if self.final_write == Row::InFlight {
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
            Event::InputRejected(_) => self.input = Input::Invalid,
            Event::ClientGone(_) => self.client_gone = true,
            Event::TransformFailed(_) => self.transform_failed = true,
            Event::NextInput => {
                self.function = Function::Asking;
                self.asked_in_vain = false;
            }
            Event::TurnRefused(_) => {
                self.offer = None;
                self.run -= 1;
            }
            Event::TurnEnded(outcome) => {
                if *outcome == TurnOutcome::Failed {
                    self.conversation.turn_left();
                }
                self.unrecorded |= self.pending_row != Row::Unwritten;
                self.offer = None;
                self.function = Function::Unsettled;
                if self.saving {
                    self.ended_while_saving = Some(*outcome);
                } else {
                    self.turn_end_due = (*outcome == TurnOutcome::Failed).then_some(TurnOutcome::Failed);
                }
            }
            Event::IterationEnded => self.iterations += 1,
            Event::IterationCommitted => {
                self.conversation.row_written_inside();
                self.saved();
            }
            Event::EndCommitted => {
                self.conversation.row_written();
                self.end_row = Row::Written;
            }
            Event::CommitFailed(_) if self.saving => self.saved(),
            Event::CommitFailed(_) if self.end_row == Row::InFlight => {
                self.end_row = Row::Failed;
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
            Event::TurnCommitted => {
                self.conversation.turn_committed();
                self.committing = false;
                self.turn_end_due = Some(TurnOutcome::Succeeded);
            }
            Event::CommitFailed(_) => {
                self.conversation.turn_left();
                self.committing = false;
                self.turn_end_due = Some(TurnOutcome::Failed);
            }
            Event::PendingWritten => {
                self.conversation.recorded();
                self.pending_row = Row::Written;
            }
            Event::PendingFailed(_) => self.pending_row = Row::Failed,
            Event::ProgressRecorded => {
                self.conversation.recorded();
                self.recording = false;
            }
            Event::FinalizeWritten => self.final_write = Row::Written,
            Event::FinalizeFailed(_) => self.final_write = Row::Failed,
            Event::AbortSeen => self.abort_seen_in_time |= self.result().is_none(),
            Event::LeaseLost => self.lease_lost_in_time |= self.result().is_none(),
            Event::HeartbeatDue => {}
        }
    }

    fn saved(&mut self) {
        self.saving = false;
        let ended = self.ended_while_saving.take();
        self.turn_end_due = ended.filter(|outcome| *outcome == TurnOutcome::Failed);
    }
}
