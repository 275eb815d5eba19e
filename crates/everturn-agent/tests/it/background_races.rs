//! A detach or an abort that comes at the worst moment.

use everturn_agent::{
    Abort, Agent, AgentConnection, AgentFinishReason, AgentInit, AgentInput, AgentTask, Snapshot,
    SnapshotStatus, Turn,
};
use everturn_core::Status;
use everturn_testkit::Gate;

use crate::support::{FaultyStore, Held, handling, reply, replying, snapshots, texts};

/// An agent whose first turn is about to be saved, or has been without knowing it.
async fn saving(moment: Held) -> (FaultyStore, Agent, AgentConnection, Gate) {
    let store = FaultyStore::default();
    let gate = store.hold_next_save(moment);
    let agent = replying("worker").store(store.clone()).define().unwrap();
    let connection = agent.connect(AgentInit::session("s"));
    connection.send("one").await.unwrap();
    gate.reached().await;
    (store, agent, connection, gate)
}

/// The snapshots after a detach with the message `two` that came while the first turn was being saved.
async fn detached_meanwhile(moment: Held) -> Vec<Snapshot> {
    let (store, agent, mut connection, gate) = saving(moment).await;
    let detach = AgentInput::from("two").detached();
    connection.send(detach).await.unwrap();
    // The driver has received it: there is room for more, which stays unread.
    let _ = connection.send("three").await;

    gate.open();
    let output = connection.output().await.unwrap();
    agent.idle().await;

    assert_eq!(output.finish_reason, Some(AgentFinishReason::Detached));
    let snapshots = snapshots(&store, &"s".into()).await;
    assert_eq!(
        snapshots.last().map(|snapshot| snapshot.snapshot_id.clone()),
        output.snapshot_id
    );
    snapshots
}

#[tokio::test(start_paused = true)]
async fn a_detach_that_meets_the_write_of_a_turn_makes_a_chain() {
    for moment in [Held::Before, Held::After] {
        let snapshots = detached_meanwhile(moment).await;

        let [turn, run] = snapshots.as_slice() else {
            panic!("a snapshot for the turn and one for the run, not {snapshots:?}");
        };
        assert_eq!((turn.status, &turn.parent_id), (SnapshotStatus::Completed, &None));
        assert_eq!(
            (run.status, run.parent_id.as_ref()),
            (SnapshotStatus::Completed, Some(&turn.snapshot_id)),
            "the run continues the turn's snapshot"
        );
        assert_eq!(texts(&turn.state.as_ref().unwrap().messages), ["one", "re: one"]);
        assert_eq!(
            texts(&run.state.as_ref().unwrap().messages),
            ["one", "re: one", "two", "re: two"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_a_turn_is_saved_leaves_the_turn_behind() {
    for moment in [Held::Before, Held::After] {
        let (store, agent, connection, gate) = saving(moment).await;

        drop(connection);
        gate.open();
        agent.idle().await;

        let snapshots = snapshots(&store, &"s".into()).await;
        assert_eq!(snapshots.len(), 1, "{snapshots:?}");
        assert_eq!(snapshots[0].status, SnapshotStatus::Completed);
    }
}

/// Work that does not listen to its cancellation, and ends when the gate is open.
fn deaf(store: &FaultyStore) -> (Agent, Gate) {
    let gate = Gate::new();
    let agent = {
        let gate = gate.clone();
        handling("worker", move |turn: Turn| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                reply(turn).await
            }
        })
        .store(store.clone())
        .define()
        .unwrap()
    };
    (agent, gate)
}

/// A run in the background whose work stands at the gate.
async fn under_way(agent: &Agent, gate: &Gate) -> AgentTask {
    let mut chat = agent.chat().resume("s").open().await.unwrap();
    let task = chat.detach("plan").await.unwrap();
    gate.reached().await;
    task
}

/// A run that another process aborts while its end is being written, after everything has ended.
async fn aborted_at_its_end(moment: Held) -> (Abort, AgentTask) {
    let store = FaultyStore::default();
    let (agent, gate) = deaf(&store);
    let task = under_way(&agent, &gate).await;
    let writing = store.hold_next_save(moment);
    gate.open();
    writing.reached().await;

    // Past the held write: the snapshot as another process has it.
    let elsewhere = replying("worker").store(store.elsewhere()).define().unwrap();
    let aborted = elsewhere.abort(task.snapshot_id().clone()).await;
    writing.open();
    agent.idle().await;
    (aborted.unwrap().unwrap(), task)
}

#[tokio::test(start_paused = true)]
async fn work_that_completes_after_it_was_aborted_leaves_its_state_and_changes_no_status() {
    let (agent, gate) = deaf(&FaultyStore::default());
    let task = under_way(&agent, &gate).await;

    let aborted = task.abort().await.unwrap().unwrap();
    gate.open();
    agent.idle().await;
    let snapshot = task.poll().await.unwrap();

    assert_eq!(aborted.status, SnapshotStatus::Aborted);
    assert_eq!(
        (snapshot.status, snapshot.finish_reason),
        (SnapshotStatus::Aborted, Some(AgentFinishReason::Aborted))
    );
    assert_eq!(snapshot.state.unwrap().messages.len(), 2);
    assert_eq!(task.wait().await.unwrap_err().status(), Status::Aborted);
}

#[tokio::test(start_paused = true)]
async fn an_abort_wins_over_an_end_that_is_being_written() {
    let (aborted, task) = aborted_at_its_end(Held::Before).await;
    let snapshot = task.poll().await.unwrap();

    assert_eq!(
        (aborted.previous, snapshot.status),
        (SnapshotStatus::Pending, SnapshotStatus::Aborted)
    );
    assert_eq!(snapshot.state.unwrap().messages.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_written_is_not_aborted_any_more() {
    let (aborted, task) = aborted_at_its_end(Held::After).await;

    assert_eq!(
        (aborted.previous, aborted.status),
        (SnapshotStatus::Completed, SnapshotStatus::Completed)
    );
    assert_eq!(task.wait().await.unwrap().text(), "re: plan");
}
