//! Invocations leave no task behind.

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentInit, AgentInput, Turn};

use crate::support::{handling, reply, said};

#[tokio::test(start_paused = true)]
async fn ten_thousand_invocations_leave_no_task_behind() {
    let agent = handling("busy", |turn: Turn| async move {
        turn.send_chunk("word").await?;
        match said(&turn).as_str() {
            "forever" => std::future::pending().await,
            "wait" => Err(turn.context().ended().await.into()),
            _ => reply(turn).await,
        }
    })
    .store(MemoryStore::new())
    .define()
    .unwrap();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();

    for round in 0..10_000_u32 {
        let input: AgentInput = match round % 6 {
            0 => "one".into(),
            1 => "boom".into(),
            2 => "wait".into(),
            3 => "forever".into(),
            4 => AgentInput::from("two").detached(),
            _ => AgentInput::default().detached(),
        };
        let mut connection = agent.connect(AgentInit::default());
        connection.send(input).await.unwrap();
        if matches!(round % 6, 2 | 3) {
            connection.next().await.unwrap();
            drop(connection);
        } else {
            connection.output().await.unwrap();
        }
    }
    agent.idle().await;
    tokio::task::yield_now().await;

    assert_eq!(agent.invocations(), 0);
    assert_eq!(alive(), 0);
}
