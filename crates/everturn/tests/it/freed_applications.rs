//! A dropped application frees its resources and leaves its database complete.

use std::time::Duration;

use everturn::prelude::*;
use everturn::sqlite::{SqliteStore, SqliteStreamLog};
use everturn::testkit::eventually;

async fn application(folder: &std::path::Path) -> (Everturn, Agent) {
    let app = Everturn::builder().build().await.unwrap();
    let store = SqliteStore::open(folder.join("sessions.db")).await.unwrap();
    let streams = SqliteStreamLog::open(folder.join("streams.db")).await.unwrap();
    let agent = app
        .custom_agent("clerk", |session: AgentSession| async move {
            let turns = session.run(|turn| async move {
                turn.add_message(Message::model("noted"));
                Ok(())
            });
            turns.await?;
            Ok(session.result())
        })
        .store(store)
        .run_log(streams)
        .define()
        .unwrap();
    (app, agent)
}

#[tokio::test]
async fn a_dropped_application_closes_its_databases() {
    let folder = tempfile::tempdir().unwrap();
    let (app, agent) = application(folder.path()).await;
    let recovering = app.recover_every(Duration::from_mins(1));
    let bound = app.server().bind("127.0.0.1:0").await.unwrap();
    let reply = agent.run_text("hello").await.unwrap();
    let task = agent.chat().open().await.unwrap().detach("later").await.unwrap();
    task.wait().await.unwrap();

    drop((bound, agent, task, reply));
    recovering.stop().await;
    drop(app);

    let log = |name: &str| folder.path().join(name);
    // The runtime drops finished tasks a little later.
    let is_closed = async || !log("sessions.db-wal").exists() && !log("streams.db-wal").exists();
    eventually("both databases are closed", is_closed).await;
    let size = std::fs::metadata(log("sessions.db")).unwrap().len();
    assert!(size > 16 * 1024, "the file has only {size} bytes");
}
