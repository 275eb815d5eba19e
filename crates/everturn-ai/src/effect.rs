//! Effects: the actions of a generation that must not happen, or be paid for, twice.
//!
//! A model call and a tool call are effects. An [`EffectJournal`] in the context ([`with_journal`]) is called
//! before every effect and with every outcome before it is used. It may already have an outcome, from an
//! attempt that died. The generate loop itself does not depend on sessions or stores.
//!
//! | when | what the loop calls |
//! |---|---|
//! | before a model call | [`asking`](EffectJournal::asking): a recorded reply is used instead of a call |
//! | after a usable reply of a model | [`replied`](EffectJournal::replied), before any tool runs |
//! | before a tool call | [`calling`](EffectJournal::calling): a recorded outcome is used instead of a call |
//! | right before the tool's own code runs | [`started`](EffectJournal::started) |
//! | the tool has answered or interrupted | [`ended`](EffectJournal::ended), before the model receives it |
//! | the tool has failed | [`failed`](EffectJournal::failed) |
//!
//! # Position of the journal
//!
//! The journal is outside all middleware and records the outcomes that the loop uses. So a replay repeats no
//! attempt of a retry, calls no model that a fallback gave up on, and asks no person for a second approval.
//! Only `started` is called from inside, right before the tool's own code, so that a call which middleware
//! blocked does not count as started.
//!
//! A recorded reply is streamed as one chunk, so that a client which missed the first attempt sees the whole
//! text. A recorded tool result streams no progress again. Neither creates a span, because nothing ran.
//!
//! A generation that a tool runs has no journal, because its effects are part of the tool's.

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
