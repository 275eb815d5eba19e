//! Calling a model through a window.

use std::sync::Arc;

use everturn_core::{Context, Error, Result};

use super::frame::{Frame, Summaries, frame};
use super::size::{answer_tokens, fixed_tokens};
use super::view::View;
use super::{Window, Windowed};
use crate::model::ModelHandle;
use crate::{ModelCall, ModelRequest, ModelResponse, reason};

/// The number of attempts with a request that is too long.
const MAX_ATTEMPTS: u32 = 4;

/// From this attempt on, only the last round keeps the outputs of its tools.
const CLEARING_ATTEMPT: u32 = 2;

struct Chosen(Option<Window>);

/// Returns the context with a window for the generations that run in it. A window of the generation itself
/// takes precedence.
pub fn with_window(context: Context, window: Window) -> Context {
    context.with_extension(Arc::new(Chosen(Some(window))))
}

/// Returns the context without a window, because generations inside tools are other conversations.
pub(crate) fn without_window(context: Context) -> Context {
    match context.extension::<Chosen>() {
        Some(chosen) if chosen.0.is_some() => context.with_extension(Arc::new(Chosen(None))),
        _ => context,
    }
}

/// Returns the window of a context for the generations in it.
pub(crate) fn window_of(context: &Context) -> Option<Window> {
    context.extension::<Chosen>().and_then(|chosen| chosen.0.clone())
}

impl Window {
    /// Calls the model with the messages that fit, and with fewer if it rejects them as too long.
    pub(crate) async fn ask(&self, model: &ModelHandle, asked: Box<ModelCall>) -> Result<ModelResponse> {
        let mut attempt = 0;
        let mut previous = None;
        loop {
            let Frame {
                messages,
                tokens,
                ready,
            } = self.frame(model, &asked, attempt).await?;
            if let Some((sent, error)) = previous.take()
                && tokens >= sent
            {
                // Only outputs of tools can still be removed.
                if attempt >= CLEARING_ATTEMPT {
                    return Err(error);
                }
                attempt = CLEARING_ATTEMPT;
                previous = Some((sent, error));
                continue;
            }
            if attempt > 0 {
                tracing::warn!(
                    model = asked.model,
                    tokens,
                    "the request was too long: a smaller one is tried"
                );
            }
            let estimated =
                self.policy.measure.before(&messages, messages.len()).tokens + fixed_tokens(&asked.request);
            let request = Box::new(ModelRequest {
                messages,
                ..asked.request.clone()
            });
            let answered = model
                .call(request, asked.emitter.clone(), asked.context.clone())
                .await;
            match answered {
                Ok(mut response) => {
                    let counted = response.usage.as_ref().and_then(|usage| usage.input_tokens);
                    self.shared.experience.counted(&asked.model, estimated, counted);
                    if let Some(summary) = ready {
                        response.message = response.message.map(|message| summary.stored_on(message));
                    }
                    return Ok(response);
                }
                Err(error) if error.is(reason::REQUEST_TOO_LONG) && attempt + 1 < MAX_ATTEMPTS => {
                    self.shared.experience.too_long(&asked.model, tokens);
                    attempt += 1;
                    previous = Some((tokens, error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn frame(&self, model: &ModelHandle, asked: &ModelCall, attempt: u32) -> Result<Frame> {
        let messages = &asked.request.messages;
        let clears = self.policy.kept_outputs;
        let view = View::new(messages, &self.policy.measure, clears.is_none());
        let fixed = view.pinned_tokens() + fixed_tokens(&asked.request) + answer_tokens(&asked.request);
        let declared = model.max_input_tokens();
        let experience = &self.shared.experience;
        let room = self.policy.size.room(declared, fixed, experience, &asked.model);
        match &self.policy.windowed {
            Windowed::Function(function) => {
                let messages =
                    function(messages, room).map_err(|error| Error::from(error).context("window"))?;
                Ok(Frame {
                    tokens: view.tokens_of(&messages),
                    messages,
                    ready: None,
                })
            }
            Windowed::Latest => {
                // A quarter is kept for the outputs that are not cleared yet.
                let room = room.map(|room| if clears.is_some() { room - room / 4 } else { room });
                let kept = if attempt >= CLEARING_ATTEMPT {
                    Some(1)
                } else {
                    clears
                };
                let summaries = self.policy.summarizer.as_ref().map(|summarizer| Summaries {
                    summarizer,
                    workshop: &self.shared.workshop,
                    registry: &asked.registry,
                    context: &asked.context,
                });
                Ok(frame(&view, room, kept, summaries).await)
            }
        }
    }
}
