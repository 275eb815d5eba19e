//! A conversation that is streamed, resumed later, and branched from an earlier snapshot.

use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

#[tokio::main]
async fn main() -> Result<()> {
    // The answers are scripted, so that the example needs no network. Replace the scripted model with a real
    // one.
    let model = ScriptedModel::new()
        .reply(Reply::text("Leek and potato soup, with a spoon of butter.").streamed())
        .reply(Reply::text("Then fry the leeks in olive oil; the soup will be a little lighter.").streamed())
        .reply(Reply::text("Onions and potatoes make a fine soup as well.").streamed());
    let app = Everturn::builder()
        .model("scripted", model)
        .default_model("scripted")
        .build()
        .await?;
    let chef = app
        .agent("chef")
        .system("You are a chef.")
        .store(MemoryStore::new())
        .define()?;

    let mut chat = chef.chat().open().await?;
    let soup = say(&mut chat, "Something with leeks?").await?;
    let session = soup.session_id();

    // Later, possibly in another process: the session id is all that is needed to resume.
    drop(chat);
    let mut chat = chef.chat().resume(session).open().await?;
    println!("(resumed, with {} messages)", chat.messages().len());
    let butterless = say(&mut chat, "And without butter?").await?;

    // Resumes the first answer and continues differently. The later snapshots stay unchanged.
    let mut branch = chef.chat().snapshot(soup.snapshot_id()).open().await?;
    println!("(branched, with {} messages)", branch.messages().len());
    let onions = say(&mut branch, "I have no leeks after all.").await?;

    for (name, reply) in [("The conversation", butterless), ("The branch", onions)] {
        println!("{name}:");
        let state = chef
            .get_snapshot(reply.snapshot_id())
            .await?
            .state
            .unwrap_or_default();
        for message in &state.messages {
            println!("  {}: {}", message.role(), message.text());
        }
    }
    Ok(())
}

/// Runs a turn and prints the answer as it is streamed.
async fn say(chat: &mut Chat, text: &str) -> Result<AgentReply> {
    println!("> {text}");
    let mut turn = chat.send(text).await?;
    while let Some(chunk) = turn.next().await {
        print!("{}", chunk?.text());
    }
    println!("\n");
    turn.output().await
}
