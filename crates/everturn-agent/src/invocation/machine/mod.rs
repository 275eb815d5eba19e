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
//! | source | events | rule |
//! |---|---|---|
//! | client | [`Input`](Event::Input), [`Detach`](Event::Detach), [`InputClosed`](Event::InputClosed) | read eagerly from the start, in every state of the turn; nothing is read after a detach |
//! | caller | [`ClientGone`](Event::ClientGone) | cancelled, disconnected, or past its deadline; at most once |
//! | function | [`NextInput`](Event::NextInput), [`RoundEnded`](Event::RoundEnded), [`TurnEnded`](Event::TurnEnded), [`Returned`](Event::Returned) | the turn loop pulls; each turn that was handed over ends with one `TurnEnded`, also if its future is dropped (a guard raises `Failed`); a `RoundEnded` comes only from the turn that runs, and each is settled once, in order; after `Returned` nothing more |
//! | client stream | [`TransformFailed`](Event::TransformFailed) | a stream or state transform failed; that chunk and all later ones are withheld |
//! | store | [`AbortSeen`](Event::AbortSeen), [`LeaseLost`](Event::LeaseLost) | from the status subscription, or from a beat or a record that found the snapshot changed |
//! | timer | [`HeartbeatDue`](Event::HeartbeatDue) | between `StartHeartbeat` and `StopHeartbeat` |
//! | answers | see the commands | exactly one per command that requires one |
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
//! | first | then | what happens |
//! |---|---|---|
//! | turn waits for the lock | lock refused | the first turn rejects the invocation with the refusal; a later one is a failed turn |
//! | turn waits for the lock | function returns | out of the queue; the input is discarded |
//! | turn waits for the lock | client gone, transform fails | out of the queue; work cancelled, and the turn loop ends with it |
//! | turn waits for the lock | detach | the run takes the turn's place in the queue; the turn is its first, and begins when the pending snapshot is durable |
//! | turn waits for the lock | function drops its turn loop | the lock is given back, and the input keeps its place |
//! | detach read | lock refused | as if the pending snapshot had failed |
//! | detach read | function returns | the detach wins: pending snapshot, finalized at once if the function is done |
//! | function returned, output not yet out | detach read | the same; an input riding on it is discarded, because no function is left to run it |
//! | detach read | client gone | the work continues: a background run has no client |
//! | client gone | detach read | cancelled: the detach is no longer accepted |
//! | turn-end write in flight | detach | the write is done (or fails the turn) first; the pending snapshot becomes its child, and the lock is kept between the two |
//! | detach read | riding input | the client stream is silent and the pending snapshot is durable before it runs |
//! | detach read, pending snapshot in flight | turn ends, function requests a turn or returns | no snapshot of the turn, no `turnEnd`; the next turn, or the final write, waits for the pending snapshot |
//! | pending snapshot fails | function still runs | work cancelled; failed output once it returned |
//! | detach without a store that can push | turn running | work cancelled; failed output once it returned |
//! | client gone | turn succeeds | its snapshot is still written; the result is an error, not a failed output |
//! | client gone | function fails because of it | rejected with the function's error |
//! | function returned, chunks unread | client gone | rejected: the output has no receiver |
//! | transform fails | function still runs | client stream silent, work cancelled; failed output; later transform errors are dropped |
//! | function failed | transform fails on the last chunks | the function's error stays the cause |
//! | function succeeded | transform fails on the last chunks | failed output; snapshots already written stay |
//! | transform failed | client gone | rejected with the transform's error |
//! | turn-end write in flight | function returns (turn loop dropped) | the write settles, its `turnEnd` is sent, then the output |
//! | turn fails, and failed turns are kept | anything | as with a turn-end write in flight; if the failure cannot be written, the turn still fails |
//! | turn-end write fails | | the turn fails with the store's error; the function may continue with the next input |
//! | snapshot inside a turn in flight | another round ends (generations side by side) | its snapshot waits for the first and becomes its child |
//! | snapshot inside a turn in flight | turn ends (its generation was dropped) | that snapshot first; the turn's becomes its child |
//! | snapshot inside a turn in flight | function returns | the snapshot is written, `turnEnd` with `failed`, then the output |
//! | snapshot inside a turn in flight | detach | that snapshot first; the pending snapshot becomes its child and holds the state at which the turn began, or becomes the child of the turn's snapshot if the turn ended meanwhile |
//! | snapshot inside a turn in flight | client gone, transform fails | work cancelled at once; the snapshot is written before anything else is written or answered |
//! | snapshot inside a turn fails | | the generation fails with the store's error, and the turn by it |
//! | detached, or work cancelled | round ends | no snapshot; the generation continues |
//! | snapshot of the end in flight | detach | it is written or fails; the pending snapshot follows and is finalized at once |
//! | snapshot of the end in flight | client gone, transform fails | it is written; then the answer |
//! | snapshot of the end fails | | failed output, with the store's error; a detach read before that output leaves a failed snapshot |
//! | function returns | inputs queued | discarded |
//! | turn ended, more inputs queued | function requests a turn | the next turn waits until the pending snapshot records that the last one is done |
//! | progress being recorded | function drops its loop and returns | the final write decides; a record that lands after it changes nothing |
//! | progress being recorded | abort, lease lost | the function's request is answered with the cancellation |
//! | abort | function returns later, with any result | the run ends as aborted |
//! | function returned, final write in flight | abort | the store decides: the final write keeps the status `aborted` |
//! | lease lost (another worker took over) | function returns | nothing is written |
//! | abort | lease lost | nothing is written: the new owner sees the abort |
//! | released | anything | nothing |

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
