//! A branching agent: each turn answers immediately, or waits at a gate while branches are committed
//! elsewhere.

use std::sync::Arc;

use everturn_agent::store::SessionStore;
use everturn_agent::{Agent, AgentInit, AgentSession, custom_agent};
use everturn_ai::Message;
use everturn_core::{Error, Registry, Result};
use tokio::sync::Semaphore;

/// Defines the agent. With a gate, a turn sends a chunk and takes a permit before it answers.
///
/// # Errors
/// The error of the agent's definition.
pub fn branching(store: Arc<dyn SessionStore>, gate: Option<Arc<Semaphore>>) -> Result<Agent> {
    custom_agent(&Registry::new(), "branching", move |session: AgentSession| {
        let gate = gate.clone();
        async move {
            session
                .run(|turn| {
                    let gate = gate.clone();
                    async move {
                        if let Some(gate) = gate {
                            turn.send_chunk("inside").await?;
                            gate.acquire().await?.forget();
                        }
                        turn.add_message(Message::model("heard"));
                        Ok(())
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
    .store(store)
    .define()
}

/// Runs one turn from a snapshot and returns the id of its snapshot.
///
/// # Errors
/// The error of the turn.
pub async fn branch(agent: &Agent, from: &str) -> Result<String> {
    let mut connection = agent.connect(AgentInit::snapshot(from));
    connection.send("aside").await?;
    connection.close();
    let output = connection.output().await?;
    match (output.snapshot_id, output.error) {
        (Some(id), None) => Ok(id.to_string()),
        (_, error) => Err(Error::aborted(format!("the branch was refused: {error:?}"))),
    }
}
