//! What the machine commands, and what it may not.

use super::*;

impl World {
    pub(super) fn execute(&mut self, command: &Order) -> Objection {
        ensure!(!self.released, "{command:?} after release");
        match command {
            Command::StartTurn { input, row } => self.start_turn(*input, *row),
            Command::EndInput(end) => self.end_input(*end),
            Command::CommitIteration => {
                ensure!(self.function == Function::InTurn, "a row inside no turn");
                ensure!(self.iterations > 0, "a row that nobody waits for");
                ensure!(!self.write_in_flight(), "two rows at once");
                ensure!(
                    self.pending_row == Row::Unwritten && !self.cancelled,
                    "a row inside a turn that leaves none"
                );
                self.saving = true;
                Ok(())
            }
            Command::SettleIteration(_) => {
                ensure!(self.iterations > 0 && !self.saving, "settled too early or twice");
                self.iterations -= 1;
                Ok(())
            }
            Command::CommitEnd => {
                ensure!(
                    self.keeps_end && self.result() == Some(Ok(())) && self.wire_open,
                    "no end to be saved"
                );
                ensure!(
                    self.end_row == Row::Unwritten && !self.write_in_flight(),
                    "two rows at once"
                );
                self.end_row = Row::InFlight;
                Ok(())
            }
            Command::CommitTurn => {
                ensure!(
                    !self.write_in_flight() && (self.function != Function::InTurn),
                    "commit without a turn"
                );
                ensure!(
                    self.pending_row == Row::Unwritten,
                    "a turn row after the pending row"
                );
                self.committing = true;
                Ok(())
            }
            Command::SendTurnEnd(outcome) => {
                ensure!(self.wire_open, "turnEnd on a silent wire");
                ensure!(self.resolution.is_none(), "turnEnd after the answer");
                ensure!(
                    self.turn_end_due.take() == Some(*outcome),
                    "turnEnd {outcome:?} is not due"
                );
                Ok(())
            }
            Command::SettleTurn(_) => {
                ensure!(!self.committing && !self.saving, "settled before the commit");
                if self.function == Function::Unsettled {
                    self.function = Function::Running;
                }
                Ok(())
            }
            Command::SuppressWire => {
                let reason = self.client_gone
                    || self.transform_failed
                    || matches!(self.input, Input::Detached | Input::Invalid);
                ensure!(reason && self.wire_open, "wire silenced without reason");
                self.wire_open = false;
                Ok(())
            }
            Command::Drain => {
                ensure!(
                    self.wire_open && self.result().is_some() && !self.draining && !self.write_in_flight(),
                    "drained too early"
                );
                self.draining = true;
                Ok(())
            }
            Command::CancelWork => {
                ensure!(!self.cancelled && self.result().is_none(), "nothing to cancel");
                self.cancelled = true;
                if self.offer.take().is_some() && self.function == Function::Asking {
                    self.function = Function::Running;
                }
                Ok(())
            }
            Command::WritePending { id, inputs } => self.write_pending(*id, inputs),
            Command::RecordProgress { inputs } => self.record_progress(inputs),
            Command::StartHeartbeat => advance(&mut self.heartbeat, Watch::NotYet, Watch::On),
            Command::StopHeartbeat => advance(&mut self.heartbeat, Watch::On, Watch::Off),
            Command::SubscribeStatus => advance(&mut self.subscription, Watch::NotYet, Watch::On),
            Command::UnsubscribeStatus => advance(&mut self.subscription, Watch::On, Watch::Off),
            Command::Beat => advance(&mut self.heartbeat, Watch::On, Watch::On),
            Command::FinalizeRow(ending) => self.finalize(ending),
            Command::Resolve(resolution) => self.resolve(resolution),
            Command::Release => self.release(),
        }
    }

    fn start_turn(&mut self, input: u8, row: TurnRow) -> Objection {
        ensure!(
            self.function == Function::Asking || self.asked_in_vain,
            "two turns at once"
        );
        ensure!(self.offer.is_none(), "two turns on their way");
        ensure!(
            !self.committing && !self.saving,
            "a turn started before the last one was durable"
        );
        ensure!(!self.cancelled, "a turn started after cancellation");
        ensure!(
            input == self.run && input < self.sent,
            "input {input} out of order"
        );
        match row {
            TurnRow::Own => ensure!(
                self.pending_row == Row::Unwritten && self.wire_open,
                "own row in background"
            ),
            TurnRow::Pending => {
                ensure!(
                    self.pending_row == Row::Written && !self.wire_open,
                    "background turn before its row"
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
        if self.function == Function::Asking {
            self.function = Function::Running;
        }
        self.asked_in_vain = false;
        Ok(())
    }

    fn write_pending(&mut self, id: PendingId, inputs: &[u8]) -> Objection {
        ensure!(self.pending_row == Row::Unwritten, "a second pending row");
        ensure!(!self.write_in_flight(), "the pending row overtook another");
        ensure!(
            !self.wire_open && !self.cancelled,
            "a pending row without a detach"
        );
        let in_turn = self.function == Function::InTurn || self.offer.is_some();
        ensure!(
            (id == PendingId::OfRunningTurn) == in_turn,
            "wrong id for the pending row"
        );
        let accepted = self.run - u8::from(in_turn)..self.sent;
        let expected: Vec<u8> = if self.result().is_some() {
            Vec::new()
        } else {
            accepted.collect()
        };
        ensure!(
            inputs == expected,
            "the pending row records {inputs:?} instead of {expected:?}"
        );
        self.conversation.record_boundary(inputs);
        self.pending_row = Row::InFlight;
        Ok(())
    }

    fn record_progress(&mut self, inputs: &[u8]) -> Objection {
        ensure!(self.pending_row == Row::Written, "no row to record progress in");
        ensure!(
            self.unrecorded && !self.recording,
            "there is nothing new to record"
        );
        ensure!(
            self.final_write == Row::Unwritten && !self.lease_lost_in_time,
            "progress after the end"
        );
        let expected: Vec<u8> = (self.run..self.sent).collect();
        ensure!(!inputs.is_empty(), "a write for nothing: no turn follows");
        ensure!(
            inputs == expected,
            "the row records {inputs:?} as left instead of {expected:?}"
        );
        self.conversation.record_progress(inputs);
        self.recording = true;
        self.unrecorded = false;
        Ok(())
    }

    fn finalize(&mut self, ending: &Ending<&'static str>) -> Objection {
        ensure!(self.pending_row == Row::Written, "no row to finalize");
        ensure!(self.final_write == Row::Unwritten, "a second final write");
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
        self.final_write = Row::InFlight;
        Ok(())
    }

    fn resolve(&mut self, resolution: &Resolution<&'static str>) -> Objection {
        ensure!(!self.taken_over && self.resolution.is_none(), "a second answer");
        match resolution {
            Resolution::Completed => {
                ensure!(self.result() == Some(Ok(())), "completed without the function");
                ensure!(
                    self.end_row != Row::Failed,
                    "completed, and its end is not durable"
                );
                ensure!(
                    self.end_row == Row::Written || !self.keeps_end,
                    "completed without its end"
                );
                ensure!(
                    self.wire_open && !self.draining && !self.client_gone,
                    "completed too early"
                );
            }
            Resolution::Failed(cause) => {
                ensure!(!self.client_gone, "a failed output for a client that left");
                self.plausible(cause)?;
            }
            Resolution::Rejected(cause) => {
                ensure!(
                    self.client_gone || self.input == Input::Invalid,
                    "rejected a client that listens"
                );
                self.plausible(cause)?;
            }
            Resolution::Detached => ensure!(self.pending_row == Row::Written, "detached without a row"),
        }
        self.resolution = Some(resolution.clone());
        Ok(())
    }

    fn plausible(&self, cause: &Cause<&'static str>) -> Objection {
        let happened = match cause {
            Cause::Function(_) => self.result() == Some(Err("function")) || self.end_row == Row::Failed,
            Cause::Transform(_) => self.transform_failed,
            Cause::InvalidInput(_) => self.input == Input::Invalid,
            Cause::ClientGone(_) => self.client_gone,
            Cause::DetachWithoutStore | Cause::DetachWithoutSubscription => self.input == Input::Detached,
            Cause::PendingRow(_) => self.pending_row == Row::Failed,
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
