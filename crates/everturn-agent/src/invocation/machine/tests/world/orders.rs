//! Execution of the machine's commands, and the commands that are illegal.

use super::*;

impl World {
    pub(super) fn execute(&mut self, command: &Order) -> Objection {
        ensure!(!self.released, "{command:?} after release");
        match command {
            Command::TakeLock => self.take_lock(),
            Command::LeaveQueue => self.leave_queue(),
            Command::ReleaseLock => self.release_lock(),
            Command::StartTurn { input, snapshot } => self.start_turn(*input, *snapshot),
            Command::FailTurn(_) => self.fail_turn(),
            Command::EndInput(end) => self.end_input(*end),
            Command::CommitRound => self.commit_round(),
            Command::SettleRound(_) => {
                ensure!(self.rounds > 0 && !self.saving, "settled too early or twice");
                self.rounds -= 1;
                Ok(())
            }
            Command::CommitEnd => self.commit_end(),
            Command::CommitTurn => self.commit_turn(),
            Command::KeepTurn => self.keep_turn(),
            Command::SendTurnEnd(outcome) => {
                ensure!(self.client_open, "turnEnd on a silent client stream");
                ensure!(self.resolution.is_none(), "turnEnd after the answer");
                ensure!(
                    self.turn_end_due.take() == Some(*outcome),
                    "turnEnd {outcome:?} is not due"
                );
                Ok(())
            }
            Command::SettleTurn(_) => {
                ensure!(
                    !self.committing && !self.keeping && !self.saving,
                    "settled before the commit"
                );
                if self.function == Function::Unsettled {
                    self.function = Function::Running;
                }
                Ok(())
            }
            Command::SilenceClient => {
                let reason = self.client_gone
                    || self.transform_failed
                    || self.refused
                    || self.input == Input::Detached;
                ensure!(
                    reason && self.client_open,
                    "client stream silenced without reason"
                );
                self.client_open = false;
                Ok(())
            }
            Command::Drain => {
                ensure!(
                    self.client_open && self.result().is_some() && !self.draining && !self.write_in_flight(),
                    "drained too early"
                );
                self.draining = true;
                Ok(())
            }
            Command::CancelWork(reason) => self.cancel(reason),
            Command::LetClientGo => self.let_client_go(),
            Command::WritePending { inputs } => self.write_pending(inputs),
            Command::RecordProgress { inputs } => self.record_progress(inputs),
            Command::StartHeartbeat => advance(&mut self.heartbeat, Watch::NotYet, Watch::On),
            Command::StopHeartbeat => advance(&mut self.heartbeat, Watch::On, Watch::Off),
            Command::SubscribeStatus => advance(&mut self.subscription, Watch::NotYet, Watch::On),
            Command::UnsubscribeStatus => advance(&mut self.subscription, Watch::On, Watch::Off),
            Command::Beat => advance(&mut self.heartbeat, Watch::On, Watch::On),
            Command::Finalize(ending) => self.finalize(ending),
            Command::Resolve(resolution) => self.resolve(resolution),
            Command::Release => self.release(),
        }
    }

    fn commit_round(&mut self) -> Objection {
        ensure!(self.function == Function::InTurn, "a snapshot inside no turn");
        ensure!(self.rounds > 0, "a snapshot that nobody waits for");
        ensure!(!self.write_in_flight(), "two snapshots at once");
        ensure!(
            self.pending == Write::Unwritten && !self.cancelled,
            "a snapshot inside a turn that leaves none"
        );
        self.saving = true;
        Ok(())
    }

    fn commit_end(&mut self) -> Objection {
        ensure!(
            self.keeps_end && self.result() == Some(Ok(())) && self.client_open,
            "no end to be saved"
        );
        ensure!(
            self.end == Write::Unwritten && !self.write_in_flight(),
            "two snapshots at once"
        );
        self.end = Write::InFlight;
        Ok(())
    }

    fn commit_turn(&mut self) -> Objection {
        ensure!(
            !self.write_in_flight() && (self.function != Function::InTurn),
            "commit without a turn"
        );
        ensure!(
            self.pending == Write::Unwritten,
            "a turn's snapshot after the pending one"
        );
        ensure!(
            self.lock_held == self.has_store,
            "a turn's snapshot without the lock"
        );
        self.committing = true;
        Ok(())
    }

    fn keep_turn(&mut self) -> Objection {
        ensure!(
            self.keeps_failures && self.ended == Some(TurnOutcome::Failed),
            "there is no failure to be kept"
        );
        ensure!(
            !self.write_in_flight() && self.function != Function::InTurn,
            "kept too early"
        );
        ensure!(
            self.pending == Write::Unwritten && self.lock_held,
            "a failure after the pending snapshot, or without the lock"
        );
        self.keeping = true;
        self.turn_end_due = None;
        Ok(())
    }

    fn cancel(&mut self, reason: &Cancellation<&'static str>) -> Objection {
        ensure!(!self.cancelled && self.result().is_none(), "nothing to cancel");
        self.cancelled = true;
        match reason {
            Cancellation::Stopped(cause) => self.plausible(cause)?,
            Cancellation::Aborted => ensure!(self.abort_seen_in_time, "nobody aborted"),
            Cancellation::Fenced => ensure!(self.lease_lost_in_time, "nobody took over"),
        }
        Ok(())
    }

    fn let_client_go(&mut self) -> Objection {
        ensure!(
            self.input == Input::Detached && !self.client_open && !self.let_go,
            "let go of a client that is still served"
        );
        self.let_go = true;
        Ok(())
    }

    fn start_turn(&mut self, input: u8, snapshot: TurnSnapshot) -> Objection {
        ensure!(
            self.function == Function::Asking || self.asked_in_vain,
            "two turns at once"
        );
        ensure!(self.offer.is_none(), "two turns on their way");
        ensure!(
            !self.committing && !self.keeping && !self.saving,
            "a turn started before the last one was durable"
        );
        ensure!(!self.cancelled, "a turn started after cancellation");
        ensure!(
            input == self.run && input < self.sent,
            "input {input} out of order"
        );
        ensure!(self.lock_held == self.has_store, "a turn without the lock");
        match snapshot {
            TurnSnapshot::Own => ensure!(
                self.pending == Write::Unwritten && self.client_open,
                "own snapshot in background"
            ),
            TurnSnapshot::OfRun => {
                ensure!(
                    self.pending == Write::Written && !self.client_open,
                    "background turn before its snapshot"
                );
                ensure!(
                    !self.unrecorded && !self.recording,
                    "a takeover would repeat a finished turn"
                );
            }
        }
        self.asked_in_vain = false;
        self.offer = Some(input);
        self.run += 1;
        Ok(())
    }

    fn end_input(&mut self, end: EndOfInput) -> Objection {
        ensure!(
            self.function == Function::Asking || self.asked_in_vain,
            "end of input to nobody"
        );
        match end {
            EndOfInput::Closed => {
                ensure!(
                    matches!(self.input, Input::Closed | Input::Detached),
                    "the input is still open"
                );
                ensure!(self.run == self.sent, "accepted inputs were not run");
                ensure!(!self.cancelled, "a cancelled loop must not end normally");
            }
            EndOfInput::Cancelled => ensure!(self.cancelled, "nobody cancelled"),
        }
        self.leave_loop();
        Ok(())
    }

    fn write_pending(&mut self, inputs: &[u8]) -> Objection {
        ensure!(self.pending == Write::Unwritten, "a second pending snapshot");
        ensure!(!self.write_in_flight(), "the pending snapshot overtook another");
        ensure!(
            self.lock_held && self.reserved && self.let_go,
            "a pending snapshot without lock or id"
        );
        ensure!(
            !self.client_open && !self.cancelled,
            "a pending snapshot without a detach"
        );
        let accepted = self.run - u8::from(self.is_in_turn())..self.sent;
        let expected: Vec<u8> = if self.result().is_some() {
            Vec::new()
        } else {
            accepted.collect()
        };
        ensure!(
            inputs == expected,
            "the pending snapshot records {inputs:?} instead of {expected:?}"
        );
        self.conversation.record_takeover_point(inputs);
        self.pending = Write::InFlight;
        Ok(())
    }

    fn record_progress(&mut self, inputs: &[u8]) -> Objection {
        ensure!(
            self.pending == Write::Written,
            "no snapshot to record progress in"
        );
        ensure!(
            self.unrecorded && !self.recording,
            "there is nothing new to record"
        );
        ensure!(
            self.final_write == Write::Unwritten && !self.lease_lost_in_time,
            "progress after the end"
        );
        let expected: Vec<u8> = (self.run..self.sent).collect();
        ensure!(!inputs.is_empty(), "a write for nothing: no turn follows");
        ensure!(
            inputs == expected,
            "the snapshot records {inputs:?} as left instead of {expected:?}"
        );
        self.conversation.record_progress(inputs);
        self.recording = true;
        self.unrecorded = false;
        Ok(())
    }

    fn finalize(&mut self, ending: &Ending<&'static str>) -> Objection {
        ensure!(self.pending == Write::Written, "no snapshot to finalize");
        ensure!(self.final_write == Write::Unwritten, "a second final write");
        ensure!(
            self.heartbeat != Watch::On && self.subscription != Watch::On,
            "still watching"
        );
        ensure!(!self.lease_lost_in_time, "a zombie writes");
        let Some(result) = self.result() else {
            return Err("finalized before the function returned".into());
        };
        let expected = match result {
            _ if self.abort_seen_in_time => Ending::Aborted(result.err()),
            Ok(()) if self.end_failed_in_time => Ending::Failed("store"),
            Ok(()) => Ending::Completed,
            Err(error) => Ending::Failed(error),
        };
        ensure!(*ending == expected, "ended as {ending:?} instead of {expected:?}");
        self.final_write = Write::InFlight;
        Ok(())
    }

    fn resolve(&mut self, resolution: &Resolution<&'static str>) -> Objection {
        ensure!(!self.taken_over && self.resolution.is_none(), "a second answer");
        match resolution {
            Resolution::Completed => {
                ensure!(self.result() == Some(Ok(())), "completed without the function");
                ensure!(self.end != Write::Failed, "completed, and its end is not durable");
                ensure!(
                    self.end == Write::Written || !self.keeps_end,
                    "completed without its end"
                );
                ensure!(
                    self.client_open && !self.draining && !self.client_gone,
                    "completed too early"
                );
            }
            Resolution::Failed(cause) => {
                ensure!(!self.client_gone, "a failed output for a client that left");
                self.plausible(cause)?;
            }
            Resolution::Rejected(cause) => {
                ensure!(self.client_gone || self.refused, "rejected a client that listens");
                self.plausible(cause)?;
            }
            Resolution::Detached => ensure!(self.pending == Write::Written, "detached without a snapshot"),
        }
        self.resolution = Some(resolution.clone());
        Ok(())
    }

    fn plausible(&self, cause: &Cause<&'static str>) -> Objection {
        let happened = match cause {
            Cause::Function(_) => self.result() == Some(Err("function")) || self.end == Write::Failed,
            Cause::Transform(_) => self.transform_failed,
            Cause::LockRefused(_) => self.refused,
            Cause::ClientGone(_) => self.client_gone,
            Cause::DetachWithoutStore | Cause::DetachWithoutSubscription => self.input == Input::Detached,
            Cause::PendingSnapshot(_) => self.pending == Write::Failed,
        };
        ensure!(happened, "{cause:?} did not happen");
        Ok(())
    }

    fn release(&mut self) -> Objection {
        ensure!(self.result().is_some(), "released before the function returned");
        ensure!(!self.write_in_flight(), "released with a write in flight");
        ensure!(
            self.heartbeat != Watch::On && self.subscription != Watch::On,
            "released while watching"
        );
        ensure!(
            self.resolution.is_some() != self.taken_over,
            "released without an answer"
        );
        self.released = true;
        Ok(())
    }
}

fn advance(watch: &mut Watch, from: Watch, to: Watch) -> Objection {
    ensure!(*watch == from, "watch was {watch:?}, not {from:?}");
    *watch = to;
    Ok(())
}
