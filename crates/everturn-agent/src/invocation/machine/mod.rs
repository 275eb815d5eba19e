//! The decisions of one agent invocation: a pure, synchronous state machine.
//!
//! [`Machine::handle`] takes an [`Event`] (something happened) and returns the [`Command`]s that follow from
//! it (something must be done). It does not wait, read a clock, draw random numbers or access a store. One
//! driver executes the commands and reports the results; it decides nothing. Inputs (`I`) and errors (`E`)
//! pass through unchanged. [`TakeoverPoint`] follows the same events and records the state from which a
//! worker would continue a lost run. A test (`tests/enumeration.rs`) explores every reachable state with this
//! code.
//!
//! # Phases
//!
//! ```text
//!                    function returned            drained
//!   ┌─► Attached ───────── * ──────────► Draining ───────────────────────────► Released
//!          │   │ client gone, transform failed,  │                               ▲ ▲
//!          │   │ lock or detach refused          │ detach                        │ │
//!          │   └──────────────► Stopping ────────┼── function returned ───────────┘ │
//!          │ detach                ▲             │                                 │
//!          ▼                       │ pending     │                                 │
//!      Detaching ◄─────────────────┼─────────────┘                                 │
//!          │ └─────────────────────┘ snapshot failed, lock refused                 │
//!          │ pending snapshot written                                              │
//!          ▼          function returned              snapshot finalized            │
//!   ┌─► Background ───────────────────► Finalizing ────────────────────────────────┤
//!  takeover    │ abort, lease lost       ▲ aborted                                 │
//!              └────► WindingDown ───────┴─────── fenced ──────────────────────────┘
//! ```
//!
//! \* Where the end of an invocation may become a snapshot, a function that returned normally goes through
//! `Concluding` until that snapshot is written. Its exits are those of `Attached`: a detach leads to
//! `Detaching`, everything else to `Stopping`.
//!
//! # What the driver raises
//!
//! Events are handled one at a time, in the order in which they happened. If several are ready at once, the
//! driver takes them in this order: **answers that a command has at once, the client's input, the client's
//! departure, other answers to commands, the function**. A detach that could be read therefore wins over a
//! disconnect that followed it and over a function that finished meanwhile, and a departure that happened
//! wins over the error it causes.
//!
//! - **Client**: [`Input`](Event::Input), [`Detach`](Event::Detach) and [`InputClosed`](Event::InputClosed)
//!   are read eagerly from the start, in every state of the turn. Nothing is read after a detach.
//! - **Caller**: [`ClientGone`](Event::ClientGone) is raised at most once: the caller cancelled,
//!   disconnected, or passed its deadline.
//! - **Function**: [`NextInput`](Event::NextInput), [`RoundEnded`](Event::RoundEnded),
//!   [`TurnEnded`](Event::TurnEnded) and [`Returned`](Event::Returned). The turn loop pulls its inputs. Each
//!   turn that was handed over ends with one `TurnEnded`, also if its future is dropped (a guard raises
//!   `Failed`). A `RoundEnded` comes only from the running turn, and each is settled once, in order.
//!   `Returned` is the last event.
//! - **Client stream**: [`TransformFailed`](Event::TransformFailed) reports that a stream or state transform
//!   failed. That chunk and all later ones are withheld.
//! - **Store**: [`AbortSeen`](Event::AbortSeen) and [`LeaseLost`](Event::LeaseLost) come from the status
//!   subscription, or from a heartbeat or a record that found the snapshot changed.
//! - **Timer**: [`HeartbeatDue`](Event::HeartbeatDue) is raised between `StartHeartbeat` and `StopHeartbeat`.
//! - **Answers**: every command that requires an answer gets exactly one; see the commands.
//!
//! The answer about the turn lock may take long, because another invocation may hold the session, and a
//! function may drop its turn loop while its turn waits. If no loop waits when the turn could begin,
//! [`TurnRefused`](Event::TurnRefused) answers, and the input keeps its place. If the function requests a
//! turn while an earlier request is open or a turn is on its way, both are one request: the driver answers
//! the newest.
//!
//! # What a command obliges the driver to do
//!
//! Commands are executed in order, and none blocks the driver: work that waits (for a store, a slow client,
//! the turn lock) runs concurrently and completes with an event. See [`Command`] for the effect and the
//! answer of each.
//!
//! # Races
//!
//! - The turn waits for the lock, then
//!   - the lock is refused: the first turn rejects the invocation with the refusal; a later one is a failed
//!     turn.
//!   - the function returns: the turn leaves the queue, and the input is discarded.
//!   - the client is gone, or a transform fails: the turn leaves the queue, work is cancelled, and the turn
//!     loop ends.
//!   - a detach is read: the run takes the turn's place in the queue. The turn is the run's first, and begins
//!     when the pending snapshot is durable.
//!   - the function drops its turn loop: the lock is released, and the input keeps its place.
//! - A detach was read, then
//!   - the lock is refused: as if the pending snapshot had failed.
//!   - the function returns: the detach wins. The pending snapshot is written, and finalized at once if the
//!     function is done.
//!   - the client is gone: the work continues, because a background run has no client.
//!   - an input rides on the detach: before it runs, the client stream is silent and the pending snapshot is
//!     durable.
//! - A detach was read and the pending snapshot is in flight, then the turn ends, or the function requests a
//!   turn or returns: there is no snapshot of the turn and no `turnEnd`. The next turn, or the final write,
//!   waits for the pending snapshot.
//! - A detach without a store that can push, while a turn runs: work is cancelled; failed output once the
//!   function has returned.
//! - The pending snapshot fails while the function runs: the same.
//! - The client is gone, then
//!   - a detach is read: cancelled; the detach is no longer accepted.
//!   - the turn succeeds: its snapshot is still written; the result is an error, not a failed output.
//!   - the function fails because of it: the invocation is rejected with the function's error.
//! - The function returned, then
//!   - a detach is read before the output is sent: the detach wins. An input riding on it is discarded,
//!     because no function is left to run it.
//!   - the client is gone with chunks unread: the invocation is rejected, because the output has no receiver.
//!   - an abort arrives while the final write is in flight: the store decides; the final write keeps the
//!     status `aborted`.
//! - A transform fails
//!   - while the function runs: the client stream is silent, and work is cancelled; failed output. Later
//!     transform errors are dropped.
//!   - on the last chunks, after the function failed: the function's error stays the cause.
//!   - on the last chunks, after the function succeeded: failed output; snapshots already written stay.
//!   - and then the client is gone: the invocation is rejected with the transform's error.
//! - A turn-end write is in flight, then
//!   - a detach is read: the write ends first, or fails the turn. The pending snapshot becomes its child, and
//!     the lock is kept between the two.
//!   - the function returns (its turn loop is dropped): the write settles, its `turnEnd` is sent, then the
//!     output.
//!   - the write fails: the turn fails with the store's error; the function may continue with the next input.
//! - A turn fails, and failed turns are kept: as with a turn-end write in flight. If the failure cannot be
//!   written, the turn still fails.
//! - A snapshot inside a turn is in flight, then
//!   - another round ends (parallel generations): its snapshot waits for the first and becomes its child.
//!   - the turn ends (its generation was dropped): the snapshot is written first; the turn's becomes its
//!     child.
//!   - the function returns: the snapshot is written, then `turnEnd` with `failed` and the output are sent.
//!   - a detach is read: the snapshot is written first. The pending snapshot becomes its child and holds the
//!     state at which the turn began; if the turn ended meanwhile, it becomes the child of the turn's
//!     snapshot.
//!   - the client is gone, or a transform fails: work is cancelled at once. The snapshot is written before
//!     anything else is written or answered.
//!   - the write fails: the generation fails with the store's error, and so does the turn.
//! - Detached, or work cancelled, then a round ends: no snapshot is taken; the generation continues.
//! - The snapshot of the end is in flight, then
//!   - a detach is read: the write succeeds or fails first; the pending snapshot follows and is finalized at
//!     once.
//!   - the client is gone, or a transform fails: the snapshot is written, then the answer is sent.
//!   - the write fails: failed output, with the store's error. A detach that is read before that output
//!     leaves a failed snapshot.
//! - The function returns with inputs queued: they are discarded.
//! - A turn ended with more inputs queued, then the function requests a turn: the next turn waits until the
//!   pending snapshot records that the last one is done.
//! - Progress is being recorded, then
//!   - the function drops its loop and returns: the final write decides; a record that lands after it changes
//!     nothing.
//!   - an abort arrives, or the lease is lost: the function's request is answered with the cancellation.
//! - An abort arrived, then
//!   - the function returns, with any result: the run ends as aborted.
//!   - the lease is lost: nothing is written; the new owner sees the abort.
//! - The lease is lost (another worker took over), then the function returns: nothing is written.
//! - Released, then any event: nothing.

mod attached;
mod background;
mod command;
mod detaching;
mod ending;
mod event;
mod saving;
mod state;
mod stopping;
mod takeover_point;

#[cfg(test)]
mod tests;

pub(crate) use command::{Cancellation, Cause, Command, EndOfInput, Ending, Resolution, TurnSnapshot};
pub(crate) use event::{Commit, Event, TurnOutcome};
pub(crate) use state::{Machine, StoreSupport};
pub(crate) use takeover_point::TakeoverPoint;
