//! The messages that are sent to the model.

use std::sync::Arc;

use everturn_core::{Context, Registry};

use super::cut;
use super::outputs::{cleared, without_outputs};
use super::summarizer::{Making, Material, Summarizer, Workshop};
use super::summary::{Stored, Summary, newest};
use super::transcript::transcript;
use super::view::View;
use crate::{Message, Messages};

/// A summary is started when the window is filled to this part, in quarters.
const AHEAD_QUARTERS: u64 = 3;

/// The bytes of a conversation's text that are summarised at once, for each token of the room.
const MATERIAL_BYTES: u64 = 8;

/// The messages for the model, and the summary that the conversation is to keep.
pub(super) struct Frame {
    pub(super) messages: Messages,
    /// The estimated tokens of the conversation in it.
    pub(super) tokens: u64,
    pub(super) ready: Option<Summary>,
}

/// The start of the window, and the summary of the messages before it.
struct Beginning {
    at: usize,
    summary: Option<Arc<str>>,
    ready: Option<Summary>,
}

/// The summaries of a window, and the means to create them.
pub(super) struct Summaries<'a> {
    pub(super) summarizer: &'a Summarizer,
    pub(super) workshop: &'a Workshop,
    pub(super) registry: &'a Registry,
    pub(super) context: &'a Context,
}

/// Returns the messages that fit into the token limit: all of them if there is no limit.
///
/// `kept_outputs` is the number of rounds that keep the outputs of their tools.
pub(super) async fn frame(
    view: &View<'_>,
    room: Option<u64>,
    kept_outputs: Option<usize>,
    summaries: Option<Summaries<'_>>,
) -> Frame {
    let beginning = match (room, summaries) {
        (None, _) => Beginning::cut(0),
        (Some(room), None) => Beginning::cut(cut::start(view, 0, room)),
        // Boxed, because it is large and few windows have summaries.
        (Some(room), Some(summaries)) => Box::pin(summaries.beginning(view, room)).await,
    };
    let messages = assembled(view, &beginning, kept_outputs);
    Frame {
        tokens: view.tokens_of(&messages),
        messages,
        ready: beginning.ready,
    }
}

/// Returns the pinned messages, the summary and the conversation from the start of the window.
fn assembled(view: &View<'_>, beginning: &Beginning, kept_outputs: Option<usize>) -> Messages {
    let start = beginning.at;
    let cleared = kept_outputs.map_or_else(Vec::new, |kept| cleared(view, start, kept));
    if start == 0 && cleared.is_empty() {
        return view.messages.clone();
    }
    let mut messages = Messages::new();
    for index in view.pinned_before(start) {
        messages.append(view.messages.slice(index..index + 1));
    }
    let mut next = start;
    if let (Some(summary), Some(first)) = (&beginning.summary, view.messages.get(start)) {
        // Added to the user's message, because a separate one would be a second user message in a row.
        let mut content = vec![Summary::part(summary)];
        content.extend(first.content().iter().cloned());
        messages.push(first.clone().with_content(content));
        next += 1;
    }
    for index in cleared {
        messages.append(view.messages.slice(next..index));
        messages.extend(view.messages.get(index).map(without_outputs));
        next = index + 1;
    }
    messages.append(view.messages.slice(next..view.len()));
    messages
}

impl Beginning {
    fn cut(at: usize) -> Self {
        Self {
            at,
            summary: None,
            ready: None,
        }
    }
}

/// A position from which the window may continue.
#[derive(Default)]
struct Anchor {
    at: usize,
    summary: Option<Arc<str>>,
}

impl From<Stored> for Anchor {
    fn from(stored: Stored) -> Self {
        Self {
            at: stored.at,
            summary: Some(stored.text.into()),
        }
    }
}

impl Anchor {
    /// Returns the tokens that the summary leaves.
    fn room(&self, room: u64) -> u64 {
        let text = self.summary.as_deref().map(Message::user);
        let summary = text.map_or(0, |message| message.stats().tokens);
        room.saturating_sub(summary).max(room / 4).max(1)
    }
}

impl Summaries<'_> {
    async fn beginning(&self, view: &View<'_>, room: u64) -> Beginning {
        let stored = newest(view);
        let mut anchors = Vec::new();
        if stored.len() < 2 {
            anchors.push(Anchor::default());
        }
        anchors.extend(stored.into_iter().map(Anchor::from));
        // The older one as long as the window is not full, so that a summary made ahead changes nothing yet.
        let fits = |anchor: &Anchor| view.tokens_from(anchor.at) <= anchor.room(room);
        let newest = anchors.len() - 1;
        let current = anchors.iter().position(fits);
        let anchor = anchors.swap_remove(current.unwrap_or(newest));
        if current.is_none() {
            return self.moved(view, anchor, room).await;
        }
        Beginning {
            ready: if current == Some(newest) {
                self.ahead(view, &anchor, room)
            } else {
                None
            },
            at: anchor.at,
            summary: anchor.summary,
        }
    }

    /// Moves the window, with a summary of the messages that it leaves out.
    async fn moved(&self, view: &View<'_>, anchor: Anchor, room: u64) -> Beginning {
        let at = cut::start(view, anchor.at, anchor.room(room));
        if at == anchor.at {
            return Beginning {
                at,
                summary: anchor.summary,
                ready: None,
            };
        }
        match self.making(view, &anchor, at, room).await {
            Some(text) => Beginning {
                at,
                ready: Some(self.summary(view, at, &text)),
                summary: Some(text),
            },
            // The next move summarises these messages too.
            None => Beginning {
                at,
                summary: anchor.summary,
                ready: None,
            },
        }
    }

    /// Starts the summary of the next move if the window is nearly full; returns it once it is available.
    fn ahead(&self, view: &View<'_>, anchor: &Anchor, room: u64) -> Option<Summary> {
        let own = anchor.room(room);
        if !self.summarizer.ahead || view.tokens_from(anchor.at) * 4 <= own * AHEAD_QUARTERS {
            return None;
        }
        let goal = view.tokens_before(anchor.at) + (own / 2).max(1);
        let at = cut::following(view, anchor.at, goal)?;
        let text = self.making(view, anchor, at, room).peek()?.clone()?;
        Some(self.summary(view, at, &text))
    }

    fn making(&self, view: &View<'_>, anchor: &Anchor, at: usize, room: u64) -> Making {
        let max_bytes = usize::try_from(room * MATERIAL_BYTES).unwrap_or(usize::MAX);
        let material = Material {
            earlier: anchor.summary.as_deref(),
            transcript: transcript(view.conversation(anchor.at, at), max_bytes),
            max_words: (room / 10).clamp(50, 600),
        };
        self.workshop
            .make(self.summarizer, &material, self.registry, self.context)
    }

    fn summary(&self, view: &View<'_>, at: usize, text: &str) -> Summary {
        Summary {
            up_to: view.conversation_len_before(at),
            characters: view.characters_before(at),
            model: self.summarizer.model.name.clone(),
            text: text.to_owned(),
        }
    }
}
