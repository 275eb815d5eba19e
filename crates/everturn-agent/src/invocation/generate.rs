//! Asking a model from a turn: the conversation in the model's request, apart from the prompt around it, and
//! the positions of streamed messages.

use std::future::IntoFuture;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use everturn_ai::history::awaiting;
use everturn_ai::prompt::{PromptPiece, RenderedPrompt, with_prompt_state};
use everturn_ai::{
    Feature, Generate, GenerateObserver, Generated, History, Message, Messages, ModelResponseChunk, Part,
    Role, metadata, with_observer,
};
use everturn_core::{Context, Result, SpanRecorder};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use super::function::Committed;
use super::prompt_turn::remember;
use crate::journal::TurnJournal;
use crate::{CustomState, Turn};

impl<S: CustomState> Turn<S> {
    /// Begins a generation in this turn, with the agent's models and tools and the turn's context.
    pub fn generate(&self) -> TurnGenerate<S> {
        let session = self.session().clone();
        let context = with_prompt_state(self.context().clone(), move || session.custom_json());
        let history = Arc::default();
        let context = ConversationObserver::install(self, &history, false, context);
        let generate = Generate::new(&self.registry()).context(context);
        TurnGenerate {
            turn: self.clone(),
            generate,
            history,
        }
    }
}

/// A generation of a turn. All options of [`Generate`] are reached through [`TurnGenerate::with`].
#[must_use = "a generation does nothing until it is awaited"]
pub struct TurnGenerate<S, T = Value> {
    turn: Turn<S>,
    generate: Generate<T>,
    /// The conversation of the model request; empty until [`TurnGenerate::history`] is called.
    history: Arc<OnceLock<History>>,
}

impl<S: CustomState, T: 'static> TurnGenerate<S, T> {
    /// Generates from the conversation so far, and adds the messages of the model and its tools to it.
    pub fn history(mut self) -> Self {
        let history = self.history.get_or_init(|| self.turn.messages());
        self.generate = self.generate.messages(history);
        self
    }

    /// Streams the model's chunks to the client as they come.
    pub fn stream(self) -> Self {
        let emitter = self.turn.emitter();
        self.with(|generate| generate.emitter(emitter))
    }

    /// Changes the options of the generation.
    pub fn with<U>(self, change: impl FnOnce(Generate<T>) -> Generate<U>) -> TurnGenerate<S, U> {
        TurnGenerate {
            turn: self.turn,
            generate: change(self.generate),
            history: self.history,
        }
    }

    /// Runs the generation.
    ///
    /// # Errors
    /// As [`Generate::run`].
    pub async fn run(self) -> Result<Generated<T>> {
        let reply = self.generate.run().await?;
        if let Some(history) = self.history.get() {
            remember(&self.turn, history, &reply);
        }
        Ok(reply)
    }
}

impl<S: CustomState, T: 'static> IntoFuture for TurnGenerate<S, T> {
    type Output = Result<Generated<T>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Reports the turn's conversation to its invocation, so that it can be saved before the model sees the
/// answers of the tools, and is left if the turn fails.
pub(super) struct ConversationObserver<S> {
    turn: Turn<S>,
    /// The conversation of the model request. A generation without it is not reported.
    history: Arc<OnceLock<History>>,
    /// Whether a turn that fails keeps its finished rounds.
    commits: bool,
}

impl<S: CustomState> ConversationObserver<S> {
    /// Adds an observer to the turn's context if the invocation may save rounds, or `commits` them. The
    /// observer reports generations from `history`, once that is known.
    pub(super) fn install(
        turn: &Turn<S>,
        history: &Arc<OnceLock<History>>,
        commits: bool,
        context: Context,
    ) -> Context {
        if !turn.signals().keeps_rounds() && !commits {
            return context;
        }
        let observer = Self {
            turn: turn.clone(),
            history: Arc::clone(history),
            commits,
        };
        with_observer(context, Arc::new(observer))
    }
}

#[async_trait]
impl<S: CustomState> GenerateObserver for ConversationObserver<S> {
    fn reached(&self, messages: &Messages) {
        let Some(history) = self.history.get().filter(|_| self.commits) else {
            return;
        };
        let journal = TurnJournal::of(self.turn.context(), self.turn.session_id());
        if journal.is_some_and(|journal| !journal.mark()) {
            return;
        }
        self.turn.signals().commit(Committed {
            state: self.turn.session().state(),
            asked: Some((history.clone(), messages.clone())),
        });
    }

    async fn round_end(&self, messages: &Messages) -> Result<()> {
        let Some(history) = self.history.get().filter(|_| self.turn.signals().keeps_rounds()) else {
            return Ok(());
        };
        let conversation = conversation_so_far(&self.turn.messages(), history, messages);
        let signals = self.turn.signals();
        let snapshot = signals.round_done(self.turn.turn_index(), conversation).await?;
        if let Some(snapshot) = snapshot {
            SpanRecorder::current().snapshot_id(snapshot.as_str());
        }
        Ok(())
    }
}

/// Returns the messages of a rendered prompt with the prompt's own marked. The conversation among them stays
/// shared.
pub(super) fn marked(rendered: &RenderedPrompt) -> Messages {
    let mut request = Messages::new();
    for piece in rendered.pieces() {
        match piece {
            PromptPiece::Conversation(messages) => request.append(messages.clone()),
            PromptPiece::Prompt(messages) => {
                request.extend(
                    messages
                        .iter()
                        .map(|message| message.clone().with_metadata_entry(metadata::PROMPT, true)),
                );
            }
        }
    }
    request
}

/// Returns the conversation up to this request, and the messages that other code added to the session
/// meanwhile: `present` are the session's messages, `history` is the conversation of the model request.
pub(super) fn conversation_so_far(present: &History, history: &History, request: &Messages) -> Messages {
    let mut conversation = conversation_of(request, history);
    // If the session's messages were replaced meanwhile, there is no common beginning to append after.
    if present.shared_prefix(history) == history.len() {
        conversation.extend(present.since(history.len()).cloned());
    }
    conversation
}

/// Returns the request's messages without the prompt's: the conversation, tool calls and their answers.
///
/// A piece that is shared with `history` is kept without reading it, so this costs as much as the turn added.
fn conversation_of(request: &Messages, history: &History) -> Messages {
    let mut kept = Messages::new();
    for (messages, is_shared) in request.pieces_shared_with(&Messages::from(history)) {
        if is_shared {
            kept.append(messages);
        } else {
            kept.extend(
                messages
                    .iter()
                    .filter(|message| belongs_to(message, history))
                    .map(|message| without_output_instructions(message, history)),
            );
        }
    }
    kept
}

/// Returns whether a message belongs to the conversation: it is neither the prompt's nor a system message
/// that a middleware added.
fn belongs_to(message: &Message, history: &History) -> bool {
    if message.metadata_entry(metadata::PROMPT).is_some() {
        return false;
    }
    message.role() != Role::System
        || history.stats().messages_with(Feature::System) > 0
            && history.iter().any(|known| known.is_same(message))
}

/// Returns the message without the instructions that the request added to it about the output's form.
fn without_output_instructions(message: &Message, history: &History) -> Message {
    if message.stats().messages_with(Feature::OutputInstructions) == 0 {
        return message.clone();
    }
    let is_own = |part: &&Part| part.purpose() != Some(metadata::PURPOSE_OUTPUT);
    let own: Vec<Part> = message.content().iter().filter(is_own).cloned().collect();
    let own = message.clone().with_content(own);
    // Instructions are added to the latest user message. Returning the conversation's own message keeps it
    // shared.
    let latest = history.iter().rev().find(|known| known.role() == Role::User);
    latest.filter(|latest| **latest == own).cloned().unwrap_or(own)
}

/// Finds the position that the message of each chunk will have in the session, before the message is there.
///
/// The messages of one generation alternate between the model and its tools. The role and the index of a
/// chunk therefore identify its message, even if a model did not stream and the index did not count its
/// message.
#[derive(Clone)]
pub(crate) struct MessagePositions {
    conversation: Arc<dyn Fn() -> History + Send + Sync>,
    current: Arc<Mutex<Option<Current>>>,
}

#[derive(Clone, Copy)]
struct Current {
    position: usize,
    role: Role,
    index: u32,
    /// The number of messages between this one and the next of the generation.
    gap: usize,
}

impl MessagePositions {
    /// Returns the positions of one generation in the conversation that `conversation` returns.
    pub(super) fn new(conversation: impl Fn() -> History + Send + Sync + 'static) -> Self {
        Self {
            conversation: Arc::new(conversation),
            current: Arc::default(),
        }
    }

    /// Returns the position of the message that a chunk is part of.
    pub(super) fn of(&self, chunk: &ModelResponseChunk) -> usize {
        let (role, index) = (chunk.role.unwrap_or(Role::Model), chunk.index.unwrap_or_default());
        let mut current = self.current.lock();
        let (position, gap) = match *current {
            Some(place) if place.index == index && place.role == role => (place.position, place.gap),
            Some(place) if index >= place.index => {
                let step = if place.role == role { 2 } else { 1 };
                (place.position + place.gap + step, 0)
            }
            // The first message of a generation.
            _ => self.first(role),
        };
        *current = Some(Current {
            position,
            role,
            index,
            gap,
        });
        position
    }

    /// Returns the position of a generation's first message, and how many messages come after it before the
    /// next.
    fn first(&self, role: Role) -> (usize, usize) {
        let conversation = (self.conversation)();
        if let Some(asking) = awaiting(&conversation) {
            // Messages that wait for the answers move behind them.
            let waiting = conversation.len() - 1 - asking;
            return match role {
                Role::Tool => (asking + 1, waiting),
                _ => (asking + 2 + waiting, 0),
            };
        }
        // After a model's message come the answers to its tool calls.
        let expected = match conversation.last().map(everturn_ai::Message::role) {
            Some(Role::Model) => Role::Tool,
            _ => Role::Model,
        };
        (conversation.len() + usize::from(role != expected), 0)
    }
}

#[cfg(test)]
mod tests {
    use everturn_ai::{Message, Part, ToolRequest, metadata};
    use serde_json::json;

    use super::*;

    fn positions(conversation: &[Message], chunks: &[(Role, u32)]) -> Vec<usize> {
        let conversation: History = conversation.iter().cloned().collect();
        let positions = MessagePositions::new(move || conversation.clone());
        let chunk = |&(role, index): &(Role, u32)| ModelResponseChunk {
            role: Some(role),
            index: Some(index),
            ..ModelResponseChunk::default()
        };
        chunks.iter().map(|of| positions.of(&chunk(of))).collect()
    }

    #[test]
    fn the_messages_of_a_generation_follow_the_users() {
        let streamed = [
            (Role::Model, 0),
            (Role::Model, 0),
            (Role::Tool, 1),
            (Role::Model, 2),
        ];

        assert_eq!(positions(&[Message::user("hi")], &streamed), [1, 1, 2, 3]);
    }

    #[test]
    fn a_model_that_does_not_stream_has_a_place_too() {
        let streamed = [(Role::Tool, 0), (Role::Tool, 1), (Role::Model, 2)];

        assert_eq!(positions(&[Message::user("hi")], &streamed), [2, 4, 5]);
    }

    #[test]
    fn messages_that_wait_come_between_the_answers_and_the_reply() {
        let asked =
            Part::from(ToolRequest::new("pay", json!({}))).with_metadata_entry(metadata::INTERRUPT, true);
        let conversation = [
            Message::user("hi"),
            Message::model(vec![asked]),
            Message::user("hello?").with_metadata_entry(metadata::WAITING, true),
        ];

        let streamed = [(Role::Tool, 0), (Role::Model, 1), (Role::Tool, 2)];
        assert_eq!(positions(&conversation, &streamed), [2, 4, 5]);
        assert_eq!(positions(&conversation, &[(Role::Model, 0)]), [4]);
    }

    #[test]
    fn answers_come_right_after_the_interrupted_message() {
        let conversation = [Message::user("hi"), Message::model("may I?")];

        assert_eq!(
            positions(&conversation, &[(Role::Tool, 0), (Role::Model, 1)]),
            [2, 3]
        );
        assert_eq!(positions(&conversation, &[(Role::Model, 0)]), [3]);
    }
}
