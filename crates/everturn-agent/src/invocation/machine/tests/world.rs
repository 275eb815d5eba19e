//! A model of everything around the machine: the client, the function, the store and the wire, as a legal
//! driver lets them act. It knows what may happen next, does what the machine commands, and objects to what
//! must not be.

mod happenings;
mod lock_holder;
mod orders;
mod rest;
mod transcript;

use self::transcript::Conversation;
use super::*;

pub(super) type Happening = Event<u8, &'static str>;
pub(super) type Order = Command<u8, &'static str>;
type Objection = Result<(), String>;

/// How many inputs a client sends at most.
const INPUTS: u8 = 3;

/// How many generations wait for a snapshot at the same time at most.
const ROUNDS: u8 = 2;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
use ensure;

/// One thing that can happen next.
#[derive(Debug, Clone)]
pub(super) enum Move {
    Raise(Happening),
    /// The function drops its turn loop while that waits; no event is raised.
    DropTurnLoop,
    /// The turn on its way to the function begins; no event is raised.
    BeginTurn,
    /// The process dies, and another worker takes the run over.
    Crash,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the facts are independent: any combination may be reached"
)]
pub(super) struct World {
    machine: Machine<u8, &'static str>,
    conversation: Conversation,
    /// A background run taken over from another worker: no client, no answer.
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

    has_store: bool,
    /// The turn lock was requested, and the request is unanswered.
    lock_asked: bool,
    lock_held: bool,
    /// The first turn was refused the lock.
    refused: bool,
    /// A snapshot id is reserved.
    reserved: bool,
    /// The client is no longer followed.
    let_go: bool,

    committing: bool,
    /// Failed turns are kept; one is being kept now.
    keeps_failures: bool,
    keeping: bool,
    /// How the last turn ended.
    ended: Option<TurnOutcome>,
    /// A snapshot inside the turn is being written.
    saving: bool,
    /// How many generations wait for `SettleRound`.
    rounds: u8,
    /// How the turn ended while a snapshot inside it was being written.
    ended_while_saving: Option<TurnOutcome>,
    keeps_end: bool,
    end: Write,
    /// The snapshot of the end failed, and no detach had made up for it.
    end_failed_in_time: bool,
    draining: bool,
    /// How far the run came is being recorded.
    recording: bool,
    /// A background turn ended, and the snapshot still counts it among those to be run.
    unrecorded: bool,
    pending: Write,
    final_write: Write,

    client_open: bool,
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
    Detached,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Running,
    Asking,
    InTurn,
    /// It waits for the outcome of its turn.
    Unsettled,
    Returned(Result<(), &'static str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Write {
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
        Self {
            has_store: store != StoreSupport::None,
            ..Self::around(Machine::new(store))
        }
    }

    /// An invocation whose end may become a snapshot.
    pub(super) fn keeping_ends(store: StoreSupport) -> Self {
        Self {
            keeps_end: true,
            ..Self::around(Machine::new(store).keeping(true, false))
        }
    }

    /// An invocation whose failed turns are kept.
    pub(super) fn keeping_failures(store: StoreSupport) -> Self {
        Self {
            keeps_failures: true,
            ..Self::around(Machine::new(store).keeping(false, true))
        }
    }

    pub(super) fn taken_over() -> Self {
        Self::going_on((0..INPUTS).collect(), INPUTS, Conversation::new())
    }

    /// A worker that takes over the remaining inputs after these messages.
    fn going_on(left: Vec<u8>, sent: u8, conversation: Conversation) -> Self {
        let run = sent - u8::try_from(left.len()).expect("a few inputs");
        let (machine, commands) = Machine::take_over(left);
        let mut world = Self {
            conversation,
            taken_over: true,
            input: Input::Detached,
            sent,
            run,
            client_open: false,
            lock_held: true,
            reserved: true,
            let_go: true,
            pending: Write::Written,
            ..Self::around(machine)
        };
        for command in &commands {
            world
                .execute(command)
                .expect("a takeover starts by watching its snapshot");
        }
        world
    }

    fn around(machine: Machine<u8, &'static str>) -> Self {
        Self {
            machine,
            conversation: Conversation::new(),
            taken_over: false,
            input: Input::Open,
            sent: 0,
            run: 0,
            client_gone: false,
            transform_failed: false,
            function: Function::Running,
            asked_in_vain: false,
            offer: None,
            has_store: true,
            lock_asked: false,
            lock_held: false,
            refused: false,
            reserved: false,
            let_go: false,
            committing: false,
            keeps_failures: false,
            keeping: false,
            ended: None,
            saving: false,
            rounds: 0,
            ended_while_saving: None,
            keeps_end: false,
            end: Write::Unwritten,
            end_failed_in_time: false,
            draining: false,
            recording: false,
            unrecorded: false,
            pending: Write::Unwritten,
            final_write: Write::Unwritten,
            client_open: true,
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
        if self.conversation.is_recorded() && self.final_write != Write::Written && !self.taken_over {
            moves.push(Move::Crash);
        }
        moves
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
                self.conversation.begin_turn(self.offer.take())?;
                self.function = Function::InTurn;
                Ok(Vec::new())
            }
            Move::Crash => {
                let (left, conversation) = self.conversation.taken_over()?;
                *self = Self::going_on(left, self.sent, conversation);
                Ok(Vec::new())
            }
            Move::Raise(event) => {
                self.note(&event);
                self.conversation.note(&event);
                let commands = self.machine.handle(event);
                for command in &commands {
                    self.execute(command)?;
                }
                self.check()?;
                Ok(commands)
            }
        }
    }

    fn result(&self) -> Option<Result<(), &'static str>> {
        match self.function {
            Function::Returned(result) => Some(result),
            _ => None,
        }
    }

    fn write_in_flight(&self) -> bool {
        self.committing
            || self.keeping
            || self.saving
            || [self.end, self.pending, self.final_write].contains(&Write::InFlight)
    }
}
