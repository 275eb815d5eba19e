//! Background runs that outlive their worker: what goes on, from where, and who may still write.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_agent::store::{Bookkeeping, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{AgentInit, AgentInput, Snapshot, SnapshotPolicy, SnapshotStatus, Turn, TurnContext};
use everturn_testkit::elapse;
use serde_json::json;

use crate::support::{FaultyStore, handling, reply, said, texts};
use crate::takeover_support::{A_WHILE, Worker, clock, settle};

#[tokio::test(start_paused = true)]
async fn a_lost_run_continues_elsewhere_from_the_last_committed_state() {
    let (first, second) = Worker::two();
    first.gate.add_permits(1);
    let start = first.agent.chat().resume("s").run("one").await.unwrap();
    let task = first.detach("two").await;
    let too_early = second.agent.recover().await;
    first.lose();

    elapse(A_WHILE).await;
    let recovery = second.agent.recover().await;
    second.gate.add_permits(1);
    second.agent.idle().await;

    assert!(too_early.taken_over.is_empty(), "its worker lives");
    assert_eq!(recovery.taken_over.len(), 1, "{recovery:?}");
    let run = &recovery.taken_over[0];
    assert_eq!((&run.snapshot_id, run.attempt), (task.snapshot_id(), 2));
    assert_eq!(second.turns(), ["two"]);
    let snapshot = second
        .agent
        .get_snapshot(task.snapshot_id().clone())
        .await
        .unwrap();
    assert_eq!(snapshot.status, SnapshotStatus::Completed);
    assert_eq!(snapshot.parent_id.as_ref(), start.snapshot_id());
    assert_eq!(
        texts(&snapshot.state.unwrap().messages),
        ["one", "re: one", "two", "re: two"]
    );
    assert!(snapshot.bookkeeping.is_empty() && snapshot.heartbeat_at.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_only_slept_is_fenced() {
    let (zombie, heir) = Worker::two();
    let task = zombie.detach("plan").await;
    zombie.lose();
    elapse(A_WHILE).await;
    let _ = heir.agent.recover().await;
    heir.gate.add_permits(1);
    heir.agent.idle().await;
    let ended = zombie.snapshot(task.snapshot_id()).await;

    zombie.wake();
    zombie.gate.add_permits(1);
    zombie.agent.idle().await;

    assert_eq!(zombie.snapshot(task.snapshot_id()).await, ended);
    assert_eq!(
        zombie.store.saves(),
        1,
        "the pending snapshot is all it ever wrote"
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_wakes_after_a_takeover_stops_and_writes_nothing() {
    let (zombie, heir) = Worker::two();
    let task = zombie.detach("plan").await;
    zombie.lose();
    elapse(A_WHILE).await;
    let _ = heir.agent.recover().await;
    settle().await;
    let held = zombie.snapshot(task.snapshot_id()).await;

    zombie.wake();
    zombie.agent.idle().await;
    let after = zombie.snapshot(task.snapshot_id()).await;
    heir.gate.add_permits(1);
    heir.agent.idle().await;

    assert_eq!(after.bookkeeping, held.bookkeeping, "the lease is the heir's");
    assert_eq!(zombie.store.saves(), 1, "the next beat found the snapshot taken");
    assert_eq!(task.status().await.unwrap(), SnapshotStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn turns_that_were_finished_are_not_repeated() {
    let (first, second) = Worker::two();
    let mut connection = first.agent.connect(AgentInit::session("s"));
    for text in ["one", "two", "three"] {
        connection.send(text).await.unwrap();
    }
    connection.detach().await.unwrap();
    let id = connection.output().await.unwrap().snapshot_id.unwrap();
    first.gate.add_permits(1);
    settle().await;
    let shown = first.agent.get_snapshot(id.clone()).await.unwrap();
    let raw = first.snapshot(&id).await;
    let saves = first.store.saves();
    first.lose();

    elapse(A_WHILE).await;
    let _ = second.agent.recover().await;
    second.gate.add_permits(2);
    second.agent.idle().await;

    assert_eq!(first.turns(), ["one", "two"]);
    assert_eq!(second.turns(), ["two", "three"]);
    assert_eq!(
        saves, 2,
        "the pending snapshot, and one record of the finished turn"
    );
    assert!(raw.state.is_some() && shown.state.is_none() && shown.bookkeeping.is_empty());
    let snapshot = second.agent.get_snapshot(id).await.unwrap();
    assert_eq!(snapshot.status, SnapshotStatus::Completed);
    assert_eq!(
        texts(&snapshot.state.unwrap().messages),
        ["one", "re: one", "two", "re: two", "three", "re: three"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_the_same_number_and_snapshot_on_every_worker() {
    let clock = clock();
    let places = Arc::<Mutex<Vec<_>>>::default();
    let agent = |store: FaultyStore, stuck: bool| {
        let places = Arc::clone(&places);
        handling("worker", move |turn: Turn| {
            let places = Arc::clone(&places);
            async move {
                let place = TurnContext::current().unwrap();
                places
                    .lock()
                    .unwrap()
                    .push((place.turn_index, place.snapshot_id.clone()));
                if stuck && said(&turn) == "two" {
                    turn.context().ended().await;
                }
                reply(turn).await
            }
        })
        .clock(clock.clone())
        .store(store)
        .define()
        .unwrap()
    };
    let store = FaultyStore::default();
    let (first, second) = (agent(store.clone(), true), agent(store.elsewhere(), false));
    let mut connection = first.connect(AgentInit::session("s"));
    connection.send("one").await.unwrap();
    connection.send(AgentInput::from("two").detached()).await.unwrap();
    let id = connection.output().await.unwrap().snapshot_id;
    settle().await;
    store.fail_saves(true);

    elapse(A_WHILE).await;
    let _ = second.recover().await;
    second.idle().await;

    let places = places.lock().unwrap().clone();
    assert_eq!(places.len(), 3, "{places:?}");
    assert_eq!(places[1], places[2]);
    assert_eq!(places[2], (1, id));
}

#[tokio::test(start_paused = true)]
async fn an_abort_reaches_the_worker_that_took_the_run_over() {
    let (first, second) = Worker::two();
    let task = first.detach("plan").await;
    first.lose();
    elapse(A_WHILE).await;
    let _ = second.agent.recover().await;
    settle().await;

    let abort = second
        .agent
        .abort(task.snapshot_id().clone())
        .await
        .unwrap()
        .unwrap();
    second.agent.idle().await;

    assert_eq!(abort.previous, SnapshotStatus::Pending);
    let snapshot = second.snapshot(task.snapshot_id()).await;
    assert_eq!(snapshot.status, SnapshotStatus::Aborted);
    assert!(snapshot.finish_reason.is_some() && snapshot.state.is_some() && snapshot.bookkeeping.is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_run_outlasts_the_loss_of_its_worker() {
    let (first, second) = Worker::two();
    second.gate.add_permits(1);
    let task = first.detach("plan").await;
    first.lose();

    let (waited, _) = tokio::join!(task.wait(), async {
        elapse(A_WHILE + Duration::from_secs(20)).await;
        second.agent.recover().await
    });

    assert_eq!(waited.unwrap().text(), "re: plan");
}

#[tokio::test(start_paused = true)]
async fn turns_without_a_snapshot_of_their_own_are_not_lost_with_the_worker() {
    let clock = clock();
    let sparse = |store| {
        Worker::with(store, &clock, |agent| {
            agent
                .snapshots(SnapshotPolicy::never())
                .prompt_input(json!({"tone": "kind"}))
        })
    };
    let first = sparse(FaultyStore::default());
    let second = sparse(first.store.elsewhere());
    first.gate.add_permits(1);
    let mut connection = first.agent.connect(AgentInit::session("s"));
    connection.send("one").await.unwrap();
    while connection.next().await.unwrap().turn_end.is_none() {}
    connection.send(AgentInput::from("two").detached()).await.unwrap();
    let id = connection.output().await.unwrap().snapshot_id.unwrap();
    settle().await;
    first.lose();
    elapse(A_WHILE).await;

    let _ = second.agent.recover().await;
    second.gate.add_permits(1);
    second.agent.idle().await;

    let state = second.snapshot(&id).await.state.unwrap();
    assert_eq!(texts(&state.messages), ["one", "re: one", "two", "re: two"]);
    assert_eq!(state.prompt_input.as_deref(), Some(&json!({"tone": "kind"})));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_takes_over_restores_whether_the_inputs_are_a_clients() {
    for (of_program, status) in [(true, SnapshotStatus::Completed), (false, SnapshotStatus::Failed)] {
        let (first, second) = Worker::two();
        let input = AgentInput::from("two").with_instructions("Be brief.").detached();
        let id = if of_program {
            let mut connection = first.agent.connect(AgentInit::session("s"));
            connection.send("one").await.unwrap();
            connection.send(input).await.unwrap();
            connection.output().await
        } else {
            let mut connection = first.agent.action().connect(AgentInit::session("s"));
            connection.send(AgentInput::from("one")).await.unwrap();
            connection.send(input).await.unwrap();
            connection.output().await
        };
        let id = id.unwrap().snapshot_id.unwrap();
        settle().await;
        // The second input is not looked at before its worker is lost.
        first.lose();
        elapse(A_WHILE).await;

        let _ = second.agent.recover().await;
        second.gate.add_permits(2);
        second.agent.idle().await;

        let snapshot = second.snapshot(&id).await;
        assert_eq!(snapshot.status, status, "{snapshot:?}");
        assert_eq!(second.turns().contains(&"two".to_owned()), of_program);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_an_unreadable_lease_is_neither_written_nor_taken_over() {
    let (first, second) = Worker::two();
    let task = first.detach("plan").await;
    let later_version = json!({"backgroundRun": {"format": 2, "holder": "somebody"}});
    let later_version: Bookkeeping = serde_json::from_value(later_version).unwrap();
    let lease = later_version.clone();
    let taken = Mutation::new(move |run| {
        Ok(run.map(|run| Snapshot {
            bookkeeping: lease.clone(),
            ..run.clone()
        }))
    });
    let id = task.snapshot_id();
    let scope = Scope::default();
    let save = second.store.save(&scope, Some(id), Precondition::None, taken);
    let held = save.await.unwrap().unwrap();

    elapse(A_WHILE).await;
    let recovery = second.agent.recover().await;
    first.gate.add_permits(1);
    first.agent.idle().await;

    assert_eq!(
        first.snapshot(id).await,
        held,
        "neither a heartbeat nor an end is written"
    );
    assert_eq!(held.bookkeeping, later_version);
    assert!(recovery.taken_over.is_empty() && recovery.given_up.is_empty());
    let message = recovery.failures[0].message();
    for word in [id.as_str(), "'s'", "backgroundRun"] {
        assert!(message.contains(word), "{message}");
    }
}
