//! Tells the session of what a generation has come to.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use everturn_ai::{GenerateObserver, History, Messages, with_observer};
use everturn_core::{Context, Result};

use super::prompt_turn::conversation_so_far;
use crate::{CustomState, Turn};

/// Reports a turn's conversation to its invocation after each round of tools, so that it can be saved before the model
/// sees the answers.
pub(super) struct ConversationObserver<S> {
    turn: Turn<S>,
    /// What the model is asked from. A generation that is not asked from the conversation is none of its business.
    history: Arc<OnceLock<History>>,
}

impl<S: CustomState> ConversationObserver<S> {
    /// The turn's circumstances, in which a generation from `history`, once that is known, is observed if its
    /// invocation keeps rounds of tools.
    pub(super) fn install(turn: &Turn<S>, history: &Arc<OnceLock<History>>, context: Context) -> Context {
        if !turn.outbox().keeps_rounds() {
            return context;
        }
        let observer = Self {
            turn: turn.clone(),
            history: Arc::clone(history),
        };
        with_observer(context, Arc::new(observer))
    }
}

#[async_trait]
impl<S: CustomState> GenerateObserver for ConversationObserver<S> {
    async fn tool_iteration_end(&self, messages: &Messages) -> Result<()> {
        let Some(history) = self.history.get() else {
            return Ok(());
        };
        let conversation = conversation_so_far(&self.turn, history, messages);
        let outbox = self.turn.outbox();
        outbox.round_done(self.turn.turn_index(), conversation).await
    }
}
