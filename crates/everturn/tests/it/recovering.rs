//! Accepted work outlives its process.

use std::sync::Arc;
use std::time::Duration;

use everturn::prelude::*;
use everturn::testkit::eventually;

/// The application as every process defines it; its agent never finishes a turn in the first process.
async fn start(store: &Arc<MemoryStore>, stuck: bool) -> (Everturn, Agent) {
    let app = Everturn::builder().build().await.unwrap();
    let agent = app
        .custom_agent("planner", move |session: AgentSession| async move {
            session
                .run(|turn| async move {
                    if stuck {
                        std::future::pending::<()>().await;
                    }
                    turn.add_message(Message::model("planned"));
                    Ok(())
                })
                .await?;
            Ok(session.result())
        })
        .heartbeat(Heartbeat {
            interval: Duration::from_millis(40),
            expiry: Duration::from_millis(100),
        })
        .store(Arc::clone(store))
        .define()
        .unwrap();
    (app, agent)
}

#[test]
fn an_application_takes_over_runs_of_a_process_that_died() {
    let store = Arc::new(MemoryStore::new());
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let id = runtime().block_on(async {
        let (_app, agent) = start(&store, true).await;
        let task = agent.chat().open().await.unwrap().detach("plan").await.unwrap();
        task.snapshot_id().clone()
    });

    // The first runtime is dropped, and with it all of its tasks.
    let (row, left) = runtime().block_on(async {
        let (app, agent) = start(&store, false).await;
        let recovering = app.recover_every(Duration::from_millis(20));
        eventually("the run is completed", async || {
            agent.get_snapshot(id.clone()).await.unwrap().status == SnapshotStatus::Completed
        })
        .await;
        recovering.stop().await;
        agent.idle().await;
        (agent.get_snapshot(id.clone()).await.unwrap(), app.recover().await)
    });

    let messages = row.state.unwrap().messages;
    assert_eq!(messages.last().unwrap().text(), "planned");
    assert!(left.taken_over.is_empty() && left.failures.is_empty());
}
