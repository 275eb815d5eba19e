//! Conversations that go to a provider, into a store and back again.

use std::sync::Arc;

use everturn_ai::{Generate, Generated, Message, ModelRequest, Tool, ToolContext};
use everturn_core::{Error, Plugin, Registry};
use serde_json::{Value, json};

use crate::asking::{ask, question};

/// A tool that takes anything and has seen leeks.
pub(crate) fn look() -> Tool {
    Tool::new("look", "Looks.", |_: Value, _: ToolContext| async {
        Ok(json!({ "seen": "leeks" }))
    })
}

/// Asks with a tool; then, with the conversation as it comes back from a store, says thanks.
pub(crate) async fn asked_and_thanked(plugin: impl Plugin, model: &str) -> (Generated, Generated) {
    let registry = Registry::new();
    registry.install(Arc::new(plugin)).unwrap();
    let first = Generate::new(&registry)
        .model(model)
        .system("You are a chef.")
        .prompt("What is there?")
        .tool(look())
        .await
        .unwrap();
    let text = serde_json::to_string(&first.messages()).unwrap();
    let stored: Vec<Message> = serde_json::from_str(&text).unwrap();
    let second = Generate::new(&registry)
        .model(model)
        .messages(stored)
        .prompt("Thank you.")
        .tool(look())
        .await
        .unwrap();
    (first, second)
}

/// The refusal of an answer that comes back with a text in it replaced by another.
pub(crate) async fn refusal_of_change(
    plugin: impl Plugin + Clone,
    model: &str,
    from: &str,
    to: &str,
) -> Error {
    let answer = ask(plugin.clone(), model, question("Leeks?"))
        .await
        .result
        .unwrap();
    let text = serde_json::to_string(&answer.message).unwrap();
    let forged: Message = serde_json::from_str(&text.replace(from, to)).unwrap();
    let request = ModelRequest::new([Message::user("Leeks?"), forged, Message::user("And?")]);
    ask(plugin, model, request).await.result.unwrap_err()
}
