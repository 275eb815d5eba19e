//! A model of everything around the machine: the client, the function, the store and the wire, as a legal driver lets
//! them act. It knows what may happen next, does what the machine commands, and objects to what must not be.

use super::*;

pub(super) type Happening = Event<u8, &'static str>;
pub(super) type Order = Command<u8, &'static str>;
type Objection = Result<(), String>;

/// How many inputs a client sends at most.
const INPUTS: u8 = 3;

/// How many generations wait for a row at the same time at most.
const ITERATIONS: u8 = 2;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// One thing that can happen next.
#[derive(Debug, Clone)]
pub(super) enum Move {
    Raise(Happening),
    /// The function drops its turn loop while that waits; nobody is told.
    DropTurnLoop,
    /// The turn on its way to the function begins; nobody is told.
    BeginTurn,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the facts are independent: any combination may be reached"
)]
pub(super) struct World {
    machine: Machine<u8, &'static str>,
    /// A detached run claimed from another worker: no client, no answer.
    taken_over: bool,

    input: Input,
    /// Inputs are numbered; those below `sent` were sent and those below `run` were started.
    sent: u8,
    run: u8,
    client_gone: bool,
    transform_failed: bool,

    function: Function,
    /// The function asked, then dropped its turn loop.
    asked_in_vain: bool,
    /// A turn is on its way to the function and has not begun.
    offer: Option<u8>,

    committing: bool,
    /// A row inside the turn is being written.
    saving: bool,
    /// How many generations wait for `SettleIteration`.
    iterations: u8,
    /// How the turn ended while a row inside it was being written.
    ended_while_saving: Option<TurnOutcome>,
    keeps_end: bool,
    end_row: Row,
    /// The row of the end failed, and no detach had made up for it.
    end_failed_in_time: bool,
    draining: bool,
    /// How far the run came is being recorded.
    recording: bool,
    /// A background turn ended, and the row still counts it among those to be run.
    unrecorded: bool,
    pending_row: Row,
    final_write: Row,

    wire_open: bool,
    /// How the turn ended whose `turnEnd` must be sent at once.
    turn_end_due: Option<TurnOutcome>,
    cancelled: bool,
    heartbeat: Watch,
    subscription: Watch,
    abort_seen_in_time: bool,
    lease_lost_in_time: bool,
    resolution: Option<Resolution<&'static str>>,
    released: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Input {
    Open,
    Closed,
    Invalid,
    Detached,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Running,
    Asking,
    InTurn,
    /// It waits to hear whether its turn stands.
    Unsettled,
    Returned(Result<(), &'static str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Row {
    Unwritten,
    InFlight,
    Written,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Watch {
    NotYet,
    On,
    Off,
}

impl World {
    pub(super) fn attached(store: StoreSupport) -> Self {
        Self::around(Machine::new(store))
    }

    /// An invocation whose end may become a row.
    pub(super) fn keeping_ends(store: StoreSupport) -> Self {
        Self {
            keeps_end: true,
            ..Self::around(Machine::new(store).keeping_ends())
        }
    }

    pub(super) fn taken_over() -> Self {
        let (machine, commands) = Machine::take_over((0..INPUTS).collect());
        let mut world = Self {
            taken_over: true,
            input: Input::Detached,
            sent: INPUTS,
            wire_open: false,
            pending_row: Row::Written,
            ..Self::around(machine)
        };
        for command in &commands {
            world
                .execute(command)
                .expect("a takeover starts by watching its row");
        }
        world
    }

    fn around(machine: Machine<u8, &'static str>) -> Self {
        Self {
            machine,
            taken_over: false,
            input: Input::Open,
            sent: 0,
            run: 0,
            client_gone: false,
            transform_failed: false,
            function: Function::Running,
            asked_in_vain: false,
            offer: None,
            committing: false,
            saving: false,
            iterations: 0,
            ended_while_saving: None,
            keeps_end: false,
            end_row: Row::Unwritten,
            end_failed_in_time: false,
            draining: false,
            recording: false,
            unrecorded: false,
            pending_row: Row::Unwritten,
            final_write: Row::Unwritten,
            wire_open: true,
            turn_end_due: None,
            cancelled: false,
            heartbeat: Watch::NotYet,
            subscription: Watch::NotYet,
            abort_seen_in_time: false,
            lease_lost_in_time: false,
            resolution: None,
            released: false,
        }
    }

    pub(super) fn is_released(&self) -> bool {
        self.released
    }

    /// Everything that a legal driver may report next.
    pub(super) fn moves(&self) -> Vec<Move> {
        if self.released {
            return Vec::new();
        }
        let mut events = Vec::new();
        self.client_events(&mut events);
        self.function_events(&mut events);
        self.answers(&mut events);
        let mut moves: Vec<_> = events.into_iter().map(Move::Raise).collect();
        if matches!(self.function, Function::Asking | Function::Unsettled) {
            moves.push(Move::DropTurnLoop);
        }
        if self.function == Function::Asking && self.offer.is_some() {
            moves.push(Move::BeginTurn);
        }
        moves
    }

    fn client_events(&self, events: &mut Vec<Happening>) {
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

    fn function_events(&self, events: &mut Vec<Happening>) {
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

    fn answers(&self, events: &mut Vec<Happening>) {
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

    /// Lets it happen; gives the machine's commands, or what is wrong with them.
    pub(super) fn make(&mut self, step: Move) -> Result<Vec<Order>, String> {
        match step {
            Move::DropTurnLoop => {
                self.asked_in_vain = self.function == Function::Asking;
                self.function = Function::Running;
                Ok(Vec::new())
            }
            Move::BeginTurn => {
                self.offer = None;
                self.function = Function::InTurn;
                Ok(Vec::new())
            }
            Move::Raise(event) => {
                self.note(&event);
                let commands = self.machine.handle(event);
                for command in &commands {
                    self.execute(command)?;
                }
                self.check()?;
                Ok(commands)
            }
        }
    }

    fn note(&mut self, event: &Happening) {
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
            Event::IterationCommitted => self.saved(),
            Event::EndCommitted => self.end_row = Row::Written,
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
                self.committing = false;
                self.turn_end_due = Some(TurnOutcome::Succeeded);
            }
            Event::CommitFailed(_) => {
                self.committing = false;
                self.turn_end_due = Some(TurnOutcome::Failed);
            }
            Event::PendingWritten => self.pending_row = Row::Written,
            Event::PendingFailed(_) => self.pending_row = Row::Failed,
            Event::ProgressRecorded => self.recording = false,
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

    fn result(&self) -> Option<Result<(), &'static str>> {
        match self.function {
            Function::Returned(result) => Some(result),
            _ => None,
        }
    }

    fn execute(&mut self, command: &Order) -> Objection {
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

    fn write_in_flight(&self) -> bool {
        self.committing
            || self.saving
            || [self.end_row, self.pending_row, self.final_write].contains(&Row::InFlight)
    }

    /// What must hold whenever the machine rests: nothing that could go on is left waiting.
    fn check(&mut self) -> Objection {
        ensure!(
            self.released == self.machine.is_released(),
            "released and not released"
        );
        ensure!(
            !self.wire_open || self.turn_end_due.is_none(),
            "a turn ended and the client was not told"
        );
        self.turn_end_due = None;

        ensure!(
            self.iterations == 0 || self.saving,
            "a generation waits for nothing"
        );

        let drains = self.draining && self.wire_open;
        match self.function {
            Function::Returned(_) => {
                ensure!(
                    self.released || self.write_in_flight() || drains,
                    "nothing to wait for, yet no end"
                );
            }
            Function::Unsettled => ensure!(
                self.committing || self.saving,
                "the function waits for a turn that is settled"
            ),
            Function::Asking => {
                let more_may_come = self.input == Input::Open && !self.cancelled && self.run == self.sent;
                let answered = self.offer.is_some();
                let recorded_first = self.recording && !self.cancelled;
                ensure!(
                    answered || self.write_in_flight() || more_may_come || recorded_first,
                    "the function asks and is not answered"
                );
            }
            Function::Running | Function::InTurn => {
                let left = self.client_gone && self.input != Input::Detached;
                ensure!(self.cancelled || !left, "the client left and the work goes on");
                ensure!(
                    self.cancelled || self.input != Input::Invalid,
                    "a bad input was ignored"
                );
                ensure!(
                    self.cancelled || !(self.lease_lost_in_time || self.abort_seen_in_time),
                    "aborted work goes on"
                );
            }
        }
        Ok(())
    }

    /// Objects if any event moves a machine that was released.
    pub(super) fn check_rest(&self) -> Objection {
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

fn advance(watch: &mut Watch, from: Watch, to: Watch) -> Objection {
    ensure!(*watch == from, "watch was {watch:?}, not {from:?}");
    *watch = to;
    Ok(())
}

fn every_event() -> Vec<Happening> {
    vec![
        Event::Input(0),
        Event::Detach(vec![0]),
        Event::InputClosed,
        Event::InputRejected("late"),
        Event::ClientGone("late"),
        Event::NextInput,
        Event::TurnRefused(0),
        Event::TurnEnded(TurnOutcome::Succeeded),
        Event::TurnEnded(TurnOutcome::Failed),
        Event::IterationCommitted,
        Event::EndCommitted,
        Event::Returned(Ok(())),
        Event::Returned(Err("late")),
        Event::TransformFailed("late"),
        Event::Drained,
        Event::TurnCommitted,
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
