//! The content of new sessions, as an agent is defined with it.

use std::future::Future;
use std::sync::Arc;

use everturn_ai::Message;
use everturn_core::{Context, Error, HandlerResult};
use serde_json::Value;

use super::{AgentBuilder, AgentKind};
use crate::CustomState;
use crate::invocation::MakeCustom;

/// Returns the function that gives every session the same custom state.
pub(super) fn always(custom: Value) -> MakeCustom {
    Arc::new(move |_| {
        let custom = custom.clone();
        Box::pin(async { Ok(custom) })
    })
}

impl<S: CustomState, K: AgentKind<S>, T, O> AgentBuilder<S, K, T, O> {
    /// Adds a message to the beginning of every new session; called again, another one after it.
    ///
    /// The messages are part of the history like any other: the model sees them, snapshots hold them, a
    /// client can read them. A prompt's own messages are not: they are rendered for each turn and never kept.
    ///
    /// ```
    /// # use everturn_agent::agent;
    /// # use everturn_ai::{Message, ModelInfo, ModelResponse, define_model};
    /// # use everturn_core::{Registry, Result};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// # define_model(&registry, "tutor", ModelInfo::default(), |request, _emitter, _context| async move {
    /// #     Ok(ModelResponse::text_of(format!("{} messages", request.messages.len())))
    /// # })?;
    /// let tutor = agent(&registry, "tutor")
    ///     .model("tutor")
    ///     .initial_message(Message::user("I am learning Rust."))
    ///     .initial_message(Message::model("Where would you like to start?"))
    ///     .define()?;
    ///
    /// let mut chat = tutor.chat().open().await?;
    /// assert_eq!(chat.run("With lifetimes.").await?.text(), "3 messages");
    /// assert_eq!(chat.run("And then traits.").await?.text(), "5 messages");
    /// # Ok(()) }
    /// ```
    pub fn initial_message(self, message: impl Into<Message>) -> Self {
        self.initial_messages([message.into()])
    }

    /// Adds messages to the beginning of every new session, each as [`AgentBuilder::initial_message`] does.
    pub fn initial_messages(self, messages: impl IntoIterator<Item = Message>) -> Self {
        self.set(|agent| agent.settings.beginning.messages.extend(messages))
    }

    /// Sets the custom state of new sessions; without it, that is the default of its type. A caller may give
    /// another, see [`ChatBuilder::custom`](crate::ChatBuilder::custom).
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the state is the agent's from here on"
    )]
    pub fn initial_custom(self, custom: S) -> Self {
        let custom = serde_json::to_value(&custom).map_err(Error::from);
        self.set(|agent| agent.options.initial_custom = Some(custom))
    }

    /// Makes the custom state of each new session from its caller's context. Takes the place of
    /// [`AgentBuilder::initial_custom`].
    ///
    /// An error refuses the invocation before anything is written.
    ///
    /// ```
    /// # use everturn_agent::{AgentSession, custom_agent};
    /// # use everturn_core::{Context, Registry, Result};
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
    /// struct Kitchen {
    ///     owner: String,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// let chef = custom_agent(&registry, "chef", |session: AgentSession<Kitchen>| async move {
    ///     session.run(|_turn| async { Ok(()) }).await?;
    ///     Ok(session.result())
    /// })
    /// .initial_custom_with(|caller: Context| async move {
    ///     let owner = caller.auth().and_then(|auth| auth.as_str()).unwrap_or("nobody").to_owned();
    ///     Ok(Kitchen { owner })
    /// })
    /// .define()?;
    ///
    /// let reply = chef.chat().context(Context::new().with_value("auth", "ann")).run("hello").await?;
    ///
    /// assert_eq!(reply.custom()?.map(|kitchen| kitchen.owner).as_deref(), Some("ann"));
    /// # Ok(()) }
    /// ```
    pub fn initial_custom_with<F, Fut>(self, make: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<S>> + Send + 'static,
    {
        let make: MakeCustom = Arc::new(move |context| {
            let making = make(context);
            Box::pin(async move { Ok(serde_json::to_value(making.await?)?) })
        });
        self.set(|agent| {
            agent.options.initial_custom = None;
            agent.settings.beginning.custom = Some(make);
        })
    }
}
