//! Generation: the loop that sends a conversation to a model and runs the requested tools, until the model
//! answers.
//!
//! [`Generate`] is the builder. It runs a loop of *rounds*: call the model; if it requests tools, run them
//! concurrently, append their answers to the conversation in the order of the requests, and run the next
//! round inside this one. The action `/util/generate`, which takes everything by name, runs the same loop.
//!
//! - A tool fails: the call fails with `INTERNAL`, [`reason::TOOL_FAILED`](crate::reason::TOOL_FAILED),
//!   unless [`ToolErrors`] returns the error to the model. Of several failures the one of the earliest
//!   request counts, and tools of later requests are dropped.
//! - A tool interrupts: all tools still run. The response is `interrupted` and contains the output of
//!   finished calls.
//! - The model requests tools in too many rounds: `ABORTED`,
//!   [`reason::MAX_ROUNDS_EXCEEDED`](crate::reason::MAX_ROUNDS_EXCEEDED).
//! - The loop fails after a model call: the error contains the finished rounds ([`partial_generation`]).
//! - The model repeats a call ([`with_repeated_calls`]): it gets one warning; then `RESOURCE_EXHAUSTED`,
//!   [`reason::REPEATED_CALL`](crate::reason::REPEATED_CALL).
//! - A limit of the context is reached ([`BudgetGuard`](crate::BudgetGuard)): the call is not made.
//!   `RESOURCE_EXHAUSTED`, [`reason::LIMIT_REACHED`](crate::reason::LIMIT_REACHED).
//! - The provider blocks: `FAILED_PRECONDITION`. [`unusable_response`] returns the response, and
//!   [`Generate::allow_blocked`] avoids the error.
//! - The output does not match its schema: `INTERNAL`, because the caller's request was valid.
//! - The caller does not stream: the model can detect that and need not stream.
//! - An [`EffectJournal`](crate::EffectJournal) is in the context: it records every model and tool call, and
//!   may supply the outcome ([`effect`](crate::effect)).
//!
//! The messages of a shared [`History`](crate::History) stay shared up to the response's request, and no step
//! of a round iterates over them.

mod answer;
mod builder;
mod call;
mod chunk;
mod chunk_index;
mod generated;
mod interrupts;
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

use std::sync::Arc;

use everturn_core::{Action, ActionType, Registry, Result};

pub use self::answer::unusable_response;
pub use self::builder::Generate;
pub use self::chunk::Chunk;
pub use self::generated::Generated;
pub use self::output::{define_format, is_unfit_answer};
pub use self::partial::{GenerateObserver, with_observer};
pub use self::partial::{PartialGeneration, partial_generation};
use self::plan::{FirstSpan, Plan};
pub use self::repetition::with_repeated_calls;
pub use self::stream::GenerateStream;
pub use self::tool_errors::{ToolErrors, is_limit, with_tool_errors};
use crate::{GenerateActionOptions, ModelResponse, ModelResponseChunk};

/// Registers the action `/util/generate`.
///
/// The action looks names up in the registry in which it is registered.
///
/// # Errors
/// `ALREADY_EXISTS` if it is registered already.
pub fn register_generate(registry: &Registry) -> Result<()> {
    // A strong handle would be a cycle, because the registry holds the action.
    let own = registry.downgrade();
    let action: Action<GenerateActionOptions, ModelResponse, ModelResponseChunk> =
        Action::streaming(ActionType::UTIL, "generate", move |options, context, emitter| {
            let registry = own.upgrade();
            async move {
                let registry = registry?;
                let plan = Plan {
                    context: Some(context),
                    emitter,
                    ..Plan::from_options(&registry, options)
                };
                Ok(Box::new(plan).run(FirstSpan::Callers, |_| ()).await?.response)
            }
        });
    registry.register(Arc::new(action))
}
