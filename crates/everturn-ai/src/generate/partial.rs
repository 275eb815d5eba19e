//! The finished part of a generation that failed.
//!
//! An observer sees the progress of the loop, for the owner of the conversation. The loop does not depend on
//! sessions: it finds the observer in its context, and waits for it at the end of a round. A snapshot that
//! the observer takes there is durable before the model sees the answers of the tools.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{Context, Error, Result};
use parking_lot::Mutex;

use super::tool_errors::is_limit;
use crate::{FinishReason, GenerateRound, Messages, ModelResponse, UsageTotal};

/// The finished part of a generation that failed. The error contains it: see [`partial_generation`].
///
/// A generation from these messages repeats no tool that had answered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PartialGeneration {
    /// The request and all finished rounds: each message of the model with the answers of all its tools.
    pub messages: Messages,
    /// [`FinishReason::Aborted`] if the caller or a limit stopped the generation, otherwise
    /// [`FinishReason::Failed`].
    pub finish_reason: FinishReason,
    /// The usage of the model calls that were answered.
    pub usage: UsageTotal,
}

/// Returns the finished part of a generation from its error; `None` if it failed before the first model call.
pub fn partial_generation(error: &Error) -> Option<&PartialGeneration> {
    error.find_source::<Carrier>()?.partial.as_ref()
}

/// The progress of a generation.
#[derive(Default)]
pub(super) struct Progress(Mutex<Option<(Messages, UsageTotal)>>);

impl Progress {
    /// Records a point at which the conversation can be continued: before a model call, or when all tools
    /// have answered.
    pub(super) fn reach(&self, round: &GenerateRound) {
        let messages = &round.request.messages;
        self.change(|progress| match progress {
            Some((reached, _)) => *reached = messages.clone(),
            None => *progress = Some((messages.clone(), UsageTotal::default())),
        });
        reached(&round.context, messages);
    }

    pub(super) fn count(&self, response: &ModelResponse) {
        self.change(|progress| {
            if let Some((_, used)) = progress {
                used.model_calls += 1;
                if let Some(usage) = &response.usage {
                    used.add_tokens(usage);
                }
            }
        });
    }

    /// Returns the error of the generation with the finished part.
    pub(super) fn attach_to(&self, error: Error, context: &Context) -> Error {
        let is_stopped = context.is_over() || is_limit(&error);
        let finish_reason = if is_stopped {
            FinishReason::Aborted
        } else {
            FinishReason::Failed
        };
        let reached = self.change(Option::take);
        let partial = reached.map(|(messages, usage)| PartialGeneration {
            messages,
            finish_reason,
            usage,
        });
        let carrier = Carrier {
            partial,
            failure: error.clone(),
        };
        error.with_source(carrier)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Option<(Messages, UsageTotal)>) -> T) -> T {
        change(&mut self.0.lock())
    }
}

/// Holds the partial generation among the causes of an error. It adds nothing to the error's text.
#[derive(Debug)]
struct Carrier {
    partial: Option<PartialGeneration>,
    failure: Error,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.failure.message())
    }
}

impl StdError for Carrier {
    // The causes of the failure and not the failure itself, which is the error that contains this one.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.failure.source()
    }
}

/// Observes the progress of generations that run in a context. Generations inside tools are other
/// conversations and are not observed.
#[async_trait]
pub trait GenerateObserver: Send + Sync + 'static {
    /// Called whenever the conversation can be continued from here: before each model call, and when all
    /// tools of a round have answered. `messages` is the whole conversation, without the requested answer.
    fn reached(&self, messages: &Messages) {
        let _ = messages;
    }

    /// Called when all tools of a round have answered, before the model sees the answers.
    ///
    /// `messages` is the whole conversation, answers included. An error fails the generation.
    async fn round_end(&self, messages: &Messages) -> Result<()> {
        let _ = messages;
        Ok(())
    }
}

struct Observer(Option<Arc<dyn GenerateObserver>>);

/// Returns the context with `observer`, which observes the generations that run in it.
pub fn with_observer(context: Context, observer: Arc<dyn GenerateObserver>) -> Context {
    context.with_extension(Arc::new(Observer(Some(observer))))
}

/// Returns the context without an observer.
pub(super) fn unobserved(context: Context) -> Context {
    match context.extension::<Observer>() {
        Some(observer) if observer.0.is_some() => context.with_extension(Arc::new(Observer(None))),
        _ => context,
    }
}

pub(super) fn reached(context: &Context, messages: &Messages) {
    if let Some(Observer(Some(observer))) = context.extension::<Observer>().as_deref() {
        observer.reached(messages);
    }
}

pub(super) async fn round_end(context: &Context, messages: &Messages) -> Result<()> {
    match context.extension::<Observer>().as_deref() {
        Some(Observer(Some(observer))) => observer.round_end(messages).await,
        _ => Ok(()),
    }
}
