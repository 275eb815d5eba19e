//! An Everturn server with an agent and a flow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentReply, AgentSession, Artifact, Chat, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_core::{Emitter, Error, Exposure, Registry, Result};
use everturn_server::Server;
use everturn_testkit::in_time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Kitchen {
    pub(crate) turns: u32,
}

/// A server that ends with the test.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    task: JoinHandle<Result<()>>,
    /// Notified when a turn that waits has started.
    pub(crate) begun: Arc<Notify>,
    /// Notified when such a turn was cancelled.
    pub(crate) stopped: Arc<Notify>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs a turn and returns its streamed text, the last streamed state, and its output.
pub(crate) async fn streamed_turn(
    chat: &mut Chat<Kitchen>,
    text: &str,
) -> (String, Option<Kitchen>, AgentReply<Kitchen>) {
    let mut turn = chat.send(text).await.unwrap();
    let (mut text, mut custom) = (String::new(), None);
    while let Some(chunk) = turn.next().await {
        let chunk = chunk.unwrap();
        text.push_str(&chunk.text());
        custom = chunk.custom().unwrap();
    }
    (text, custom, turn.output().await.unwrap())
}

fn define(registry: &Registry, begun: Arc<Notify>, stopped: Arc<Notify>) -> Result<()> {
    custom_agent(registry, "chef", move |session: AgentSession<Kitchen>| {
        let (begun, stopped) = (Arc::clone(&begun), Arc::clone(&stopped));
        async move {
            session
                .run(|turn| {
                    let (begun, stopped) = (Arc::clone(&begun), Arc::clone(&stopped));
                    async move {
                        let text = turn
                            .input()
                            .message
                            .as_ref()
                            .map(Message::text)
                            .unwrap_or_default()
                            .into_owned();
                        turn.update_custom(|kitchen| kitchen.turns += 1);
                        if text == "burn" {
                            return Err(Error::failed_precondition("the soup burnt").with_public().into());
                        }
                        for word in ["Leek ", "and ", "potato ", "soup."] {
                            turn.send_chunk(word).await?;
                        }
                        if text == "wait" {
                            begun.notify_one();
                            turn.context().cancellation().cancelled().await;
                            stopped.notify_one();
                        }
                        turn.add_message(Message::model("Leek and potato soup."));
                        turn.send_artifact(Artifact::text("menu", "Soup")).await?;
                        Ok(FinishReason::Stop)
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
    .store(MemoryStore::new())
    .define()?;
    define_forgetful(registry)?;
    registry.define_streaming_flow("count", |to: u32, emitter: Emitter<u32>| async move {
        for n in 1..=to {
            emitter.send(n).await?;
        }
        Ok(format!("counted to {to}"))
    })?;
    Ok(())
}

/// An agent whose first turn fails and is kept.
fn define_forgetful(registry: &Registry) -> Result<()> {
    let failed = Arc::new(AtomicBool::new(false));
    custom_agent(registry, "forgetful", move |session: AgentSession<Kitchen>| {
        let failed = Arc::clone(&failed);
        async move {
            session
                .run(|turn| {
                    let is_first = !failed.swap(true, Ordering::SeqCst);
                    async move {
                        if is_first {
                            let error = Error::unavailable("the oven is cold").with_public();
                            return Err(turn.committed(error).into());
                        }
                        let asked = turn.messages().last().map(|last| last.text().into_owned());
                        turn.add_message(Message::model(format!("Yes: {}", asked.unwrap_or_default())));
                        Ok(FinishReason::Stop)
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
    .store(MemoryStore::new())
    .define()?;
    Ok(())
}

pub(crate) async fn serve(shape: impl FnOnce(Server) -> Server) -> Serving {
    let registry = Registry::new();
    let (begun, stopped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    define(&registry, Arc::clone(&begun), Arc::clone(&stopped)).unwrap();
    let server = shape(Server::new(&registry).exposure(Exposure::Public));
    serve_on(server, begun, stopped).await
}

/// Serves the contents of a registry.
pub(crate) async fn serve_all(registry: &Registry) -> Serving {
    let server = Server::new(registry).exposure(Exposure::Public);
    serve_on(server, Arc::default(), Arc::default()).await
}

async fn serve_on(server: Server, begun: Arc<Notify>, stopped: Arc<Notify>) -> Serving {
    let server = server.bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    Serving {
        address: server.address(),
        task: tokio::spawn(server.run()),
        begun,
        stopped,
    }
}

pub(crate) async fn soon(notified: &Notify) {
    in_time("a notification arrives", notified.notified()).await;
}
