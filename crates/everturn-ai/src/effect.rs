//! Effects: the actions of a generation that must not happen, or be paid for, twice.
//!
//! A model call and a tool call are effects. An [`EffectJournal`] in the context ([`with_journal`]) is told of every
//! effect before it begins and of every outcome before it is used. It may know an outcome already, from an attempt that
//! died. The generate loop itself knows nothing of sessions or stores.
//!
//! | when | what the loop calls |
//! |---|---|
//! | before a model is asked | [`asking`](EffectJournal::asking): a known reply is used instead of a call |
//! | a model has given a usable reply | [`replied`](EffectJournal::replied), before any tool runs |
//! | before a tool is called | [`calling`](EffectJournal::calling): a known outcome is used instead of a call |
//! | right before the tool's own code runs | [`started`](EffectJournal::started) |
//! | the tool has answered or interrupted | [`ended`](EffectJournal::ended), before the model sees the answer |
//! | the tool has failed | [`failed`](EffectJournal::failed) |
//!
//! # Where the journal stands
//!
//! Outside all middleware: the journal records the outcomes that the loop uses. So a replay repeats no attempt of a
//! retry, asks no model that a fallback gave up on, and asks no person for a second approval. Only `started` is called
//! from inside, right before the tool's own code, so that a call which middleware held back does not count as begun.
//!
//! A known reply is streamed as one chunk, so that a client which missed the first attempt sees the whole text. A known
//! tool result streams no progress again. Neither makes a span, because nothing ran.
//!
//! A generation that a tool runs has no journal: its effects are part of the tool's.

mod journal;
mod replay;

pub(crate) use self::journal::journal_of;
pub use self::{
    journal::{
        EffectId, EffectJournal, ModelEffect, ToolEffect, ToolOutcome, ToolRecord, with_journal,
        without_journal,
    },
    replay::{Reconciliation, Repeat, Replay},
};
