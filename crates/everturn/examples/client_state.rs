//! An agent without a store: the client keeps the state as JSON and sends it with each turn.

use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

/// The agent's state, stored with the messages.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    pantry: Vec<String>,
}

/// Puts something into the pantry.
#[tool]
async fn stock(item: String, kitchen: Session<Kitchen>) -> Result<String> {
    let count = kitchen.update_custom(|kitchen| {
        kitchen.pantry.push(item);
        kitchen.pantry.len()
    });
    Ok(format!("the pantry holds {count} things"))
}

#[tokio::main]
async fn main() -> Result<()> {
    let model = ScriptedModel::new()
        .reply(Reply::tool("stock", json!({"item": "leeks"})))
        .reply("Leeks it is.")
        .reply(Reply::tool("stock", json!({"item": "butter"})))
        .reply("With butter, then.")
        .reply(Reply::tool("stock", json!({"item": "olive oil"})))
        .reply("With olive oil, then.");
    let app = Everturn::builder()
        .model("scripted", model)
        .default_model("scripted")
        .build()
        .await?;

    // Without a store, the caller supplies the conversation.
    let chef = app
        .agent("chef")
        .custom::<Kitchen>()
        .system("You are a chef. The pantry holds {{@custom.pantry}}.")
        .tool(stock)
        .define()?;

    let begun = SessionState::default();
    let leeks = say(&chef, &serde_json::to_string(&begun)?, "I bought leeks.").await?;
    let butter = say(&chef, &leeks, "And butter.").await?;

    // Every JSON state can be continued, any number of times.
    let oil = say(&chef, &leeks, "And olive oil. Forget the butter.").await?;

    println!(
        "The conversation is {} bytes of JSON, its branch {}.",
        butter.len(),
        oil.len()
    );
    Ok(())
}

/// Runs one turn of the conversation in `kept` and returns the updated conversation.
async fn say(chef: &Agent<Kitchen>, kept: &str, text: &str) -> Result<String> {
    let mut chat = chef.chat().state(serde_json::from_str(kept)?).open().await?;
    let reply = chat.run(text).await?;
    println!(
        "> {text}\n{} The pantry holds {:?}.\n",
        reply.text(),
        chat.custom()?.pantry
    );
    Ok(serde_json::to_string(&chat.state())?)
}
