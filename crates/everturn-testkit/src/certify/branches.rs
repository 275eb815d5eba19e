//! Checks that a turn is rejected if another one follows the snapshot it continues, and for no other reason.

use std::sync::Arc;

use everturn_agent::store::{
    Deletion, Detail, JournalGuard, JournalKey, JournalRecord, Lease, Precondition, Scope, SessionStore,
    TIP_MOVED,
};
use everturn_agent::{Snapshot, SnapshotId, SnapshotStatus};
use everturn_core::{Error, Status};
use serde_json::json;

use super::atomicity::{ROUNDS, WRITERS, at_once};
use super::row::{get, put, row, save, save_in, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "a branch does not block a turn elsewhere" => a_branch_is_not_in_the_way,
    "of two turns that continue one snapshot the second is refused" => the_second_turn_is_refused,
    "a snapshot that is orphaned or of another session follows no other" => only_kept_rows_follow,
    "a failed or aborted turn that is kept is a successor" => kept_failures_follow,
    "of many turns that continue one snapshot exactly one succeeds" => one_turn_succeeds,
    "a record is written while branches grow elsewhere" => a_record_is_written_beside_branches,
}

fn named(id: &str) -> Option<SnapshotId> {
    (!id.is_empty()).then(|| id.into())
}

/// Creates a snapshot that follows another, or begins the session if `parent` is empty.
fn after(parent: &str, id: &str, seconds: i64) -> Snapshot {
    let mut row = row("s", id, seconds);
    row.parent_id = named(parent);
    row
}

/// Creates the precondition of a turn that continues this snapshot, or begins the session if the id is empty.
fn continuing(id: &str) -> Precondition {
    Precondition::unfollowed(named(id))
}

async fn commit(
    store: &dyn SessionStore,
    row: Snapshot,
    precondition: Precondition,
) -> Result<Option<Snapshot>, Error> {
    let id = row.snapshot_id.clone();
    store.save(&scope(), Some(&id), precondition, put(row)).await
}

/// Commits a turn after the snapshot it continues.
async fn take_turn(store: &dyn SessionStore, parent: &str, id: &str, seconds: i64) -> Verdict {
    let committed = commit(store, after(parent, id, seconds), continuing(parent)).await;
    ensure!(
        matches!(committed, Ok(Some(_))),
        "'{id}' after '{parent}', which nothing follows: {committed:?}"
    );
    Ok(())
}

async fn refuse_turn(store: &dyn SessionStore, parent: &str, id: &str, seconds: i64) -> Verdict {
    let refused = commit(store, after(parent, id, seconds), continuing(parent)).await;
    let is_refused = refused
        .as_ref()
        .is_err_and(|error| error.status() == Status::Aborted && error.is(TIP_MOVED));
    ensure!(
        is_refused,
        "'{id}' must not follow '{parent}' any more: {refused:?}"
    );
    let read = store.get(&scope(), &id.into(), Detail::Metadata).await;
    ensure!(matches!(read, Ok(None)), "a refused snapshot is there: {read:?}");
    Ok(())
}

async fn a_branch_is_not_in_the_way(store: Arc<dyn SessionStore>) -> Verdict {
    take_turn(&*store, "", "a", 1).await?;
    take_turn(&*store, "a", "b", 2).await?;

    let branch = commit(&*store, after("a", "c", 3), Precondition::None).await;
    ensure!(
        matches!(branch, Ok(Some(_))),
        "a branch at an earlier snapshot: {branch:?}"
    );

    take_turn(&*store, "b", "d", 4).await?;
    take_turn(&*store, "c", "e", 5).await?;
    take_turn(&*store, "d", "f", 6).await?;
    let latest = store.latest(&scope(), &"s".into(), Detail::Metadata).await;
    let latest = latest.map(|row| row.map(|row| row.snapshot_id.to_string()));
    ensure!(
        matches!(&latest, Ok(Some(id)) if id == "f"),
        "of all branches 'f' was created last, not {latest:?}"
    );
    for id in ["a", "b", "c", "d", "e", "f"] {
        ensure!(
            get(&*store, id).await?.is_some(),
            "'{id}' was committed and is missing"
        );
    }
    Ok(())
}

async fn the_second_turn_is_refused(store: Arc<dyn SessionStore>) -> Verdict {
    take_turn(&*store, "", "a", 1).await?;
    refuse_turn(&*store, "", "again", 2).await?;
    take_turn(&*store, "a", "b", 2).await?;
    refuse_turn(&*store, "a", "late", 3).await?;
    refuse_turn(&*store, "nowhere", "lost", 3).await?;
    save(&*store, row("other", "foreign", 1)).await?;
    refuse_turn(&*store, "foreign", "astray", 3).await?;

    // An unfinished run counts as a successor, like a finished turn.
    let mut run = after("b", "run", 4);
    run.status = SnapshotStatus::Pending;
    let begun = commit(&*store, run, continuing("b")).await;
    ensure!(matches!(begun, Ok(Some(_))), "a run at the tip: {begun:?}");
    refuse_turn(&*store, "b", "c", 5).await?;
    let passing = Precondition::Unfollowed {
        snapshot: Some("b".into()),
        beside: vec!["run".into()],
    };
    let beside = commit(&*store, after("b", "c", 5), passing.clone()).await;
    ensure!(
        matches!(beside, Ok(Some(_))),
        "a turn that passes over the run: {beside:?}"
    );
    let second = commit(&*store, after("b", "d", 6), passing).await;
    ensure!(
        second.is_err_and(|error| error.is(TIP_MOVED)),
        "two turns passed over one run"
    );

    let deletion = Deletion::Snapshots(vec!["c".into(), "run".into()]);
    let deleted = store.delete(&scope(), &deletion).await;
    ensure!(
        matches!(deleted, Ok(2)),
        "two snapshots were deleted: {deleted:?}"
    );
    take_turn(&*store, "b", "new", 7).await?;
    let deletion = Deletion::Session("s".into());
    store
        .delete(&scope(), &deletion)
        .await
        .map_err(|error| error.to_string())?;
    refuse_turn(&*store, "new", "ghost", 8).await
}

async fn only_kept_rows_follow(store: Arc<dyn SessionStore>) -> Verdict {
    save(&*store, row("s", "a", 1)).await?;
    let mut orphaned = after("a", "orphaned", 3);
    orphaned.orphaned = true;
    save(&*store, orphaned.clone()).await?;
    // The clock of another runtime was slow.
    save(&*store, after("a", "early", 0)).await?;
    let mut foreign = row("other", "foreign", 4);
    foreign.parent_id = Some("a".into());
    save(&*store, foreign).await?;
    let stranger = Scope::new("stranger");
    save_in(&*store, &stranger, after("a", "strange", 4)).await?;

    take_turn(&*store, "a", "b", 5).await?;

    let deletion = Deletion::Snapshots(vec!["b".into()]);
    store
        .delete(&scope(), &deletion)
        .await
        .map_err(|error| error.to_string())?;
    orphaned.orphaned = false;
    save(&*store, orphaned.clone()).await?;
    refuse_turn(&*store, "a", "c", 6).await?;
    orphaned.orphaned = true;
    save(&*store, orphaned).await?;
    refuse_turn(&*store, "orphaned", "d", 6).await?;
    take_turn(&*store, "a", "e", 6).await?;
    // A snapshot that is written again does not count as its own successor.
    take_turn(&*store, "a", "e", 6).await
}

/// A failed turn contains its finished rounds, so a turn that began before it must not be committed next to
/// it.
async fn kept_failures_follow(store: Arc<dyn SessionStore>) -> Verdict {
    for (parent, status) in [("a", SnapshotStatus::Failed), ("b", SnapshotStatus::Aborted)] {
        save(&*store, row("s", parent, 1)).await?;
        let mut kept = after(parent, &format!("{parent}-kept"), 2);
        kept.status = status;
        save(&*store, kept).await?;
        refuse_turn(&*store, parent, &format!("{parent}-late"), 3).await?;
        take_turn(&*store, &format!("{parent}-kept"), &format!("{parent}-next"), 4).await?;
    }
    Ok(())
}

async fn one_turn_succeeds(store: Arc<dyn SessionStore>) -> Verdict {
    let mut tip = begin_branching(&*store).await?;
    for round in 1..=ROUNDS {
        let results = at_once(&store, |writer, store| {
            let tip = tip.clone();
            async move { continue_or_branch(&*store, writer, round, tip).await }
        })
        .await?;

        tip = judge(round, results.into_iter().map(|result| result.is_ok()))?;
    }
    Ok(())
}

/// Writes a snapshot for branches and the tip that follows it, which it returns.
pub(super) async fn begin_branching(store: &dyn SessionStore) -> Result<SnapshotId, String> {
    save(store, row("s", "root", 0)).await?;
    Ok(save(store, after("root", "turn-0", 1)).await?.snapshot_id)
}

/// Makes one writer's commit of a round: every other writer continues the tip, and the rest begin branches at
/// the first snapshot.
pub(super) async fn continue_or_branch(
    store: &dyn SessionStore,
    writer: u64,
    round: u64,
    tip: SnapshotId,
) -> Result<Option<Snapshot>, Error> {
    let seconds = i64::try_from(round).expect("a small number") + 1;
    if writer.is_multiple_of(2) {
        let turn = after(tip.as_str(), &turn_id(round, writer), seconds);
        return commit(store, turn, Precondition::unfollowed(Some(tip))).await;
    }
    let branch = after("root", &format!("branch-{round}-{writer}"), seconds);
    commit(store, branch, Precondition::None).await
}

fn turn_id(round: u64, writer: u64) -> String {
    format!("turn-{round}-{writer}")
}

/// Checks a round of [`continue_or_branch`] by the successful writers, and returns the tip after it.
pub(super) fn judge(round: u64, succeeded: impl Iterator<Item = bool>) -> Result<SnapshotId, String> {
    let (mut winners, mut branches) = (Vec::new(), 0);
    for (writer, _) in (0..).zip(succeeded).filter(|(_, succeeded)| *succeeded) {
        if u64::is_multiple_of(writer, 2) {
            winners.push(writer);
        } else {
            branches += 1;
        }
    }
    let begun = WRITERS / 2;
    ensure!(branches == begun, "of {begun} branches {branches} were kept");
    match winners[..] {
        [winner] => Ok(turn_id(round, winner).as_str().into()),
        _ => Err(format!("{} turns continued one snapshot", winners.len())),
    }
}

async fn a_record_is_written_beside_branches(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    let key = JournalKey::new("s".into(), "t");
    let write = async |sequence: u64| {
        let guard = JournalGuard::new("own".into(), Lease::first(), continuing("b"));
        let record = JournalRecord {
            sequence,
            body: json!(sequence),
        };
        let written = journal.append(&scope(), &key, record, Some(&guard)).await;
        written.map_err(|error| error.status())
    };
    take_turn(&*store, "", "a", 1).await?;
    take_turn(&*store, "a", "b", 2).await?;

    ensure!(write(0).await == Ok(()), "at the tip");
    save(&*store, after("a", "c", 3)).await?;
    ensure!(write(1).await == Ok(()), "with a branch elsewhere");
    take_turn(&*store, "b", "d", 4).await?;
    ensure!(
        write(2).await == Err(Status::Aborted),
        "a record was written although another turn had been faster"
    );
    Ok(())
}
