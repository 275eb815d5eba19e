//! Callers that leave: cancelled, disconnected, out of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentInit, Turn};
use everturn_ai::Message;
use everturn_core::{Context, Status};
use everturn_testkit::elapse;
use tokio::time::Instant;

use crate::support::{handling, said, snapshots, texts};

/// Says that a turn began, and waits until its work is cancelled.
async fn wait_for_the_end(turn: Turn) -> everturn_core::Result<()> {
    turn.send_chunk("waiting").await?;
    Err(turn.context().ended().await)
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_gets_an_error_and_the_work_is_cancelled() {
    let seen = Arc::new(AtomicBool::new(false));
    let agent = {
        let seen = Arc::clone(&seen);
        handling("slow", move |turn: Turn| {
            let seen = Arc::clone(&seen);
            async move {
                let ended = wait_for_the_end(turn).await;
                seen.store(true, Ordering::SeqCst);
                Ok(ended?)
            }
        })
        .define()
        .unwrap()
    };

    let mut connection = agent.connect(AgentInit::default());
    connection.send("go").await.unwrap();
    connection.next().await.unwrap();
    connection.cancel();
    let error = connection.output().await.unwrap_err();
    agent.idle().await;

    assert_eq!(error.status(), Status::Cancelled);
    assert!(
        seen.load(Ordering::SeqCst),
        "the function sees the cancellation and ends by itself"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_reported_as_one() {
    let why = Arc::new(std::sync::Mutex::new(None));
    let agent = {
        let why = Arc::clone(&why);
        handling("slow", move |turn: Turn| {
            let why = Arc::clone(&why);
            async move {
                turn.context().ended().await;
                let error = turn.send_chunk("too late").await.unwrap_err();
                *why.lock().unwrap() = Some(error.status());
                Err::<(), _>(error.into())
            }
        })
        .define()
        .unwrap()
    };
    let context = Context::new().with_deadline(Instant::now() + Duration::from_secs(3));

    let mut connection = agent.connect_in(AgentInit::default(), &context);
    connection.send("go").await.unwrap();
    let error = connection.output().await.unwrap_err();
    agent.idle().await;

    assert_eq!(error.status(), Status::DeadlineExceeded);
    assert_eq!(*why.lock().unwrap(), Some(Status::DeadlineExceeded));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_connection_ends_the_turn_and_writes_no_snapshot_for_it() {
    let store = Arc::new(MemoryStore::new());
    let agent = handling("slow", |turn: Turn| async move {
        if said(&turn) == "wait" {
            return Ok(wait_for_the_end(turn).await?);
        }
        turn.add_message(Message::model("done"));
        Ok(())
    })
    .store(Arc::clone(&store))
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::session("s"));
    connection.send("one").await.unwrap();
    connection.next().await.unwrap();
    connection.send("wait").await.unwrap();
    connection.next().await.unwrap();
    drop(connection);
    agent.idle().await;

    let saved = snapshots(store.as_ref(), &"s".into()).await;
    assert_eq!(saved.len(), 1);
    assert_eq!(texts(&saved[0].state.as_ref().unwrap().messages), ["one", "done"]);
}

#[tokio::test(start_paused = true)]
async fn work_that_ignores_its_cancellation_is_dropped_after_the_grace() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let agent = {
        let dropped = Arc::clone(&dropped);
        handling("stubborn", move |_: Turn| {
            let guard = Dropped(Arc::clone(&dropped));
            async move {
                let _guard = guard;
                Ok(std::future::pending::<everturn_core::Result<()>>().await?)
            }
        })
        .cancellation_grace(Duration::from_secs(2))
        .define()
        .unwrap()
    };

    let began = Instant::now();
    let mut connection = agent.connect(AgentInit::default());
    connection.send("go").await.unwrap();
    elapse(Duration::from_secs(1)).await;
    connection.cancel();
    let error = connection.output().await.unwrap_err();
    let answered = began.elapsed();
    agent.idle().await;

    assert_eq!(error.status(), Status::Cancelled);
    assert_eq!(
        answered,
        Duration::from_secs(1),
        "the caller does not wait for stubborn work"
    );
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_succeeds_although_its_client_left_is_still_saved() {
    let store = Arc::new(MemoryStore::new());
    let agent = handling("thorough", |turn: Turn| async move {
        turn.send_chunk("working").await?;
        turn.context().ended().await;
        turn.add_message(Message::model("finished all the same"));
        Ok(())
    })
    .store(Arc::clone(&store))
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::session("s"));
    connection.send("go").await.unwrap();
    connection.next().await.unwrap();
    drop(connection);
    agent.idle().await;

    assert_eq!(snapshots(store.as_ref(), &"s".into()).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_holds_up_only_its_own_turn() {
    let agent = handling("chatty", |turn: Turn| async move {
        for _ in 0..100 {
            turn.send_chunk("word").await?;
        }
        Ok(())
    })
    .define()
    .unwrap();

    let silent = agent.connect(AgentInit::default());
    silent.send("go").await.unwrap();
    elapse(Duration::from_mins(1)).await;
    let other = agent.run_text("go").await;
    drop(silent);
    agent.idle().await;

    assert!(other.is_ok());
    assert_eq!(agent.invocations(), 0);
}
