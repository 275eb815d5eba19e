//! Asking a model from a turn.

use std::future::IntoFuture;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use everturn_ai::prompt::with_prompt_state;
use everturn_ai::{Generate, GenerateObserver, Generated, History, Messages, with_observer};
use everturn_core::{Context, Result, SpanRecorder};
use futures::future::BoxFuture;
use serde_json::Value;

use super::conversation::conversation_so_far;
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
