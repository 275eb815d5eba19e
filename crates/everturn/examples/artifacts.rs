//! An agent that writes documents: the model writes one, a tool writes another, and every snapshot stores the
//! artifacts of its time.

use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

/// Makes the shopping list for some dishes.
#[tool]
async fn shopping_list(items: Vec<String>, session: SessionHandle) -> Result<String> {
    session.add_artifacts([Artifact::text("shopping.md", items.join("\n"))]);
    Ok(format!("{} things to buy", items.len()))
}

#[tokio::main]
async fn main() -> Result<()> {
    let model = ScriptedModel::new()
        .reply(Reply::tool(
            "write_artifact",
            json!({"name": "menu.md", "content": "Leek soup\n"}),
        ))
        .reply("The menu is written.")
        .reply(Reply::tool("read_artifact", json!({"name": "menu.md"})))
        .reply(Reply::tool(
            "write_artifact",
            json!({"name": "menu.md", "content": "Leek soup\nApple tart\n"}),
        ))
        .reply(Reply::tool(
            "shopping_list",
            json!({"items": ["leeks", "potatoes", "apples"]}),
        ))
        .reply("There is a tart now, and a list of what to buy.");
    let app = Everturn::builder()
        .model("scripted", model)
        .default_model("scripted")
        .build()
        .await?;

    let caterer = app
        .agent("caterer")
        .system("You plan dinners.")
        .use_middleware(Artifacts::default()) // the tools read_artifact and write_artifact
        .tool(shopping_list)
        .store(MemoryStore::new())
        .define()?;

    let mut chat = caterer.chat().open().await?;
    let menu = say(&mut chat, "A menu for tonight, please.").await?;
    say(&mut chat, "Add a dessert, and tell me what to buy.").await?;

    println!("At the end:");
    print_all(chat.artifacts());

    println!("After the first turn:");
    let first = caterer.get_snapshot(menu.snapshot_id()).await?;
    print_all(&first.state.unwrap_or_default().artifacts);
    Ok(())
}

/// Runs a turn and prints its artifacts as they are streamed.
async fn say(chat: &mut Chat, text: &str) -> Result<AgentReply> {
    println!("> {text}");
    let mut turn = chat.send(text).await?;
    while let Some(chunk) = turn.next().await {
        if let Some(artifact) = chunk?.artifact() {
            println!("[made {}]", artifact.given_name().unwrap_or("something"));
        }
    }
    let reply = turn.output().await?;
    println!("{}\n", reply.text());
    Ok(reply)
}

fn print_all(artifacts: &[Artifact]) {
    for artifact in artifacts {
        let content = artifact.content_text();
        println!(
            "  {}: {}",
            artifact.given_name().unwrap_or("something"),
            content.trim_end().replace('\n', ", ")
        );
    }
}
