//! Work that goes on after its client left.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{Detail, MemoryStore, Scope, SessionStore};
use everturn_agent::{
    Agent, AgentFinishReason, AgentInit, AgentInput, AgentTask, Artifact, Heartbeat, SnapshotStatus, Turn,
};
use everturn_ai::Message;
use everturn_core::{Error, Status};
use everturn_testkit::elapse;
use jiff::SignedDuration;
use tokio::sync::Semaphore;

use crate::support::{FaultyStore, all_chunks, handling, reply, replying, said, snapshots, texts};
use crate::takeover_support::clock;

/// Every turn waits for the gate; `boom` fails, `until` waits for its cancellation.
fn gated(store: FaultyStore) -> (Agent, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let agent = {
        let gate = Arc::clone(&gate);
        handling("worker", move |turn: Turn| {
            let gate = Arc::clone(&gate);
            async move {
                turn.send_chunk("began").await?;
                if said(&turn) == "until" {
                    turn.context().ended().await;
                    return Err(Error::cancelled("stopped").into());
                }
                gate.acquire().await?.forget();
                turn.add_artifact(Artifact::text(said(&turn), "made"));
                reply(turn).await
            }
        })
        .clock(clock())
        .store(store)
        .define()
        .unwrap()
    };
    (agent, gate)
}

/// Leaves a run in the background of session `s`.
async fn detached(agent: &Agent, text: &str) -> AgentTask {
    let mut chat = agent.chat().resume("s").open().await.unwrap();
    chat.detach(text).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_detached_run_answers_at_once_streams_nothing_and_ends_on_its_snapshot() {
    let store = FaultyStore::default();
    let (agent, gate) = gated(store.clone());

    let mut connection = agent.connect(AgentInit::session("s"));
    connection
        .send(AgentInput::from("plan").detached())
        .await
        .unwrap();
    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await.unwrap();
    let id = output.snapshot_id.clone().unwrap();
    let pending = agent.get_snapshot(id.clone()).await.unwrap();
    drop(connection);
    gate.add_permits(1);
    agent.idle().await;
    let done = agent.get_snapshot(id.clone()).await.unwrap();

    assert!(chunks.is_empty(), "{chunks:?}");
    assert_eq!(output.finish_reason, Some(AgentFinishReason::Detached));
    assert_eq!((output.message, output.state), (None, None));
    assert_eq!(pending.status, SnapshotStatus::Pending);
    assert_eq!((pending.state, pending.finish_reason), (None, None));
    assert!(pending.heartbeat_at.is_some() && pending.bookkeeping.is_empty());
    assert_eq!(
        (done.status, done.finish_reason),
        (SnapshotStatus::Completed, Some(AgentFinishReason::Stop))
    );
    assert_eq!((done.created_at, done.heartbeat_at), (pending.created_at, None));
    let state = done.state.unwrap();
    assert_eq!(texts(&state.messages), ["plan", "re: plan"]);
    assert_eq!(state.artifacts.len(), 1);
    assert_eq!(
        store.saves(),
        2,
        "the pending snapshot and its end are all that is written"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_detached_in_mid_turn_keeps_the_turns_promised_snapshot_and_runs_what_was_queued() {
    let store = FaultyStore::default();
    let (agent, gate) = gated(store.clone());
    gate.add_permits(1);
    let mut connection = agent.connect(AgentInit::session("s"));
    connection.send("one").await.unwrap();
    let first = loop {
        if let Some(end) = connection.next().await.unwrap().turn_end {
            break end.snapshot_id.unwrap();
        }
    };
    connection.send("two").await.unwrap();
    connection.next().await.unwrap();
    connection.send("three").await.unwrap();

    connection.detach().await.unwrap();
    let output = connection.output().await.unwrap();
    gate.add_permits(2);
    agent.idle().await;

    let saved = snapshots(&store, &"s".into()).await;
    assert_eq!(
        saved.len(),
        2,
        "no turn of a background run has a snapshot of its own"
    );
    assert_eq!(saved[1].snapshot_id, output.snapshot_id.unwrap());
    assert_eq!(saved[1].parent_id, Some(first));
    assert_eq!(
        texts(&saved[1].state.as_ref().unwrap().messages),
        ["one", "re: one", "two", "re: two", "three", "re: three"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_pure_detach_adds_no_turn() {
    let (agent, gate) = gated(FaultyStore::default());
    let mut connection = agent.connect(AgentInit::session("s"));
    connection.send("one").await.unwrap();
    connection.next().await.unwrap();

    connection.detach().await.unwrap();
    connection.output().await.unwrap();
    gate.add_permits(9);
    agent.idle().await;

    assert_eq!(gate.available_permits(), 8);
    assert_eq!(
        agent.latest_snapshot("s").await.unwrap().status,
        SnapshotStatus::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_reports_why_and_continues_from_the_turns_that_stand() {
    let (agent, gate) = gated(FaultyStore::default());
    gate.add_permits(3);
    let mut chat = agent.chat().resume("s").open().await.unwrap();
    let good = chat.run("one").await.unwrap();

    let task = chat.detach("boom").await.unwrap();
    let error = task.wait().await.unwrap_err();
    let snapshot = task.poll().await.unwrap();
    let after = chat.run("two").await.unwrap();

    assert_eq!(error.status(), Status::Unavailable);
    assert_eq!(
        (snapshot.status, snapshot.finish_reason),
        (SnapshotStatus::Failed, Some(AgentFinishReason::Failed))
    );
    assert_eq!(snapshot.error.unwrap().message, "the oven is cold");
    assert_eq!(snapshot.parent_id.as_ref(), good.snapshot_id());
    assert_eq!(
        texts(&snapshot.state.unwrap().messages),
        ["one", "re: one"],
        "the function had committed nothing of the turn that failed"
    );
    assert_eq!(after.text(), "re: two");
}

#[tokio::test(start_paused = true)]
async fn an_abort_reaches_the_work_and_stays_whatever_the_work_returns() {
    let store = FaultyStore::default();
    let (agent, _gate) = gated(store.clone());
    let mut chat = agent.chat().resume("s").open().await.unwrap();
    let task = chat.detach("until").await.unwrap();
    // The turn has begun.
    task.attach().unwrap().next().await.unwrap().unwrap();

    let first = task.abort().await.unwrap().unwrap();
    let again = task.abort().await.unwrap().unwrap();
    agent.idle().await;
    let snapshot = task.poll().await.unwrap();
    let error = task.wait().await.unwrap_err();

    assert_eq!(
        (first.previous, first.status),
        (SnapshotStatus::Pending, SnapshotStatus::Aborted)
    );
    assert_eq!(
        (again.previous, again.status),
        (SnapshotStatus::Aborted, SnapshotStatus::Aborted)
    );
    assert_eq!(
        (snapshot.status, snapshot.finish_reason),
        (SnapshotStatus::Aborted, Some(AgentFinishReason::Aborted))
    );
    assert_eq!(snapshot.heartbeat_at, None);
    // The function had committed nothing of the turn that was cut short.
    assert_eq!(texts(&snapshot.state.unwrap().messages), [""; 0]);
    assert_eq!(error.status(), Status::Aborted);
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_touch_nothing_but_the_heartbeat() {
    let store = FaultyStore::default();
    let (agent, gate) = gated(store.clone());
    let task = detached(&agent, "long").await;
    let before = task.poll().await.unwrap();

    elapse(Duration::from_secs(95)).await;
    let after = task.poll().await.unwrap();
    gate.add_permits(1);
    let done = task.wait().await.unwrap();

    let beat = SignedDuration::from_secs(90);
    assert_eq!(after.heartbeat_at, Some(before.heartbeat_at.unwrap() + beat));
    assert_eq!(
        everturn_agent::Snapshot {
            heartbeat_at: before.heartbeat_at,
            ..after
        },
        before
    );
    assert_eq!(done.text(), "re: long");
    assert_eq!(store.saves(), 1 + 3 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_worker_is_reported_as_expired_and_its_snapshot_stays_pending() {
    let store = FaultyStore::default();
    let quick = Heartbeat {
        interval: Duration::from_secs(30),
        expiry: Duration::from_mins(1),
    };
    let agent = handling("mute", |_: Turn| async move {
        Ok(std::future::pending::<everturn_core::Result<()>>().await?)
    })
    .heartbeat(quick)
    .clock(clock())
    .store(store.clone())
    .define()
    .unwrap();
    let task = detached(&agent, "vanish").await;

    store.fail_saves(true);
    elapse(Duration::from_mins(1)).await;
    let still = task.status().await.unwrap();
    elapse(Duration::from_secs(1)).await;
    let expired = task.status().await.unwrap();
    let error = task.wait().await.unwrap_err();
    store.fail_saves(false);
    let raw = store
        .get(&Scope::default(), task.snapshot_id(), Detail::Metadata)
        .await
        .unwrap()
        .unwrap();
    let aborted = task.abort().await.unwrap().unwrap();
    agent.idle().await;

    assert_eq!(
        (still, expired),
        (SnapshotStatus::Pending, SnapshotStatus::Expired)
    );
    assert_eq!(error.status(), Status::Unavailable);
    assert_eq!(raw.status, SnapshotStatus::Pending);
    assert_eq!(aborted.status, SnapshotStatus::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_detach_that_cannot_be_kept_is_refused_and_ends_the_work() {
    let without = replying("without").define().unwrap();
    let blind = replying("blind")
        .store(FaultyStore::default().without_watching())
        .define()
        .unwrap();
    let full = FaultyStore::default();
    let failing = replying("failing").store(full.clone()).define().unwrap();
    full.fail_saves(true);

    for (agent, status) in [
        (&without, Status::FailedPrecondition),
        (&blind, Status::FailedPrecondition),
        (&failing, Status::ResourceExhausted),
    ] {
        let error = agent.chat().open().await.unwrap().detach("go").await.unwrap_err();
        agent.idle().await;

        assert_eq!(error.status(), status, "{error}");
        assert_eq!(agent.invocations(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_background_run_keeps_others_from_the_session() {
    let (agent, gate) = gated(FaultyStore::default());
    let task = detached(&agent, "long").await;

    let refused = agent.chat().resume("s").run("two").await.unwrap_err();
    gate.add_permits(2);
    task.wait().await.unwrap();
    let next = agent.chat().resume("s").run("three").await.unwrap();

    assert_eq!(refused.status(), Status::FailedPrecondition);
    let snapshot = agent
        .get_snapshot(next.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    assert_eq!(snapshot.parent_id.as_ref(), Some(task.snapshot_id()));
    assert_eq!(
        agent.latest_snapshot("s").await.unwrap().snapshot_id,
        snapshot.snapshot_id
    );
}

#[tokio::test(start_paused = true)]
async fn the_latest_snapshot_is_stable_when_an_older_one_is_rewritten() {
    let (agent, gate) = gated(FaultyStore::default());
    gate.add_permits(1);
    let start = agent.chat().resume("s").run("start").await.unwrap();
    let task = detached(&agent, "until").await;
    gate.add_permits(1);

    let branch = agent
        .chat()
        .snapshot(start.snapshot_id().unwrap().clone())
        .run("branch")
        .await
        .unwrap();
    task.abort().await.unwrap();
    agent.idle().await;

    let snapshot = task.poll().await.unwrap();
    assert_eq!(snapshot.status, SnapshotStatus::Aborted);
    assert_eq!(
        agent.latest_snapshot("s").await.unwrap().snapshot_id,
        *branch.snapshot_id().unwrap()
    );
}

#[tokio::test]
async fn a_detached_message_waits_for_the_session_like_any_other() {
    let store = Arc::new(MemoryStore::new());
    let agent = handling("chef", |turn: Turn| async move {
        turn.add_message(Message::model("done"));
        Ok(())
    })
    .store(Arc::clone(&store))
    .define()
    .unwrap();

    let mut chat = agent.chat().resume("s").open().await.unwrap();
    chat.run("one").await.unwrap();
    let reply = chat.detach("two").await.unwrap().wait().await.unwrap();
    let after = chat.run("three").await.unwrap();

    assert_eq!(
        texts(&reply.state().unwrap().messages),
        ["one", "done", "two", "done"]
    );
    assert_eq!(snapshots(store.as_ref(), &"s".into()).await.len(), 3);
    assert_eq!(after.text(), "done");
}
