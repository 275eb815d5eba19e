//! Small builders that the tests of agents share.

mod faulty_store;
mod fuse;

use everturn_agent::store::{Detail, MemoryStore, Order, Scope, SessionStore, SnapshotQuery};
use everturn_agent::{
    Agent, AgentBuilder, AgentConnection, AgentReply, AgentSession, AgentStreamChunk, CustomState, SessionId,
    Snapshot, Turn, custom_agent,
};
use everturn_ai::{FinishReason, History, Message};
use everturn_core::{Context, Error, HandlerResult, Registry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::faulty_store::{FaultyStore, Held};
pub(crate) use self::fuse::{Fuse, World};

/// A custom state.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Counter {
    pub(crate) counter: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) status: String,
}

/// The user's message.
pub(crate) fn said<S: CustomState>(turn: &Turn<S>) -> String {
    turn.message()
        .map(|message| message.text().into_owned())
        .unwrap_or_default()
}

/// An agent that answers every message with `re: <message>` and fails on `boom`.
pub(crate) fn replying(name: &str) -> AgentBuilder<Value> {
    handling(name, reply)
}

pub(crate) async fn reply(turn: Turn) -> HandlerResult<FinishReason> {
    let text = said(&turn);
    if text == "boom" {
        return Err(Error::unavailable("the oven is cold").into());
    }
    turn.add_message(Message::model(format!("re: {text}")));
    Ok(FinishReason::Stop)
}

/// An agent that runs `handler` on every turn and returns the session's result.
pub(crate) fn handling<S, F, Fut, R>(name: &str, handler: F) -> AgentBuilder<S>
where
    S: CustomState,
    F: Fn(Turn<S>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<R>> + Send + 'static,
    R: Into<everturn_agent::TurnResult> + Send + 'static,
{
    custom_agent(&Registry::new(), name, move |session: AgentSession<S>| {
        let handler = handler.clone();
        async move {
            session.run(handler).await?;
            Ok(session.result())
        }
    })
}

pub(crate) fn texts(history: &History) -> Vec<String> {
    history
        .iter()
        .map(|message| message.text().into_owned())
        .collect()
}

/// Every chunk up to the end of the invocation.
pub(crate) async fn all_chunks<S: CustomState>(connection: &mut AgentConnection<S>) -> Vec<AgentStreamChunk> {
    connection.close();
    let mut chunks = Vec::new();
    while let Some(chunk) = connection.next().await {
        chunks.push(chunk);
    }
    chunks
}

pub(crate) fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap()
}

/// The snapshots of a session with their states, oldest first.
pub(crate) async fn snapshots(store: &dyn SessionStore, session: &SessionId) -> Vec<Snapshot> {
    let mut query = SnapshotQuery::of(session.clone());
    query.order = Order::Oldest;
    query.detail = Detail::Whole;
    let mut snapshots = Vec::new();
    loop {
        let page = store.list(&Scope::default(), &query).await.unwrap();
        snapshots.extend(page.items);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return snapshots,
        }
    }
}

/// An agent of several tenants, and what two of them call with.
pub(crate) fn tenants(store: &MemoryStore) -> (Agent, Context, Context) {
    let tenant = |context: &Context| Scope::new(context.auth().and_then(Value::as_str).unwrap_or("nobody"));
    let agent = replying("chef")
        .store(store.clone())
        .scope(tenant)
        .define()
        .unwrap();
    let of = |name: &str| Context::new().with_value("auth", name);
    (agent, of("ann"), of("bob"))
}

/// A turn of a tenant's.
pub(crate) async fn tell(agent: &Agent, context: &Context, session: &str, text: &str) -> AgentReply {
    let chat = agent.chat().resume(session).context(context.clone());
    chat.run(text).await.unwrap()
}
