//! Journals: the effects of a turn are recorded before they are used.
//!
//! A turn of an agent with a store may run again: its client retries it, or another worker takes its run
//! over. It then starts from the last committed snapshot with the same input, and everything that it did the
//! first time is known: the model's replies, the results of tools, and the outcomes of
//! [`Turn::effect`](crate::Turn::effect). None of it is paid for or done again.
//!
//! # Which records are written, and when
//!
//! | moment | record |
//! |---|---|
//! | a model's reply requests tools | the reply, before any tool runs |
//! | a tool that is [`Once`](everturn_ai::Replay::Once) is about to run | that it began |
//! | a tool ended | its result, and what it changed in the session, before the model sees it |
//! | any later reply of the same turn | the reply |
//! | the turn is committed, or its snapshot policy takes no snapshot | the journal is dropped |
//! | the turn failed, and trying it again may help | the journal stays |
//! | the turn failed for good | only `Once` tools that ran are kept |
//! | the turn began a `Once` tool and is in progress | at every heartbeat, an empty one |
//!
//! `Once` tools are kept so that a retry, which calls the model again, does not repeat them.
//!
//! A turn whose first reply requests no tools writes nothing. Journals of turns that are never retried are
//! dropped after a while ([`Journaling`]).
//!
//! # The identity of a turn
//!
//! A journal belongs to a session, the snapshot that the turn continues and the length of the conversation at
//! its beginning. A turn is identified by these and its input: a retry has the same. An agent that lets
//! identical turns run side by side ([`Concurrency::Fork`](crate::Concurrency::Fork)) distinguishes them by
//! their calls ([`IdempotencyKey`](crate::IdempotencyKey)); then a client that repeats a call with its key
//! finds the journal, wherever the session has moved to. Calls without a key are distinguished by the
//! snapshots reserved for them; then only a worker that takes over a background run finds the journal.
//!
//! A snapshot from the middle of a turn ([`RoundEnd`](crate::SnapshotEvent::RoundEnd)) names the turn's
//! journal. Resuming it without a message continues that turn and that journal; resuming it with a message
//! begins another turn. A worker that takes over a background run restarts the turn in progress from its
//! beginning, regardless of snapshots in its middle, and replays it.
//!
//! # Turns that were cut short
//!
//! A turn that died or failed may be followed by another input instead of a retry. The new turn continues
//! from the same snapshot, so it has the same journal and finds the calls of the other turn that must not be
//! repeated, or that changed the session. Before it calls the model, it requests these calls once more in a
//! separate message, so that their recorded or reconciled outcomes become part of the conversation, and their
//! changes part of the session. None of them is made again: a call that is found not to have happened is
//! answered with that. A call whose outcome cannot be determined interrupts the turn.
//!
//! A turn that begins elsewhere in the session, or side by side with others, has a separate journal. It takes
//! over calls in the same way from the journals of other turns, but only those whose outcome is unknown, and
//! only from turns that died: a turn that began a `Once` call adds a record to its journal at every
//! [`Heartbeat::interval`](crate::Heartbeat), and counts as dead when nothing was added for
//! [`Heartbeat::expiry`](crate::Heartbeat). A record in the journal of the dead turn excludes it, and other
//! turns that would take over the same calls. Once the turn is committed, another record notes that the calls
//! are taken over; a retry of the dead turn still reconciles them. A turn that calls no model takes over
//! nothing. A journal with an unknown outcome is not swept.
//!
//! # Two workers
//!
//! Records are numbered, and a number is written once. A worker that takes over a turn writes a record before
//! any other action; an earlier worker that was only suspended then fails with `ABORTED`,
//! [`TURN_TAKEN_OVER`], at its next write, which comes before its next action. The same happens to a worker
//! whose turn has been committed by another, or whose background run has ended: every record is written under
//! a guard that is checked against the session in the same step.
//!
//! # Approved calls
//!
//! A snapshot with an open question can be resumed more than once. The record of an approved `Once` call is
//! kept apart from the turn's, under the id of its question and for as long as the session: another
//! resumption finds its outcome there, and does not make the call again.
//!
//! # Requirements of a replay
//!
//! The turn's own code runs again, so it must run the same effects in the same circumstances. A model call is
//! identified by its model, the length of the conversation and its last message; a tool call by the reply it
//! is part of. If no record matches, because the code or a prompt changed meanwhile, the turn continues live;
//! but a `Once` or `Keyed` call of the same tool with the same input still counts as the one that was begun
//! before.
//!
//! Changes that a tool makes to the session (custom state, artifacts, added messages) are made again when its
//! result is replayed. Changes of a call whose process died before it ended are lost; its reconcile function
//! makes them. A tool that rewrites the conversation, or changes the session from a task it spawned without
//! its context, is not followed.

mod approved;
mod cut_short;
mod entry;
mod identity;
mod known_effects;
mod sweep;
mod turn_journal;
mod writer;

pub(crate) use self::identity::{TurnKey, call_mark, journal_key, turn_key};
pub use self::sweep::Journaling;
pub(crate) use self::sweep::Retention;
pub(crate) use self::turn_journal::TurnJournal;
pub(crate) use self::writer::JournalLocation;
pub use crate::store::TURN_TAKEN_OVER;
