//! Asking a model from a turn of one's own.

use std::future::IntoFuture;
use std::sync::{Arc, OnceLock};

use everturn_ai::prompt::with_prompt_state;
use everturn_ai::{Generate, Generated, History};
use everturn_core::Result;
use futures::future::BoxFuture;
use serde_json::Value;

use super::observer::ConversationObserver;
use super::prompt_turn::remember;
use crate::{CustomState, Turn};

impl<S: CustomState> Turn<S> {
    /// A generation in this turn: with the agent's models and tools, and this turn's circumstances.
    pub fn generate(&self) -> TurnGenerate<S> {
        let session = self.session().clone();
        let context = with_prompt_state(self.context().clone(), move || session.custom_json());
        let history = Arc::default();
        let context = ConversationObserver::install(self, &history, context);
        let generate = Generate::new(&self.registry()).context(context);
        TurnGenerate {
            turn: self.clone(),
            generate,
            history,
        }
    }
}

/// A generation that a turn asks for. Everything of [`Generate`] is reached through [`TurnGenerate::with`].
#[must_use = "a generation does nothing until it is awaited"]
pub struct TurnGenerate<S, T = Value> {
    turn: Turn<S>,
    generate: Generate<T>,
    /// What the model is asked from, if that is the conversation.
    history: Arc<OnceLock<History>>,
}

impl<S: CustomState, T: 'static> TurnGenerate<S, T> {
    /// Generates from the conversation so far, and adds to it what the model and its tools say.
    pub fn history(mut self) -> Self {
        let history = self.history.get_or_init(|| self.turn.messages());
        self.generate = self.generate.messages(history);
        self
    }

    /// Streams chunks to the client as they come.
    pub fn stream(self) -> Self {
        let emitter = self.turn.emitter();
        self.with(|generate| generate.emitter(emitter))
    }

    /// Says more about the generation.
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
