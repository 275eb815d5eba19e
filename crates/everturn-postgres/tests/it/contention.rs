//! Many writers of one session: none of them is starved, and turns that branch are never refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_agent::{Agent, AgentSession, Concurrency, custom_agent};
use everturn_ai::Message;
use everturn_core::Registry;
use everturn_postgres::PostgresStore;
use futures::future::join_all;

use crate::support::{Fixture, Way, put, row, said};

/// How often a commit may lose before it locks its session.
const RACES: u64 = 3;

/// How many snapshots a writer adds to a session that others write to without a pause.
const SAVES: u64 = 50;

async fn no_writer_is_starved(way: Way) {
    let Some(fixture) = Fixture::by(way, |options| options).await else {
        return;
    };
    // Another handle remembers nothing of the first one's commits, like another process.
    let (busy, slow) = (fixture.store.clone(), fixture.reopened().await);
    put(&busy, row("first", "s", 1)).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let hogs = (0..4).map(|hog| {
        let (busy, is_over) = (busy.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            for number in 0.. {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let id = format!("hog-{hog}-{number}");
                put(&busy, row(&id, "s", 2)).await.unwrap();
            }
        })
    });
    let hogs: Vec<_> = hogs.collect();

    for number in 0..SAVES {
        let mut row = row(&format!("slow-{number}"), "s", 3);
        row.parent_id = Some("first".into());
        row.state = Some(said(&["hello", &number.to_string()]));
        put(&slow, row).await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    for hog in hogs {
        hog.await.unwrap();
    }

    let retries = slow.metrics().retries;
    assert!(
        retries <= RACES * SAVES,
        "{retries} races were lost in {SAVES} commits"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_loses_races_gets_its_turn() {
    no_writer_is_starved(Way::Direct).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_loses_races_gets_its_turn_through_a_pooler() {
    no_writer_is_starved(Way::Pooled).await;
}

/// An agent whose turns branch where another turn continues the same snapshot.
fn forking(store: &PostgresStore) -> Agent {
    let function = |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.add_message(Message::model("fine"));
                Ok(())
            })
            .await?;
        Ok(session.result())
    };
    custom_agent(&Registry::new(), "forking", function)
        .concurrency(Concurrency::Fork)
        .store(store.clone())
        .define()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_branch_are_all_committed_however_many_meet() {
    const TASKS: usize = 12;
    const TURNS: usize = 10;
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let stores = [
        fixture.store.clone(),
        fixture.reopened().await,
        fixture.reopened().await,
    ];
    let agents: Vec<Agent> = stores.iter().map(forking).collect();
    agents[0].chat().resume("s").run("begin").await.unwrap();

    let talks = agents
        .iter()
        .flat_map(|agent| std::iter::repeat_n(agent, TASKS))
        .map(|agent| {
            let agent = agent.clone();
            tokio::spawn(async move {
                for _ in 0..TURNS {
                    agent.chat().resume("s").run("more").await.unwrap();
                }
            })
        });

    for talk in join_all(talks).await {
        talk.unwrap();
    }
}
