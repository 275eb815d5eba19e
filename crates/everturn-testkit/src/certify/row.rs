//! The snapshots of the checks, and checks that a snapshot is read as written.

use std::sync::Arc;

use everturn_agent::store::{Bookkeeping, Detail, Lease, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{Artifact, SessionId, SessionState, Snapshot, SnapshotId, SnapshotStatus};
use everturn_ai::{History, Message, Part};
use everturn_core::{Error, Status};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Verdict, ensure, list_promises};

list_promises! {
    "a snapshot is read as it was written" => a_snapshot_is_read_as_it_was_written,
    "unknown fields and part kinds survive" => unknown_fields_survive,
    "the framework's bookkeeping in a snapshot survives" => bookkeeping_survives,
    "metadata is read without the state" => metadata_is_read_without_the_state,
    "a mutation sees the snapshot, may decline and may fail" => a_mutation_sees_declines_and_fails,
    "a final snapshot keeps its status" => a_final_snapshot_keeps_its_status,
    "times and status are the caller's" => times_are_the_callers,
    "branches of one history stay apart" => branches_stay_apart,
}

/// Returns the scope of most checks.
pub(super) fn scope() -> Scope {
    Scope::default()
}

/// Returns the time that many seconds after a fixed one.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_760_000_000 + seconds).expect("a moment of this century")
}

/// Creates a completed snapshot with a small conversation.
pub(super) fn row(session: &str, id: &str, seconds: i64) -> Snapshot {
    let mut row = Snapshot::new(SnapshotId::from(id), SessionId::from(session), at(seconds));
    row.updated_at = Some(at(seconds));
    row.state = Some(state(session, &[&format!("said in {id}")]));
    row
}

pub(super) fn state(session: &str, texts: &[&str]) -> SessionState {
    SessionState {
        session_id: Some(SessionId::from(session)),
        messages: texts.iter().map(|text| Message::user(*text)).collect(),
        ..SessionState::default()
    }
}

/// Creates the bookkeeping of a background run with this lease.
pub(super) fn background_run(lease: &Value) -> Bookkeeping {
    let mut run = json!({"agent": "chef", "attempts": 1, "turns": 0, "novelty": [1]});
    for (key, value) in lease.as_object().into_iter().flatten() {
        run[key] = value.clone();
    }
    serde_json::from_value(json!({ "backgroundRun": run })).expect("any JSON is read as bookkeeping")
}

/// Creates a mutation that writes a snapshot over any existing one.
pub(super) fn put(row: Snapshot) -> Mutation {
    Mutation::new(move |_| Ok(Some(row.clone())))
}

pub(super) async fn save(store: &dyn SessionStore, row: Snapshot) -> Result<Snapshot, String> {
    save_in(store, &scope(), row).await
}

pub(super) async fn save_in(
    store: &dyn SessionStore,
    scope: &Scope,
    row: Snapshot,
) -> Result<Snapshot, String> {
    let id = row.snapshot_id.clone();
    let saved = store.save(scope, Some(&id), Precondition::None, put(row)).await;
    saved
        .map_err(|error| format!("saving '{id}': {error:?}"))?
        .ok_or_else(|| format!("saving '{id}' wrote nothing"))
}

pub(super) async fn get(store: &dyn SessionStore, id: &str) -> Result<Option<Snapshot>, String> {
    let read = store.get(&scope(), &SnapshotId::from(id), Detail::Whole).await;
    read.map_err(|error| format!("reading '{id}': {error:?}"))
}

async fn a_snapshot_is_read_as_it_was_written(store: Arc<dyn SessionStore>) -> Verdict {
    let mut full = row("s", "full", 1);
    full.parent_id = Some("parent".into());
    full.status = SnapshotStatus::Failed;
    full.finish_reason = Some(everturn_agent::AgentFinishReason::Failed);
    full.error = Some(
        Error::internal("it broke")
            .with_details(json!({"where": "kitchen"}))
            .to_wire(everturn_core::Exposure::Full),
    );
    full.heartbeat_at = Some(at(2));
    full.index = Some(3);
    full.turn_index = Some(4);
    full.labels = vec!["good".to_owned(), "ünïcödé ✓".to_owned()];
    full.note = Some("a note".to_owned());
    let state = full.state.as_mut().expect("snapshots here have states");
    state.custom = Some(Arc::new(
        json!({"deep": {"list": [1, 2.5, null, "x"]}, "big": "y".repeat(200_000)}),
    ));
    state.artifacts = Arc::new(vec![
        Artifact::text("doc", "z".repeat(100_000)),
        Artifact::unnamed("unnamed"),
    ]);
    state.prompt_input = Some(Arc::new(json!({"tone": "kind"})));
    state.messages.push(Message::model(vec![
        Part::text("text"),
        Part::data(json!({"a": [true]})),
    ]));

    save(&*store, full.clone()).await?;
    let read = get(&*store, "full").await?;

    ensure!(read.as_ref() == Some(&full), "wrote {full:?}, read {read:?}");

    // The status in which another runtime leaves a run that it stops.
    let mut stopping = row("s", "stopping", 9);
    stopping.status = SnapshotStatus::Aborting;
    stopping.heartbeat_at = Some(at(9));
    stopping.state = None;
    save(&*store, stopping.clone()).await?;
    let read = get(&*store, "stopping").await?;
    let latest = store.latest(&scope(), &"s".into(), Detail::Whole).await;
    let latest = latest.map_err(|error| format!("reading the latest of 's': {error:?}"))?;

    ensure!(
        read.as_ref() == Some(&stopping),
        "wrote {stopping:?}, read {read:?}"
    );
    ensure!(latest == read, "the latest snapshot is {latest:?}");
    ensure!(
        get(&*store, "nowhere").await?.is_none(),
        "a snapshot that was never written was read"
    );
    Ok(())
}

async fn unknown_fields_survive(store: Arc<dyn SessionStore>) -> Verdict {
    let written = json!({
        "snapshotId": "odd", "sessionId": "s", "createdAt": "2026-01-02T03:04:05Z", "status": "completed",
        "novelty": {"of": "a later version"},
        "state": {
            "sessionId": "s", "stateNovelty": 1,
            "messages": [{"role": "user", "content": [{"hologram": {"depth": 3}}, {"text": "hi", "tint": "blue"}], "mood": "good"}],
        },
    });
    let row: Snapshot = serde_json::from_value(written.clone()).map_err(|error| error.to_string())?;

    save(&*store, row).await?;
    let read = get(&*store, "odd").await?.ok_or("the snapshot is not there")?;

    let read = serde_json::to_value(read).map_err(|error| error.to_string())?;
    ensure!(read == written, "wrote {written}, read {read}");
    Ok(())
}

async fn bookkeeping_survives(store: Arc<dyn SessionStore>) -> Verdict {
    let rewind = json!({"unfinishedRewind": {"keep": "a"}, "openTurn": {"journal": "j", "records": 1}});
    let unreadable = json!({"backgroundRun": "of a later version", "openTurn": [1], "unfinishedRewind": {}});
    let read = |notes| serde_json::from_value::<Bookkeeping>(notes).map_err(|error| error.to_string());
    let notes = [
        background_run(&json!(Lease::first())),
        read(rewind)?,
        read(unreadable)?,
    ];
    for (number, notes) in notes.into_iter().enumerate() {
        let mut written = row("s", &format!("noted {number}"), 1);
        written.status = SnapshotStatus::Pending;
        written.bookkeeping = notes;
        save(&*store, written.clone()).await?;

        let metadata = store.get(&scope(), &written.snapshot_id, Detail::Metadata).await;
        let metadata = metadata.map_err(|error| error.to_string())?;
        let whole = get(&*store, written.snapshot_id.as_str()).await?;

        for read in [metadata, whole] {
            let read = read.map(|read| read.bookkeeping);
            ensure!(
                read.as_ref() == Some(&written.bookkeeping),
                "wrote {:?}, read {read:?}",
                written.bookkeeping
            );
        }
    }
    Ok(())
}

async fn metadata_is_read_without_the_state(store: Arc<dyn SessionStore>) -> Verdict {
    save(&*store, row("s", "a", 1)).await?;

    let read = store
        .get(&scope(), &"a".into(), Detail::Metadata)
        .await
        .map_err(|error| error.to_string())?;

    let read = read.ok_or("the snapshot is not there")?;
    ensure!(read.state.is_none(), "the state was read too");
    ensure!(
        read.created_at == at(1),
        "the metadata is not the snapshot's: {read:?}"
    );
    Ok(())
}

async fn a_mutation_sees_declines_and_fails(store: Arc<dyn SessionStore>) -> Verdict {
    let id = SnapshotId::from("a");
    let create = Mutation::new(|existing| match existing {
        None => Ok(Some(row("s", "a", 1))),
        Some(_) => Err(Error::internal("a snapshot that was never written was shown")),
    });
    let created = store.save(&scope(), Some(&id), Precondition::None, create).await;
    ensure!(matches!(created, Ok(Some(_))), "creating a snapshot: {created:?}");

    let declined = store
        .save(
            &scope(),
            Some(&id),
            Precondition::None,
            Mutation::new(|_| Ok(None)),
        )
        .await;
    ensure!(
        matches!(declined, Ok(None)),
        "a mutation that wrote nothing: {declined:?}"
    );

    let failing = Mutation::new(|_| Err(Error::aborted("changed my mind")));
    let failed = store.save(&scope(), Some(&id), Precondition::None, failing).await;
    let status = failed.as_ref().err().map(Error::status);
    ensure!(
        status == Some(Status::Aborted),
        "a mutation's error must come back as it is: {failed:?}"
    );

    let read = get(&*store, "a").await?;
    ensure!(
        read == Some(row("s", "a", 1)),
        "the snapshot changed although nothing was written: {read:?}"
    );
    Ok(())
}

async fn a_final_snapshot_keeps_its_status(store: Arc<dyn SessionStore>) -> Verdict {
    for status in [
        SnapshotStatus::Completed,
        SnapshotStatus::Failed,
        SnapshotStatus::Aborted,
    ] {
        let id = format!("{status:?}");
        let mut over = row("s", &id, 1);
        over.status = status;
        save(&*store, over.clone()).await?;
        for other in [
            SnapshotStatus::Pending,
            SnapshotStatus::Completed,
            SnapshotStatus::Failed,
            SnapshotStatus::Aborted,
        ] {
            let mut changed = over.clone();
            changed.status = other;
            let saved = store
                .save(
                    &scope(),
                    Some(&over.snapshot_id),
                    Precondition::None,
                    put(changed),
                )
                .await;
            let status_of = saved.as_ref().map(|_| ()).map_err(Error::status);
            let expected = if other == status {
                Ok(())
            } else {
                Err(Status::FailedPrecondition)
            };
            ensure!(status_of == expected, "{status:?} to {other:?}: {saved:?}");
        }
        let mut labelled = over.clone();
        labelled.labels = vec!["kept".to_owned()];
        save(&*store, labelled.clone()).await?;
        ensure!(
            get(&*store, &id).await? == Some(labelled),
            "a label on a finished snapshot was not kept"
        );
    }
    let mut expired = row("s", "expired", 1);
    expired.status = SnapshotStatus::Expired;
    ensure!(save(&*store, expired).await.is_err(), "'expired' was stored");
    Ok(())
}

async fn times_are_the_callers(store: Arc<dyn SessionStore>) -> Verdict {
    let mut pending = row("s", "a", 5);
    pending.status = SnapshotStatus::Pending;
    pending.heartbeat_at = Some(at(6));
    save(&*store, pending.clone()).await?;
    let mut beat = pending.clone();
    beat.heartbeat_at = Some(at(7));
    save(&*store, beat.clone()).await?;

    ensure!(
        get(&*store, "a").await? == Some(beat),
        "a heartbeat changed more than itself"
    );
    Ok(())
}

async fn branches_stay_apart(store: Arc<dyn SessionStore>) -> Verdict {
    let trunk = History::from_iter([Message::user("one"), Message::model("two")]);
    let mut expected = Vec::new();
    for branch in 0..5 {
        let mut history = trunk.clone();
        history.push(Message::user(format!("branch {branch}")));
        let mut row = row("s", &format!("b{branch}"), branch);
        row.state.as_mut().expect("snapshots here have states").messages = history;
        save(&*store, row.clone()).await?;
        expected.push(row);
    }
    // This branch starts from a history that was read from the store.
    let read = get(&*store, "b0").await?.ok_or("the snapshot is not there")?;
    let mut history = read.state.expect("snapshots here have states").messages;
    history.push(Message::model("and on"));
    let mut further = row("s", "b0-1", 9);
    further
        .state
        .as_mut()
        .expect("snapshots here have states")
        .messages = history;
    save(&*store, further.clone()).await?;
    expected.push(further);

    for row in expected {
        let read = get(&*store, row.snapshot_id.as_str()).await?;
        ensure!(read.as_ref() == Some(&row), "wrote {row:?}, read {read:?}");
    }
    Ok(())
}
