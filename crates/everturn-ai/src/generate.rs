//! Generation: the loop that sends a conversation to a model and runs the tools it asks for, until the model answers.
//!
//! [`Generate`] is the builder. It runs a loop of *rounds*: ask the model; if it asks for tools, run them all at once,
//! append their answers to the conversation in the order of the requests, and run the next round inside this one. The
//! action `/util/generate`, which takes everything by name, runs the same loop.
//!
//! | situation | what happens |
//! |---|---|
//! | a tool fails | the call fails with `INTERNAL`, [`reason::TOOL_FAILED`](crate::reason::TOOL_FAILED), unless [`ToolErrors`] says that the model is told; of several failures the one of the earliest request counts, and tools of later requests are dropped |
//! | a tool interrupts | all tools still run; the response is `interrupted`, finished calls keep their output in it |
//! | the model wants tools too often | `ABORTED`, [`reason::MAX_ROUNDS_EXCEEDED`](crate::reason::MAX_ROUNDS_EXCEEDED) |
//! | it fails after the model was asked | the error carries the finished rounds: [`partial_generation`] |
//! | the model repeats a call ([`with_repeated_calls`]) | it is told once; then `RESOURCE_EXHAUSTED`, [`reason::REPEATED_CALL`](crate::reason::REPEATED_CALL) |
//! | a limit of the context is reached ([`BudgetGuard`](crate::BudgetGuard)) | the call is not made: `RESOURCE_EXHAUSTED`, [`reason::LIMIT_REACHED`](crate::reason::LIMIT_REACHED) |
//! | the provider blocks | `FAILED_PRECONDITION`; [`unusable_response`] gives the response, [`Generate::allow_blocked`] avoids the error |
//! | the output does not match its schema | `INTERNAL`: the caller did nothing wrong |
//! | nobody asked for a stream | the model sees that and need not stream |
//! | an [`EffectJournal`](crate::EffectJournal) is in the context | it is told of every model and tool call, and may supply the outcome: [`effect`](crate::effect) |
//!
//! The messages of a shared [`History`](crate::History) stay shared up to the response's request, and no step of a
//! round walks them.

mod action;
mod answer;
mod builder;
mod call;
mod chunk;
mod chunk_index;
mod generated;
mod interrupts;
mod observer;
mod output;
mod partial;
mod plan;
mod recorded;
mod repetition;
mod round;
mod stream;
mod tool_calls;
mod tool_errors;
mod tool_table;

pub use self::{
    action::register_generate,
    answer::unusable_response,
    builder::Generate,
    chunk::Chunk,
    generated::Generated,
    observer::{GenerateObserver, with_observer},
    output::{define_format, is_unfit_answer},
    partial::{PartialGeneration, partial_generation},
    repetition::with_repeated_calls,
    stream::GenerateStream,
    tool_errors::{ToolErrors, is_limit, with_tool_errors},
};
