//! A conversation with two branches: its tree of snapshots, the common part of the branches, and a fork of
//! the better one.

use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

/// The chef's state, stored with the conversation.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    shopping: Vec<String>,
}

/// Runs one turn: answers, and adds the ingredients to the shopping list.
async fn cook(turn: Turn<Kitchen>) -> HandlerResult<FinishReason> {
    let answer = turn.generate().history().stream().await?;
    let text = answer.text();
    if let Some((_, list)) = text.split_once("You need ") {
        let items = list.trim_end_matches('.').split(" and ").map(str::to_owned);
        turn.update_custom(|kitchen| kitchen.shopping = items.collect());
        turn.send_artifact(Artifact::text("shopping list", list)).await?;
    }
    Ok(answer.finish_reason())
}

#[tokio::main]
async fn main() -> Result<()> {
    // The answers are scripted, so that the example needs no network. Replace the scripted model with a real
    // one.
    let model = ScriptedModel::new()
        .reply(Reply::text("Leeks make a soup or a pie. Which will it be?"))
        .reply(Reply::text("A soup, then. You need leeks and potatoes."))
        .reply(Reply::text("Then use cream in place of butter."))
        .reply(Reply::text("A pie, then. You need leeks and pastry."));
    let app = Everturn::builder()
        .model("scripted", model)
        .default_model("scripted")
        .build()
        .await?;
    let chef = app
        .custom_agent("chef", |session: AgentSession<Kitchen>| async move {
            session.run(cook).await?;
            Ok(session.result())
        })
        .store(MemoryStore::new())
        .define()?;

    let question = chef.chat().resume("dinner").run("Something with leeks?").await?;
    chef.chat().resume("dinner").run("Soup.").await?;
    let soup = chef.chat().resume("dinner").run("Without butter.").await?;
    // Resumes the earlier snapshot and continues differently. The later snapshots stay unchanged.
    let pie = chef.chat().snapshot(question.snapshot_id()).run("Pie.").await?;

    let archive = chef.archive()?;
    archive.label(question.snapshot_id(), "the question").await?;
    archive
        .annotate(pie.snapshot_id(), "Everybody liked this one.")
        .await?;
    println!("The tree of the conversation:\n");
    println!("{}", archive.tree("dinner").await?);
    println!("The soup and the pie:\n");
    println!("{}", archive.diff(soup.snapshot_id(), pie.snapshot_id()).await?);

    let fork = archive.fork(pie.snapshot_id(), "pie").await?;
    println!(
        "A session of its own for the pie begins with {} messages:\n",
        messages(&fork)
    );
    println!("{}", archive.tree("pie").await?);
    let deleted = archive.delete_session("dinner").await?;
    println!(
        "The dinner is deleted, {deleted} snapshots, and the pie still has {}.",
        messages(&archive.latest("pie").await?)
    );
    Ok(())
}

fn messages(snapshot: &Snapshot) -> usize {
    snapshot.state.as_ref().map_or(0, |state| state.messages.len())
}
