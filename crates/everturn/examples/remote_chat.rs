//! An agent on a server, and a client that uses it like a local one: streamed turns, a background run, and a
//! flow whose stream the client reconnects to by its id.
//!
//! Both run in this process to keep the example short; normally the client is another program.

use std::net::SocketAddr;

use everturn::core::stream_log::MemoryStreamLog;
use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

#[tokio::main]
async fn main() -> Result<()> {
    let app = kitchen().await?;
    let server = app
        .server()
        // With a stream log, turns and flows survive a lost connection of their caller.
        .stream_log(MemoryStreamLog::new())
        .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await?;
    let (address, handle) = (server.address(), server.handle());
    let serving = tokio::spawn(server.run());

    talk(address).await?;

    handle.shut_down();
    serving.await?
}

async fn kitchen() -> Result<Everturn> {
    let model = ScriptedModel::new()
        .reply("Leek and potato soup.")
        .reply(Reply::text("Then with olive oil.").chunks(["Then ", "with ", "olive oil."]))
        .reply("Monday soup, Tuesday the rest of it.");
    let app = Everturn::builder()
        .model("scripted", model)
        .default_model("scripted")
        .build()
        .await?;
    app.agent("chef")
        .system("You are a chef.")
        .store(MemoryStore::new())
        .define()?;
    app.streaming_flow("courses", |count: u32, emitter: Emitter<String>| async move {
        for number in 1..=count {
            emitter.send(format!("course {number}")).await?;
        }
        Ok("enjoy your meal".to_owned())
    })?;
    Ok(app)
}

/// The part of the client program.
async fn talk(address: SocketAddr) -> Result<()> {
    let chef: RemoteAgent = RemoteAgent::new(&format!("http://{address}/agents/chef"))?;

    let reply = chef.run_text("Something with leeks?").await?;
    println!("> Something with leeks?\n{}", reply.text());

    println!("> And without butter?");
    let mut chat = chef.chat().resume(reply.session_id()).open().await?;
    let mut turn = chat.send("And without butter?").await?;
    while let Some(chunk) = turn.next().await {
        print!("{}", chunk?.text());
    }
    turn.output().await?;

    println!("\n> Plan the whole week, and call me when you are done.");
    let task = chat.detach("Plan the whole week").await?;
    println!("{}", task.wait().await?.text());

    let courses: RemoteFlow<u32, String, String> =
        RemoteFlow::new(&format!("http://{address}/flows/courses"))?;
    let mut meal = courses.stream(3)?;
    let name = meal.stream_id().await;
    println!("{:?}, and then the line went dead.", meal.next().await);
    drop(meal);

    let name = name.ok_or_else(|| Error::internal("a server with a stream log names its streams"))?;
    let mut meal = courses.reattach(&name);
    while let Some(course) = meal.next().await {
        println!("{course}");
    }
    println!("{}", meal.output().await?);
    Ok(())
}
