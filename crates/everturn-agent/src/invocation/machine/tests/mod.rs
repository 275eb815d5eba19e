//! Every race as a row, and every order of events as a path.

use super::{
    Cause, Command, EndOfInput, Ending, Event, Machine, PendingId, Resolution, StoreSupport, TurnOutcome,
    TurnRow,
};

mod attached;
mod background;
mod detach;
mod enumeration;
mod inside_a_turn;
mod invocation_end;
mod stopping;
mod world;

type Invocation = Machine<&'static str, &'static str>;
type Happening = Event<&'static str, &'static str>;
type Order = Command<&'static str, &'static str>;

const SUCCEEDED: Happening = Event::TurnEnded(TurnOutcome::Succeeded);
const FAILED: Happening = Event::TurnEnded(TurnOutcome::Failed);
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

/// An attached invocation whose turn on `"one"` waits for a row inside it.
fn saving() -> Invocation {
    after(in_turn(), [Event::IterationEnded])
}

/// An attached invocation whose function returned normally and whose end is being saved.
fn concluding() -> Invocation {
    after(attached().keeping_ends(), [RETURNED])
}

/// An attached invocation whose function returned normally and whose last chunks are on their way.
fn draining() -> Invocation {
    after(attached(), [RETURNED])
}

/// A detached run whose function runs a turn on `"one"`, with `"two"` in the queue.
fn in_background() -> Invocation {
    after(in_turn(), [Event::Detach(vec!["two"]), Event::PendingWritten])
}

fn after<const N: usize>(mut machine: Invocation, events: [Happening; N]) -> Invocation {
    for event in events {
        machine.handle(event);
    }
    machine
}

fn start(input: &'static str) -> Order {
    Command::StartTurn {
        input,
        row: TurnRow::Own,
    }
}

fn start_in_background(input: &'static str) -> Order {
    Command::StartTurn {
        input,
        row: TurnRow::Pending,
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
        Command::SuppressWire,
        Command::Resolve(resolution),
        Command::Release,
    ]
}
