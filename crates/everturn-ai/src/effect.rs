//! Effects: what a generation does that must not be done, or paid for, twice.
//!
//! A model call and a tool call are effects. Whoever keeps conversations can stand beside the generate loop with an
//! [`EffectJournal`], found in the context ([`with_journal`]): it is told of every effect before it begins and of every
//! outcome before anybody uses it, and it may know an outcome already, from an attempt that died. The loop itself knows
//! nothing of sessions or stores.
//!
//! | when | what the journal is asked or told |
//! |---|---|
//! | a model is about to be asked | [`asking`](EffectJournal::asking): a reply that is known is used in its place |
//! | a model has replied, and the reply is usable | [`replied`](EffectJournal::replied), before any tool runs |
//! | a tool is about to be called | [`calling`](EffectJournal::calling): a known outcome is used in its place |
//! | the tool's own code is about to run | [`started`](EffectJournal::started) |
//! | the tool has answered or interrupted | [`ended`](EffectJournal::ended), before the model sees the answer |
//! | the tool has failed | [`failed`](EffectJournal::failed) |
//!
//! # Where the journal stands
//!
//! Outside all middleware: what the loop used is what is written down. So a replay repeats no attempt of a retry, asks no
//! model that a fallback gave up on, and asks no person again who has approved. Only `started` is told from inside, right
//! before the tool's own code, so that a call which middleware held back does not count as begun.
//!
//! A known reply is streamed as one chunk, so that a client which was not there the first time sees the whole text; a
//! known tool result streams no progress again. Neither leaves a span: nothing ran.
//!
//! What runs inside a tool belongs to the tool: a generation in there has no journal.

mod journal;
mod replay;

pub(crate) use self::journal::journal_of;
pub use self::{
    journal::{
        EffectId, EffectJournal, ModelEffect, ToolEffect, ToolOutcome, ToolRecord, with_journal,
        without_journal,
    },
    replay::{Reconciliation, Replay},
};
