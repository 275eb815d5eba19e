//! Context windows: the part of a long conversation that is sent to the model.
//!
//! A session keeps everything. Before each model call a [`Window`] picks the messages that go into the
//! request: the system messages and the prompt, and the latest messages of the conversation. Stored messages
//! are never changed. A window applies inside all middleware, so the generate loop, its journal and its
//! observers see the whole conversation.
//!
//! | guarantee | module |
//! |---|---|
//! | a window begins with a user message and separates no answer from its call | `window/cut.rs` |
//! | the start of the requests is stable until the window is full, then moves by half | `window/cut.rs` |
//! | the cost depends on added messages, not on the length | `window/measure.rs`, `window/view.rs` |
//! | a summary is made once and stored once | `window/summarizer.rs`, `window/summary.rs` |
//! | a request that the provider rejects as too long is cut and retried | `window/ask.rs`, `window/size.rs` |

mod ask;
mod cut;
mod frame;
mod measure;
mod outputs;
mod size;
mod summarizer;
mod summary;
#[cfg(test)]
mod tests;
mod transcript;
mod view;

use std::fmt;
use std::sync::Arc;

use everturn_core::HandlerResult;

pub(crate) use self::ask::{window_of, without_window};
use self::measure::Measure;
use self::size::{Experience, Size};
use self::summarizer::{Summarizer, Workshop};
pub use self::{ask::with_window, summary::Summary};
use crate::{Message, Messages, ModelReference};

/// The default part of a model's size that is left free.
const MARGIN: f64 = 0.15;

/// The choice of the messages that the model sees. Cloning gives another handle to the same window.
///
/// ```
/// use everturn_ai::Window;
///
/// let window = Window::of_model()      // as much as the model takes
///     .margin(0.2)                     // but for a fifth
///     .clear_tool_outputs_after(3)     // outputs of tools, for three rounds at least
///     .summarize_with("small")         // and a summary of the rest, by another model
///     .ahead_of_time();                // which is made before it is needed
/// # let _ = window;
/// ```
#[derive(Debug, Clone)]
#[must_use = "a window does nothing until an agent or a generation is given it"]
pub struct Window {
    policy: Policy,
    shared: Arc<Shared>,
}

#[derive(Debug, Clone)]
struct Policy {
    windowed: Windowed,
    size: Size,
    measure: Measure,
    kept_outputs: Option<usize>,
    summarizer: Option<Summarizer>,
}

/// The state that clones of a window share.
#[derive(Debug, Default)]
struct Shared {
    experience: Experience,
    workshop: Workshop,
}

type WindowFunction = dyn Fn(&Messages, Option<u64>) -> HandlerResult<Messages> + Send + Sync;

#[derive(Clone)]
enum Windowed {
    /// The latest messages.
    Latest,
    /// The messages that a function of the application picks.
    Function(Arc<WindowFunction>),
}

impl fmt::Debug for Windowed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Latest => "Latest",
            Self::Function(_) => "Function",
        })
    }
}

impl Window {
    fn new(tokens: Option<u64>, windowed: Windowed) -> Self {
        Self {
            policy: Policy {
                windowed,
                size: Size {
                    tokens,
                    margin: MARGIN,
                },
                measure: Measure::default(),
                kept_outputs: None,
                summarizer: None,
            },
            shared: Arc::default(),
        }
    }

    /// Creates a window with as many messages as the model accepts
    /// ([`ModelInfo::max_input_tokens`](crate::ModelInfo::max_input_tokens)). It is the default window of
    /// agents.
    ///
    /// If the model does not declare its size, it gets all messages until the provider rejects a request as
    /// too long.
    pub fn of_model() -> Self {
        Self::new(None, Windowed::Latest)
    }

    /// Creates a window with the messages of the last `tokens` tokens, and never more than the model accepts.
    ///
    /// System messages and the prompt are not counted. The messages since the user's last one are always in
    /// the window, whatever their length.
    pub fn last_tokens(tokens: u64) -> Self {
        Self::new(Some(tokens), Windowed::Latest)
    }

    /// Creates a window whose messages a function chooses. The function gets all messages of the request, and
    /// the token limit of the conversation if it is known. It returns the messages for the model.
    ///
    /// The function is called before each model call, and again with a lower limit if the request was too
    /// long. It must not separate the answer of a tool from its call. An error fails the generation.
    ///
    /// ```
    /// use everturn_ai::{Messages, Role, Window};
    ///
    /// // The model sees the system prompt and the user's last message.
    /// let forgetful = Window::function(|messages, _room| {
    ///     let last = messages.rposition(|message| message.role() == Role::User).unwrap_or(0);
    ///     let mut seen: Messages = messages.iter().filter(|message| message.role() == Role::System).cloned().collect();
    ///     seen.append(messages.slice(last..messages.len()));
    ///     Ok(seen)
    /// });
    /// # let _ = forgetful;
    /// ```
    pub fn function(
        function: impl Fn(&Messages, Option<u64>) -> HandlerResult<Messages> + Send + Sync + 'static,
    ) -> Self {
        Self::new(None, Windowed::Function(Arc::new(function)))
    }

    /// Creates a window with all messages, without a limit.
    pub fn everything() -> Self {
        Self::new(
            None,
            Windowed::Function(Arc::new(|messages, _| Ok(messages.clone()))),
        )
    }

    fn change(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    /// Sets the part of the model's size that is left free, for the answer and for estimation errors; 0.15 if
    /// not given. It is clamped to 0 to 0.9.
    pub fn margin(self, part: f64) -> Self {
        let part = if part.is_finite() {
            part.clamp(0.0, 0.9)
        } else {
            MARGIN
        };
        self.change(|policy| policy.size.margin = part)
    }

    /// Sends the outputs of tools to the model for this many rounds, and then a short placeholder.
    ///
    /// Outputs are cleared in steps of that many rounds, so that the start of the requests seldom changes:
    /// between `rounds` and twice as many rounds keep theirs.
    pub fn clear_tool_outputs_after(self, rounds: usize) -> Self {
        self.change(|policy| policy.kept_outputs = Some(rounds))
    }

    /// Adds a summary of the messages outside the window before the others. The model writes it when the
    /// window moves.
    ///
    /// A summary continues the one before it and is stored in the metadata of the next message ([`Summary`]).
    /// If it fails, the turn continues without it, and the next one covers these messages too.
    pub fn summarize_with(self, model: impl Into<ModelReference>) -> Self {
        let model = model.into();
        self.change(|policy| {
            let known = policy.summarizer.take();
            policy.summarizer = Some(Summarizer {
                model,
                instructions: known.as_ref().and_then(|known| known.instructions.clone()),
                ahead: known.is_some_and(|known| known.ahead),
            });
        })
    }

    /// Returns the model that writes the summaries, if there are any.
    pub fn summary_model(&self) -> Option<&ModelReference> {
        self.policy
            .summarizer
            .as_ref()
            .map(|summarizer| &summarizer.model)
    }

    /// Starts summaries in the background when the window is filled to three quarters, so that no turn waits
    /// for one. Without [`Window::summarize_with`] it has no effect.
    pub fn ahead_of_time(self) -> Self {
        self.change(|policy| {
            if let Some(summarizer) = &mut policy.summarizer {
                summarizer.ahead = true;
            }
        })
    }

    /// Replaces the default instructions for summaries. Without [`Window::summarize_with`] it has no effect.
    pub fn summary_instructions(self, instructions: impl Into<Arc<str>>) -> Self {
        self.change(|policy| {
            if let Some(summarizer) = &mut policy.summarizer {
                summarizer.instructions = Some(instructions.into());
            }
        })
    }

    /// Counts the tokens of a message with a function instead of estimating them by its length. Each message
    /// is counted once for as long as the conversation is in memory.
    pub fn count_tokens_with(self, count: impl Fn(&Message) -> u64 + Send + Sync + 'static) -> Self {
        self.change(|policy| policy.measure = Measure::Function(Arc::new(count)))
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::of_model()
    }
}
