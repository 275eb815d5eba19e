//! Ten thousand background runs at once in one process: all of them end, and one costs what one costs alone.

use std::sync::Arc;

use everturn_agent::store::{MemoryStore, PendingQuery, SessionStore};
use everturn_agent::{AgentInit, AgentInput, Turn};
use stats_alloc::Region;
use tokio::sync::Semaphore;

use crate::support::{handling, reply};
use crate::{ALLOCATOR, alone};

/// Detaches that many runs, and prints the bytes that each takes while all are in progress.
async fn bytes_per_run(runs: usize) -> usize {
    let (gate, store) = (Arc::new(Semaphore::new(0)), Arc::new(MemoryStore::new()));
    let agent = {
        let gate = Arc::clone(&gate);
        handling("worker", move |turn: Turn| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await?.forget();
                reply(turn).await
            }
        })
    };
    let agent = agent.store(Arc::clone(&store)).define().unwrap();

    let region = Region::new(ALLOCATOR);
    for _ in 0..runs {
        let mut connection = agent.connect(AgentInit::default());
        connection
            .send(AgentInput::from("plan").detached())
            .await
            .unwrap();
        connection.output().await.unwrap();
    }
    let change = region.change();
    let under_way = agent.invocations();
    gate.add_permits(runs);
    agent.idle().await;

    assert_eq!(under_way, runs);
    let pending = store.pending(&PendingQuery::default()).await.unwrap().unwrap();
    assert!(pending.items.is_empty(), "all are over");
    (change.bytes_allocated - change.bytes_deallocated) / runs
}

#[tokio::test]
async fn ten_thousand_runs_at_once_end_and_one_costs_what_it_costs_among_few() {
    let _alone = alone();
    let few = bytes_per_run(1_000).await;
    let many = bytes_per_run(10_000).await;

    println!("a background run takes {few} bytes among 1,000 and {many} among 10,000");
    assert!(many * 4 <= few * 5, "{few} bytes among few, {many} among many");
}
