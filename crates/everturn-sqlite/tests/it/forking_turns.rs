//! Turns of an agent that forks, on one session and through two handles: none is refused after its work.

use everturn_agent::store::{Scope, SessionStore};
use everturn_agent::{Agent, AgentSession, Concurrency, custom_agent};
use everturn_ai::Message;
use everturn_core::Registry;
use everturn_sqlite::SqliteStore;
use futures::future::join_all;

use crate::support::open;

const TURNS: usize = 100;

fn forking(store: SqliteStore) -> Agent {
    custom_agent(&Registry::new(), "parrot", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.add_message(Message::model("heard"));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .concurrency(Concurrency::Fork)
    .store(store)
    .define()
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_turns_that_fork_at_one_snapshot_are_committed() {
    let folder = tempfile::tempdir().unwrap();
    // The second handle shares nothing with the first, as that of another process.
    let stores = [open(folder.path()).await, open(folder.path()).await];
    let agents = stores.clone().map(forking);
    let root = agents[0].chat().resume("s").run("hello").await.unwrap();
    let root = root.snapshot_id().unwrap().clone();

    let turns = (0..TURNS).map(|number| {
        let chat = agents[number % 2].chat().snapshot(root.clone());
        tokio::spawn(async move { chat.run("and now?").await })
    });
    for turn in join_all(turns).await {
        turn.unwrap().unwrap();
    }

    let children = stores[0].children(&Scope::default(), &root).await.unwrap();
    assert_eq!(children.len(), TURNS);
}
