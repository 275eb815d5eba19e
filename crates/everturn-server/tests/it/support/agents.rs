//! Agents to talk to.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_agent::{Agent, AgentBuilder, AgentSession, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_core::{Error, Registry};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// An agent that streams the message back, with a store if one is given.
pub(crate) fn parrot(registry: &Registry, store: Option<Arc<MemoryStore>>) -> Agent {
    parrot_in(registry, store.map(|store| store as Arc<dyn SessionStore>))
}

/// The same, with any store.
pub(crate) fn parrot_in(registry: &Registry, store: Option<Arc<dyn SessionStore>>) -> Agent {
    let builder = custom_agent(registry, "parrot", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                let heard = turn.message().map(|message| message.text().into_owned());
                let heard = heard.unwrap_or_default();
                if heard == "fail" {
                    return Err(Error::internal("the secret is 42").into());
                }
                for word in heard.split_inclusive(' ') {
                    turn.send_chunk(word).await?;
                }
                turn.add_message(Message::model(heard));
                Ok(FinishReason::Stop)
            })
            .await?;
        Ok(session.result())
    });
    match store {
        Some(store) => builder.store(store).define().unwrap(),
        None => builder.define().unwrap(),
    }
}

/// An agent whose turns say `waiting`, wait until the token is cancelled and then answer.
pub(crate) fn waiting(
    registry: &Registry,
    name: &str,
    gate: &CancellationToken,
    answer: &'static str,
) -> AgentBuilder<Value> {
    let gate = gate.clone();
    custom_agent(registry, name, move |session: AgentSession| {
        let gate = gate.clone();
        async move {
            session
                .run(move |turn| {
                    let gate = gate.clone();
                    async move {
                        turn.send_chunk("waiting").await?;
                        gate.cancelled().await;
                        turn.add_message(Message::model(answer));
                        Ok(FinishReason::Stop)
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
}

/// An agent that [waits](waiting) and is then done.
pub(crate) fn patient(
    registry: &Registry,
    store: Option<Arc<MemoryStore>>,
    gate: &CancellationToken,
) -> Agent {
    let builder = waiting(registry, "patient", gate, "done").cancellation_grace(Duration::from_millis(10));
    match store {
        Some(store) => builder.store(store).define().unwrap(),
        None => builder.define().unwrap(),
    }
}

/// A user's message.
pub(crate) fn says(text: &str) -> Value {
    json!({"data": {"message": {"role": "user", "content": [{"text": text}]}}})
}

/// A user's message for a background run.
pub(crate) fn detaches(text: &str) -> Value {
    let mut body = says(text);
    body["data"]["detach"] = true.into();
    body
}

/// A user's message in a conversation.
pub(crate) fn says_in(text: &str, init: &Value) -> Value {
    let mut body = says(text);
    body["init"] = init.clone();
    body
}
