//! What happened is written down before it is used.
//!
//! A turn of an agent with a store may be taken up again: its client retries it, or another worker finds it orphaned.
//! It then runs from the last committed snapshot, with the same input, and everything that it did the first time is
//! known: the model's replies, the results of tools, and what [`Turn::effect`](crate::Turn::effect) did. None of it is
//! paid for or done again.
//!
//! # What is written, and when
//!
//! | moment | record |
//! |---|---|
//! | a model's reply asks for tools | the reply, before any tool runs |
//! | a tool that is [`Once`](everturn_ai::Replay::Once) is about to run | that it began |
//! | a tool ended | its result, and what it changed in the session, before the model sees it |
//! | any later reply of the same turn | the reply |
//! | the turn is committed, or its snapshot policy wants no snapshot | the journal is dropped |
//! | the turn failed, and trying it again may help | the journal stays |
//! | the turn failed for good | the journal is dropped; if `Once` tools ran, only they are remembered, so that a retry asks the model afresh and still does not repeat them |
//!
//! A turn whose first reply asks for no tools writes nothing. Journals that nobody came back for are dropped after a
//! while ([`Journaling`]).
//!
//! # Which turn
//!
//! A journal belongs to a session, the snapshot the turn continues from, the length of the conversation at its
//! beginning and the turn's input: a retry has the same. An agent that lets identical turns run side by side
//! ([`Concurrency::Fork`](crate::Concurrency::Fork)) tells them apart by the snapshots reserved for them; then a worker
//! that takes over a background run finds its journal, and a client that merely retries does not.
//!
//! A snapshot from the middle of a turn ([`RoundEnd`](crate::SnapshotEvent::RoundEnd)) names the turn's
//! journal. A client that resumes it without a message goes on with that turn and that journal; with a message it
//! begins another. A worker that takes over a background run begins the turn under way at its beginning again, whatever
//! snapshots it left in its middle, and replays it.
//!
//! # Two workers
//!
//! Records are numbered, and a number is written once. A worker that takes a turn up writes a record before it does
//! anything; one that had the turn before and was only asleep then fails with `ABORTED`, [`TURN_TAKEN_OVER`], when it
//! next wants to write, which is before it next acts. A worker whose turn has been committed by another, or whose
//! background run is over, is refused likewise: every record is written under a guard that looks at the session in the
//! same step.
//!
//! # What must hold for a replay to fit
//!
//! The turn's own code runs again, so it must come to the same effects in the same circumstances. A model call is
//! recognised by its model, the length of the conversation and its last message; a tool call by the reply it is part
//! of. Where nothing fits, because the code or a prompt changed meanwhile, the turn goes on live; but a `Once` or
//! `Keyed` call of the same tool with the same input is still the one that was begun before.
//!
//! Changes that a tool makes to the session (custom state, artifacts, added messages) are made again when its result is
//! replayed. A tool that rewrites the conversation, or changes the session from a task it spawned without its context,
//! is not followed.

mod entry;
mod identity;
mod known_effects;
mod policy;
mod turn_journal;
mod writer;

pub(crate) use self::identity::turn_key;
pub use self::policy::Journaling;
pub(crate) use self::policy::Retention;
pub(crate) use self::turn_journal::TurnJournal;
pub(crate) use self::writer::JournalLocation;
pub use crate::store::TURN_TAKEN_OVER;
