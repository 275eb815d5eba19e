//! The finished part of a generation that failed.

use std::error::Error as StdError;
use std::fmt;

use everturn_core::{Context, Error};
use parking_lot::Mutex;

use super::observer::reached;
use super::tool_errors::is_limit;
use crate::middleware::GenerateRound;
use crate::{FinishReason, Messages, ModelResponse, UsageTotal};

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
