//! The promises of the README's front page, step by step.

use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    mood: String,
}

async fn app(replies: &[&str]) -> Everturn {
    let model = ScriptedModel::new().replies(replies.iter().map(|&reply| Reply::text(reply).streamed()));
    let builder = Everturn::builder()
        .model("scripted", model)
        .default_model("scripted");
    builder.build().await.expect("one model is no conflict")
}

#[tokio::test]
async fn a_conversation_is_streamed_resumed_and_saved() {
    let app = app(&["Leek soup.", "With olive oil, then."]).await;
    let chef = app
        .agent("chef")
        .system("You are a chef.")
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let reply = chef.run_text("Something with leeks?").await.unwrap();
    let mut chat = chef.chat().resume(reply.session_id()).open().await.unwrap();
    let mut turn = chat.send("And without butter?").await.unwrap();
    let mut chunks = Vec::new();
    while let Some(chunk) = turn.next().await {
        chunks.push(chunk.unwrap().text().into_owned());
    }
    let reply = turn.output().await.unwrap();

    assert!(chunks.len() > 1, "{chunks:?}");
    assert_eq!(chunks.concat(), "With olive oil, then.");
    let saved = chef.get_snapshot(reply.snapshot_id()).await.unwrap();
    assert_eq!(saved.status, SnapshotStatus::Completed);
    assert_eq!(saved.state.unwrap().messages.len(), 4);
}

#[tokio::test]
async fn a_custom_turn_loop_streams_keeps_state_and_adds_artifacts() {
    let app = app(&["fn main() {}"]).await;
    let coder = app
        .custom_agent("coder", |session: AgentSession<Kitchen>| async move {
            session
                .run(|turn| async move {
                    let reply = turn.generate().history().stream().await?;
                    turn.update_custom(|kitchen| kitchen.mood = "proud".into());
                    turn.send_artifact(Artifact::text("main.rs", reply.text()))
                        .await?;
                    Ok(reply.finish_reason())
                })
                .await?;
            Ok(session.result())
        })
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let mut chat = coder.chat().open().await.unwrap();
    let reply = chat.run("A program that does nothing.").await.unwrap();

    assert_eq!(reply.text(), "fn main() {}");
    assert_eq!(reply.artifacts(), [Artifact::text("main.rs", "fn main() {}")]);
    assert_eq!(chat.custom().unwrap().mood, "proud");
}

#[tokio::test]
async fn work_continues_in_the_background_and_the_chat_continues_from_it() {
    let app = app(&["Soup all week.", "You are welcome."]).await;
    let chef = app
        .agent("chef")
        .system("You are a chef.")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    let mut chat = chef.chat().open().await.unwrap();

    let task = chat.detach("Plan the whole week").await.unwrap();
    let week = task.wait().await.unwrap();
    let thanks = chat.run("Thank you").await.unwrap();

    assert_eq!(week.text(), "Soup all week.");
    let history = chef.get_snapshot(thanks.snapshot_id()).await.unwrap();
    assert_eq!(history.parent_id.as_ref(), Some(task.snapshot_id()));
    assert_eq!(history.state.unwrap().messages.len(), 4);
}
