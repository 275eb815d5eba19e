//! The decisions of one agent invocation: a pure, synchronous state machine.
//!
//! [`Machine::handle`] takes an [`Event`] (something happened) and gives the [`Command`]s that follow from it (something
//! must be done). Nothing here waits, reads a clock, draws a random number or touches a store. One driver executes the
//! commands and reports what came of them; it decides nothing. Inputs (`I`) and errors (`E`) pass through unread.
//!
//! # Phases
//!
//! ```text
//!                    function returned            drained
//!   ┌─► Attached ───────── * ──────────► Draining ───────────────────────────► Released
//!          │   │ client gone, transform failed,  │                               ▲ ▲
//!          │   │ bad input, detach refused       │ detach                        │ │
//!          │   └──────────────► Stopping ────────┼── function returned ───────────┘ │
//!          │ detach                ▲             │                                 │
//!          ▼                       │ pending row │                                 │
//!      Detaching ◄─────────────────┼─────────────┘                                 │
//!          │ └─────────────────────┘ failed                                        │
//!          │ pending row written                                                   │
//!          ▼          function returned              row finalized                 │
//!   ┌─► Background ───────────────────► Finalizing ────────────────────────────────┤
//!  takeover    │ abort, lease lost       ▲ aborted                                 │
//!              └────► WindingDown ───────┴─────── fenced ──────────────────────────┘
//! ```
//!
//! \* Where the end of an invocation may become a row, a function that returned normally goes through `Concluding` until
//! that row is written. It is left as `Attached` is: by a detach to `Detaching`, by everything else to `Stopping`.
//!
//! # What the driver raises
//!
//! Events are handled one at a time, in the order in which they happened. Where several are ready at once the driver
//! takes them in this order: **the client's input, the client's departure, answers to commands, the function**. So a
//! detach that could be read wins over a disconnect that followed it and over a function that finished meanwhile, and
//! a departure that happened wins over the error it causes.
//!
//! | source | events | rule |
//! |---|---|---|
//! | client | [`Input`](Event::Input), [`Detach`](Event::Detach), [`InputClosed`](Event::InputClosed), [`InputRejected`](Event::InputRejected) | read eagerly from the very start, whatever the turn is doing; nothing is read after a detach |
//! | caller | [`ClientGone`](Event::ClientGone) | cancelled, disconnected, or past its deadline; at most once |
//! | function | [`NextInput`](Event::NextInput), [`IterationEnded`](Event::IterationEnded), [`TurnEnded`](Event::TurnEnded), [`Returned`](Event::Returned) | the turn loop pulls; each turn started ends with one `TurnEnded`, also if its future is dropped (a guard raises `Failed`); an `IterationEnded` comes only from the turn that runs, and each is settled once, in order; after `Returned` nothing more |
//! | wire | [`TransformFailed`](Event::TransformFailed) | a stream or state transform failed; that chunk and all later ones are withheld |
//! | store | [`AbortSeen`](Event::AbortSeen), [`LeaseLost`](Event::LeaseLost) | from the status subscription, or from a beat or a record that found the row changed |
//! | timer | [`HeartbeatDue`](Event::HeartbeatDue) | between `StartHeartbeat` and `StopHeartbeat` |
//! | answers | see the commands | exactly one per command that asks for one |
//!
//! `StartTurn` may take its time (another invocation may hold the session), and a function may drop its turn loop while
//! that waits. If nobody waits when the turn could begin, or the function returns before it did, the driver raises
//! [`TurnRefused`](Event::TurnRefused) (before `Returned`), and the input keeps its place. If the function asks again while an
//! earlier request stands or a turn is on its way to it, that is one request: the driver answers the newest.
//!
//! # What a command obliges the driver to do
//!
//! Commands are executed in order, and none blocks the driver: whatever waits (a store, a slow client) runs beside it
//! and reports back. What each one asks for, and its answer, is said at [`Command`].
//!
//! # Races
//!
//! | first | then | what happens |
//! |---|---|---|
//! | detach read | function returns | the detach wins: pending row, finalized at once if the function is done |
//! | function returned, output not yet out | detach read | the same; an input riding on it is discarded, nobody can run it |
//! | detach read | client gone | the work goes on: a detached run has no client |
//! | client gone | detach read | cancelled: the detach is not accepted any more |
//! | turn-end write in flight | detach | the write lands (or fails the turn) first; the pending row chains off it |
//! | detach read | riding input | the wire is silent and the pending row is durable before it runs |
//! | detach read, pending row in flight | turn ends, function asks or returns | no turn row, no `turnEnd`; the next turn, or the final write, waits for the row |
//! | pending row fails | function still runs | work cancelled; failed output once it returned |
//! | detach without a store that can push | turn running | work cancelled; failed output once it returned |
//! | client gone | turn succeeds all the same | its row is still written; the result is an error, not a failed output |
//! | client gone | function fails because of it | rejected with the function's error |
//! | function returned, chunks unread | client gone | rejected: nobody takes the output |
//! | transform fails | function still runs | wire silent, work cancelled; failed output; later transform errors are dropped |
//! | function failed | transform fails on the last chunks | the function's error stays the cause |
//! | function succeeded | transform fails on the last chunks | failed output; rows already written stay |
//! | transform failed | client gone | rejected with the transform's error |
//! | turn-end write in flight | function returns (turn loop dropped) | the write settles, its `turnEnd` is sent, then the output |
//! | turn-end write fails | | the turn fails with the store's error; the function may go on with the next input |
//! | row inside a turn in flight | another round of tools ends (generations side by side) | its row waits for the first and goes on from it |
//! | row inside a turn in flight | turn ends (its generation was dropped) | the row lands first; the turn's row goes on from it |
//! | row inside a turn in flight | function returns | the row lands, `turnEnd` says failed, then the output |
//! | row inside a turn in flight | detach | the row lands first; the pending row goes on from it and says where the turn began, or goes on from the turn's row if the turn ended meanwhile |
//! | row inside a turn in flight | client gone, transform fails | work cancelled at once; the row lands before anything else is written or answered |
//! | row inside a turn fails | | the generation fails with the store's error, and the turn by it |
//! | detached, or work cancelled | round of tools ends | no row; the generation goes on |
//! | row of the end in flight | detach | the row lands or fails; the pending row follows and is finalized at once |
//! | row of the end in flight | client gone, transform fails | the row lands; then the answer |
//! | row of the end fails | | failed output, with the store's error; a detach read before that output leaves a failed row |
//! | function returns | inputs queued | discarded |
//! | turn ended, more inputs queued | function asks | the next turn waits until the row says that the last one is done |
//! | progress being recorded | function drops its loop and returns | the final write decides; a record that lands after it changes nothing |
//! | progress being recorded | abort, lease lost | the function's request is answered with the cancellation |
//! | abort | function returns later, with whatever | the row ends as aborted |
//! | function returned, final write in flight | abort | the store decides: the final write keeps a row that is already aborted |
//! | lease lost (another worker took over) | function returns | nothing is written |
//! | abort | lease lost | nothing is written: the new owner sees the abort |
//! | released | anything | nothing |

mod attached;
mod background;
mod command;
mod concluding;
mod detaching;
mod draining;
mod event;
mod saving;
mod state;
mod stopping;

#[cfg(test)]
mod tests;

pub(crate) use command::{Cause, Command, EndOfInput, Ending, PendingId, Resolution, TurnRow};
pub(crate) use event::{Event, TurnOutcome};
pub(crate) use state::{Machine, StoreSupport};
