//! Every race as a test, and every order of events as a path.

use super::{
    Cancellation, Cause, Command, Commit, EndOfInput, Ending, Event, Machine, Resolution, StoreSupport,
    TurnOutcome, TurnSnapshot,
};

mod attached_turns;
mod background_turns;
mod detach;
mod enumeration;
mod inside_a_turn;
mod invocation_end;
mod lock_requests;
mod stops;
mod world;

type Invocation = Machine<&'static str, &'static str>;
type Happening = Event<&'static str, &'static str>;
type Order = Command<&'static str, &'static str>;

const SUCCEEDED: Happening = Event::TurnEnded(TurnOutcome::Succeeded);
const FAILED: Happening = Event::TurnEnded(TurnOutcome::Failed);
const COMMITTED: Happening = Event::TurnCommitted(Commit::Snapshot);
const ROUND_COMMITTED: Happening = Event::RoundCommitted(Commit::Snapshot);
const END_COMMITTED: Happening = Event::EndCommitted(Commit::Snapshot);
const RETURNED: Happening = Event::Returned(Ok(()));

fn attached() -> Invocation {
    Machine::new(StoreSupport::WithSubscription)
}

/// An attached invocation that runs a turn on `"one"`.
fn in_turn() -> Invocation {
    after(attached(), [Event::NextInput, Event::Input("one")])
}

/// An attached invocation whose turn on `"one"` succeeded and is being committed.
fn committing() -> Invocation {
    after(in_turn(), [SUCCEEDED])
}

/// An attached invocation whose turn on `"one"` waits for a snapshot inside it.
fn saving() -> Invocation {
    after(in_turn(), [Event::RoundEnded])
}

/// An attached invocation whose function returned normally and whose end is being saved.
fn concluding() -> Invocation {
    after(attached().keeping(true, false), [RETURNED])
}

/// An attached invocation whose function returned normally and whose last chunks are on their way.
fn draining() -> Invocation {
    after(attached(), [RETURNED])
}

/// A background run whose function runs a turn on `"one"`, with `"two"` in the queue.
fn in_background() -> Invocation {
    after(in_turn(), [Event::Detach(vec!["two"]), Event::PendingWritten])
}

fn after<const N: usize>(mut machine: Invocation, events: [Happening; N]) -> Invocation {
    for event in events {
        machine.take(event);
    }
    machine
}

/// The machine as most tests use it: without competitors for the session.
trait Unrivalled {
    /// Handles an event and grants the turn lock on request. Commands about the lock are left out.
    fn take(&mut self, event: Happening) -> Vec<Order>;
}

impl Unrivalled for Invocation {
    fn take(&mut self, event: Happening) -> Vec<Order> {
        let mut commands = self.handle(event);
        if commands.contains(&Command::TakeLock) {
            commands.extend(self.handle(Event::LockGranted));
        }
        commands.retain(|command| {
            !matches!(
                command,
                Command::TakeLock | Command::LeaveQueue | Command::ReleaseLock | Command::LetClientGo
            )
        });
        commands
    }
}

fn cancel(cause: Cause<&'static str>) -> Order {
    Command::CancelWork(Cancellation::Stopped(cause))
}

fn start(input: &'static str) -> Order {
    Command::StartTurn {
        input,
        snapshot: TurnSnapshot::Own,
    }
}

fn start_in_background(input: &'static str) -> Order {
    Command::StartTurn {
        input,
        snapshot: TurnSnapshot::OfRun,
    }
}

fn record(left: &[&'static str]) -> Order {
    Command::RecordProgress {
        inputs: left.to_vec(),
    }
}

fn resolve(resolution: Resolution<&'static str>) -> [Order; 2] {
    [Command::Resolve(resolution), Command::Release]
}

fn silently_resolve(resolution: Resolution<&'static str>) -> [Order; 3] {
    [
        Command::SilenceClient,
        Command::Resolve(resolution),
        Command::Release,
    ]
}
