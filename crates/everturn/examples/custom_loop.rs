//! An agent with its own turn loop: it drafts, has the draft reviewed, and drafts again until the review is
//! positive.
//!
//! The client receives everything as it happens: text, the current activity, custom state and the finished
//! document.

use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

/// The writer's state, stored with the conversation.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
struct Desk {
    drafts: u32,
    advice: Vec<String>,
}

/// The current activity.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Progress {
    Drafting { draft: u32 },
    Reviewing,
    Printing,
}

/// A review of a draft.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Review {
    good: bool,
    advice: String,
}

/// Runs one turn: writes drafts until one is accepted, then publishes it.
async fn write(turn: Turn<Desk>) -> HandlerResult<FinishReason> {
    loop {
        let draft = turn.custom().drafts + 1;
        turn.send_status(Progress::Drafting { draft }).await?;
        let text = turn.generate().history().stream().await?; // streamed to the client, and part of the conversation
        turn.update_custom(|desk| desk.drafts = draft);

        turn.send_status(Progress::Reviewing).await?;
        let question = format!("Is this a good haiku?\n{}", text.text());
        let review = turn
            .generate()
            .with(|generate| generate.prompt(question).output::<Review>())
            .await?
            .output()?;
        if review.good {
            turn.send_status(Progress::Printing).await?;
            turn.send_artifact(Artifact::text("haiku.txt", text.text()))
                .await?;
            return Ok(text.finish_reason());
        }
        turn.update_custom(|desk| desk.advice.push(review.advice.clone()));
        turn.add_message(Message::user(review.advice));
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let model = ScriptedModel::new()
        .reply(
            Reply::text(
                "Leeks stand in the rain / and rain is what they drink, leeks / wet and green and leeks",
            )
            .streamed(),
        )
        .reply(r#"{"good": false, "advice": "Fewer leeks."}"#)
        .reply(
            Reply::text("Green spears in March rain / the kitchen window steams up / someone sets two bowls")
                .streamed(),
        )
        .reply(r#"{"good": true, "advice": "Print it."}"#);
    let app = Everturn::builder()
        .model("scripted", model)
        .default_model("scripted")
        .build()
        .await?;

    let writer = app
        .custom_agent("writer", |session: AgentSession<Desk>| async move {
            session.run(write).await?;
            Ok(session.result())
        })
        .status::<Progress>()
        .store(MemoryStore::new())
        .define()?;

    println!("> A haiku about leeks, please.");
    let mut chat = writer.chat().open().await?;
    let mut turn = chat.send("A haiku about leeks, please.").await?;
    while let Some(chunk) = turn.next().await {
        let chunk = chunk?;
        if let Some(progress) = chunk.status()? {
            println!("\n[{progress:?}]");
        }
        if let Some(artifact) = chunk.artifact() {
            println!("[made {}]", artifact.given_name().unwrap_or("something"));
        }
        print!("{}", chunk.text());
    }
    let reply = turn.output().await?;

    let desk = chat.custom()?;
    println!("\nAfter {} drafts and the advice {:?}:", desk.drafts, desk.advice);
    for artifact in reply.artifacts() {
        println!("{}", artifact.content_text().replace(" / ", "\n"));
    }
    Ok(())
}
