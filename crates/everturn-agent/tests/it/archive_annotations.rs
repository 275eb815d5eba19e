//! Labels and notes on snapshots.

use everturn_agent::archive::{Archive, MAX_LABEL, MAX_LABELS, MAX_NOTE};
use everturn_agent::store::MemoryStore;
use everturn_agent::{SnapshotId, SnapshotStatus};
use everturn_core::Status;

use crate::support::replying;

async fn archive_with_one() -> (Archive, SnapshotId) {
    let agent = replying("chef").store(MemoryStore::new()).define().unwrap();
    let reply = agent.chat().resume("s").run("one").await.unwrap();
    (agent.archive().unwrap(), reply.snapshot_id().unwrap().clone())
}

#[tokio::test]
async fn a_final_snapshot_takes_labels_and_notes_and_keeps_everything_else() {
    let (archive, id) = archive_with_one().await;
    let before = archive.get(id.clone()).await.unwrap();

    archive.label(id.clone(), "good").await.unwrap();
    archive.label(id.clone(), "Küche 🥬").await.unwrap();
    archive.label(id.clone(), "good").await.unwrap();
    let after = archive
        .annotate(id.clone(), "Leeks!\n\tMore leeks.")
        .await
        .unwrap();

    assert_eq!(after.labels, ["good", "Küche 🥬"]);
    assert_eq!(after.note.as_deref(), Some("Leeks!\n\tMore leeks."));
    assert_eq!(after.status, SnapshotStatus::Completed);
    assert!(after.updated_at > before.updated_at);
    let unannotated = everturn_agent::Snapshot {
        labels: Vec::new(),
        note: None,
        updated_at: before.updated_at,
        ..after.clone()
    };
    assert_eq!(unannotated, before);
    assert_eq!(archive.get(id).await.unwrap(), after);
}

#[tokio::test]
async fn labels_and_notes_can_be_removed() {
    let (archive, id) = archive_with_one().await;
    archive.label(id.clone(), "good").await.unwrap();
    archive.annotate(id.clone(), "note").await.unwrap();

    archive.unlabel(id.clone(), "never there").await.unwrap();
    archive.unlabel(id.clone(), "good").await.unwrap();
    let snapshot = archive.annotate(id, "").await.unwrap();

    assert!(snapshot.labels.is_empty() && snapshot.note.is_none());
}

#[tokio::test]
async fn doing_nothing_writes_nothing() {
    let (archive, id) = archive_with_one().await;
    let before = archive.label(id.clone(), "good").await.unwrap();

    let again = archive.label(id.clone(), "good").await.unwrap();
    let none = archive.annotate(id, "").await.unwrap();

    assert_eq!((&again, &none), (&before, &before));
}

#[tokio::test]
async fn hostile_text_is_refused() {
    let (archive, id) = archive_with_one().await;
    let long = "x".repeat(MAX_LABEL + 1);
    for label in [
        "",
        " ",
        " x",
        "x ",
        "a\nb",
        "\u{1b}[2J",
        "a\u{202e}b",
        "\0",
        long.as_str(),
    ] {
        let error = archive.label(id.clone(), label).await.unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{label:?}");
    }
    let long = "x".repeat(MAX_NOTE + 1);
    for note in ["\u{1b}]0;x", "a\rb", "\0", "a\u{2066}b", long.as_str()] {
        let error = archive.annotate(id.clone(), note).await.unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{note:?}");
    }

    let snapshot = archive.get(id).await.unwrap();

    assert!(snapshot.labels.is_empty() && snapshot.note.is_none());
}

#[tokio::test]
async fn a_snapshot_has_room_for_so_many_labels() {
    let (archive, id) = archive_with_one().await;
    for number in 0..MAX_LABELS {
        archive.label(id.clone(), number.to_string()).await.unwrap();
    }

    let error = archive.label(id.clone(), "one more").await.unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(
        archive.label(id.clone(), "0").await.is_ok(),
        "one that is there is no more"
    );
    assert_eq!(archive.get(id).await.unwrap().labels.len(), MAX_LABELS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_put_on_at_the_same_time_are_all_there() {
    let (archive, id) = archive_with_one().await;

    let tasks = (0..16).map(|number| {
        let (archive, id) = (archive.clone(), id.clone());
        tokio::spawn(async move { archive.label(id, format!("label {number}")).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }

    assert_eq!(archive.get(id).await.unwrap().labels.len(), 16);
}
