//! One invocation with its inputs, chunks and outcome.

use everturn_agent::{AgentInit, AgentInput, AgentOutput, AgentStreamChunk, AgentTransport};
use everturn_core::{Context, Error, Result};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Sends all inputs, closes, and collects the chunks and the outcome.
pub(super) async fn exchange(
    agent: &dyn AgentTransport,
    init: &Value,
    inputs: &[Value],
) -> (Vec<AgentStreamChunk>, Result<AgentOutput>) {
    let (init, inputs) = match read_all(init, inputs) {
        Ok(read) => read,
        Err(refused) => return (Vec::new(), Err(refused)),
    };
    let mut connection = agent.connect(init, &Context::new());
    let sender = connection.sender();
    let sending = async move {
        for input in inputs {
            // A finished invocation accepts no more inputs; its output contains the cause.
            if sender.send(input).await.is_err() {
                break;
            }
        }
        sender.close();
    };
    let (chunks, ()) = futures::join!(connection.receive().collect(), sending);
    (chunks, connection.into_output().await)
}

fn read_all(init: &Value, inputs: &[Value]) -> Result<(AgentInit, Vec<AgentInput>)> {
    let inputs: Result<_> = inputs.iter().map(read).collect();
    Ok((read(init)?, inputs?))
}

/// Parses a client's message; anything else is rejected before the agent is called.
fn read<T: DeserializeOwned>(value: &Value) -> Result<T> {
    T::deserialize(value).map_err(|error| Error::invalid_argument(error.to_string()))
}
