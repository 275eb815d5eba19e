//! A background run does not continue from an imported file: the file may have been edited.

use everturn_agent::SnapshotStatus;
use everturn_agent::archive::{Archive, Import};
use everturn_agent::store::{Scope, SnapshotQuery};
use everturn_testkit::elapse;
use serde_json::{Value, json};

use crate::support::FaultyStore;
use crate::takeover_support::{A_WHILE, Worker, clock};

/// Exports session `s`, in which a run is pending, and edits the line of the run.
async fn edited(worker: &Worker, edit: impl Fn(&mut Value)) -> Vec<u8> {
    let archive = Archive::of(worker.store.clone(), Scope::default());
    let mut file = Vec::new();
    archive.export("s", &mut file).await.unwrap();
    let lines = std::str::from_utf8(&file).unwrap().lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let run = line.pointer_mut("/row/snapshot");
        if let Some(run) = run.filter(|snapshot| snapshot["status"] == "pending") {
            edit(run);
        }
        line.to_string()
    });
    lines.collect::<Vec<_>>().join("\n").into_bytes()
}

/// Returns the statuses of all snapshots in the store.
async fn statuses(archive: &Archive, session: &str) -> Vec<SnapshotStatus> {
    let query = SnapshotQuery::of(session.into()).with_orphaned().whole();
    let snapshots = archive.list(&query).await.unwrap().items;
    for snapshot in &snapshots {
        assert!(snapshot.bookkeeping.is_empty(), "{snapshot:?}");
        assert_eq!(snapshot.heartbeat_at, None);
    }
    snapshots.into_iter().map(|snapshot| snapshot.status).collect()
}

#[tokio::test(start_paused = true)]
async fn recovery_takes_no_imported_run_over_whatever_the_file_says() {
    let forgeries: [fn(&mut Value); 4] = [
        |_| {},
        |run| run["backgroundRun"]["principal"] = json!({"id": "root", "roles": ["operator"]}),
        |run| run["status"] = "aborting".into(),
        |run| run["openTurn"] = json!({"journal": "of another session", "records": 1}),
    ];
    for forged in forgeries {
        let worker = Worker::new(FaultyStore::default(), &clock());
        let _ = worker.detach("pay").await;
        let file = edited(&worker, forged).await;

        for how in [
            Import::default(),
            Import::default().replacing(),
            Import::default().into_session("t"),
        ] {
            let thief = Worker::new(FaultyStore::default(), &clock());
            let archive = Archive::of(thief.store.clone(), Scope::default());
            let replaced = how == Import::default().replacing();
            if replaced {
                thief.gate.add_permits(1);
                thief.agent.chat().resume("s").run("hi").await.unwrap();
            }
            let imported = archive.import(file.as_slice(), how).await.unwrap();
            elapse(A_WHILE).await;

            let recovery = thief.agent.recover().await;

            assert!(
                recovery.taken_over.is_empty() && recovery.given_up.is_empty(),
                "{recovery:?}"
            );
            assert!(recovery.failures.is_empty(), "{recovery:?}");
            let session = imported.session_id.as_str();
            assert_eq!(statuses(&archive, session).await, [SnapshotStatus::Aborted]);
            let turns = usize::from(replaced);
            assert_eq!(thief.turns().len(), turns, "no turn of the file runs");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copied_run_is_not_continued_and_the_original_is() {
    let (first, second) = Worker::two();
    let task = first.detach("plan").await;
    let archive = Archive::of(second.store.clone(), Scope::default());
    archive.copy("s", "t").await.unwrap();
    first.lose();
    elapse(A_WHILE).await;

    let recovery = second.agent.recover().await;
    second.gate.add_permits(1);
    second.agent.idle().await;

    let taken: Vec<_> = recovery.taken_over.iter().map(|run| &run.snapshot_id).collect();
    assert_eq!(taken, [task.snapshot_id()]);
    assert_eq!(task.status().await.unwrap(), SnapshotStatus::Completed);
}
