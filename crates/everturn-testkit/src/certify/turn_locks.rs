//! Checks that turn locks, if a store supports them, exclude, expire and fence.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{
    Detail, JournalGuard, JournalKey, JournalRecord, Lease, LockGrant, LockRequest, Precondition, ResumeAt,
    Scope, SessionStore, TIP_MOVED, TURN_LOCK_LOST, TurnLocks,
};
use everturn_agent::{Snapshot, SnapshotId};
use everturn_core::{Error, Status};
use serde_json::json;

use super::row::{put, row, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "of many turns that ask for one place one holds the lock" => one_turn_holds_the_lock,
    "locks of tenants, sessions and branches are apart" => locks_are_apart,
    "a lapsed lock goes to the next turn, and a renewed one does not" => an_expired_lock_is_granted_again,
    "a turn that lost its lock cannot commit" => a_fenced_turn_cannot_commit,
    "a turn that lost its lock cannot write a record" => a_fenced_turn_cannot_record,
    "a turn that is too late is not granted its lock" => a_late_turn_is_refused,
    "a turn at a recalled snapshot is granted its lock only while nothing has changed" => recalled_turns_are_checked,
    "waiting turns are granted the lock in order" => waiting_turns_take_their_turn,
    "a lock goes along with its branch" => a_lock_goes_along,
}

/// A lease that does not expire during a check.
const LONG: Duration = Duration::from_mins(5);

/// A lease that expires at once.
const SHORT: Duration = Duration::from_millis(50);

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn message(error: Error) -> String {
    format!("{error:?}")
}

fn after(snapshot: &str) -> Precondition {
    Precondition::unfollowed((!snapshot.is_empty()).then(|| snapshot.into()))
}

/// Creates the request of a turn for the lock of the branch that ends at a snapshot.
fn request(snapshot: &str, turn: &str, lease: Duration) -> LockRequest {
    LockRequest::new("s".into(), turn.into(), after(snapshot), lease)
}

async fn take(locks: &dyn TurnLocks, request: &LockRequest) -> Result<LockGrant, String> {
    locks.take(&scope(), request).await.map_err(message)
}

async fn is_held(locks: &dyn TurnLocks, snapshot: &str, turn: &str) -> Result<bool, String> {
    Ok(take(locks, &request(snapshot, turn, LONG)).await? == LockGrant::Held)
}

async fn lapse() {
    tokio::time::sleep(SHORT * 4).await;
}

/// Begins session `s` with a snapshot `a`.
async fn begin(store: &dyn SessionStore) -> Verdict {
    let saved = store
        .save(
            &scope(),
            Some(&"a".into()),
            Precondition::None,
            put(row("s", "a", 1)),
        )
        .await;
    saved.map(drop).map_err(message)
}

/// Commits a snapshot after another one under the lock of a turn.
async fn commit(
    store: &dyn SessionStore,
    (parent, id, seconds): (&str, &str, i64),
    turn: &str,
    releases: bool,
) -> Result<Option<Snapshot>, Error> {
    let mut next = row("s", id, seconds);
    next.parent_id = (!parent.is_empty()).then(|| parent.into());
    let held = Precondition::Held {
        turn: turn.into(),
        releases,
        and: Box::new(after(parent)),
    };
    store.save(&scope(), Some(&id.into()), held, put(next)).await
}

async fn one_turn_holds_the_lock(store: Arc<dyn SessionStore>) -> Verdict {
    if store.turn_locks().is_none() {
        return Ok(());
    }
    // At the beginning of a session that does not exist, and after its first snapshot.
    for place in ["", "a"] {
        let asked = (0..16).map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let locks = store.turn_locks().ok_or("the store has stopped keeping locks")?;
                let turn = format!("turn-{place}-{number}");
                Ok::<_, String>((take(locks, &request(place, &turn, LONG)).await?, turn))
            })
        });
        let mut holder = None;
        let mut named = Vec::new();
        for asked in futures::future::join_all(asked).await {
            match asked.map_err(|error| error.to_string())?? {
                (LockGrant::Held, turn) => {
                    ensure!(holder.is_none(), "'{turn}' and {holder:?} hold one lock");
                    holder = Some(SnapshotId::from(turn));
                }
                (LockGrant::Taken { by }, _) => named.push(by),
            }
        }
        ensure!(
            holder.is_some() && named.iter().all(|by| Some(by) == holder.as_ref()),
            "{holder:?} holds the lock, and others received {named:?} as its holders"
        );
        begin(&*store).await?;
    }
    Ok(())
}

async fn locks_are_apart(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(locks) = store.turn_locks() else {
        return Ok(());
    };
    begin(&*store).await?;
    let mut branch = row("s", "b", 2);
    branch.parent_id = Some("a".into());
    let mut other = row("s", "c", 3);
    other.parent_id = Some("a".into());
    for row in [branch, other] {
        let id = row.snapshot_id.clone();
        let saved = store
            .save(&scope(), Some(&id), Precondition::None, put(row))
            .await;
        saved.map_err(message)?;
    }

    ensure!(
        is_held(locks, "b", "turn-1").await?,
        "the lock of a branch is not free"
    );
    ensure!(
        is_held(locks, "c", "turn-2").await?,
        "a lock of another branch blocks the turn"
    );
    let elsewhere = LockRequest::new("other".into(), "turn-3".into(), after(""), LONG);
    ensure!(
        take(locks, &elsewhere).await? == LockGrant::Held,
        "a lock of another session blocks the turn"
    );
    let tenant = Scope::new("another tenant");
    let foreign = request("", "turn-4", LONG);
    let granted = locks.take(&tenant, &foreign).await.map_err(message)?;
    ensure!(
        granted == LockGrant::Held,
        "a lock of another tenant blocks the turn"
    );
    locks
        .release(&tenant, &"s".into(), &"turn-1".into())
        .await
        .map_err(message)?;
    ensure!(
        !is_held(locks, "b", "turn-5").await?,
        "another tenant released a lock"
    );
    Ok(())
}

async fn an_expired_lock_is_granted_again(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(locks) = store.turn_locks() else {
        return Ok(());
    };
    begin(&*store).await?;
    take(locks, &request("a", "turn-1", SHORT)).await?;
    let (session, holder) = ("s".into(), SnapshotId::from("turn-1"));
    let renewed = locks.renew(&scope(), &session, &holder, LONG).await;
    ensure!(
        renewed.map_err(message)?,
        "a turn that holds its lock cannot renew it"
    );
    lapse().await;
    ensure!(
        !is_held(locks, "a", "turn-2").await?,
        "a renewed lock was given away"
    );

    let renewed = locks.renew(&scope(), &session, &holder, SHORT).await;
    ensure!(
        renewed.map_err(message)?,
        "a turn that holds its lock cannot renew it"
    );
    lapse().await;

    ensure!(
        is_held(locks, "a", "turn-2").await?,
        "a lapsed lock does not let go"
    );
    let renewed = locks.renew(&scope(), &session, &holder, LONG).await;
    ensure!(
        !renewed.map_err(message)?,
        "a turn renewed a lock that another turn has"
    );
    Ok(())
}

async fn a_fenced_turn_cannot_commit(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(locks) = store.turn_locks() else {
        return Ok(());
    };
    begin(&*store).await?;
    take(locks, &request("a", "turn-1", SHORT)).await?;
    lapse().await;
    ensure!(
        is_held(locks, "a", "turn-2").await?,
        "a lapsed lock does not let go"
    );

    let fenced = commit(&*store, ("a", "late", 2), "turn-1", true).await;
    ensure!(
        matches!(&fenced, Err(error) if error.status() == Status::Aborted && error.is(TURN_LOCK_LOST)),
        "a turn whose lock another turn has: {fenced:?}"
    );
    let holder = commit(&*store, ("a", "b", 3), "turn-2", true).await;
    ensure!(
        matches!(holder, Ok(Some(_))),
        "the turn that holds the lock: {holder:?}"
    );
    let again = commit(&*store, ("b", "c", 4), "turn-2", true).await;
    ensure!(
        matches!(&again, Err(error) if error.is(TURN_LOCK_LOST)),
        "a commit that releases its lock left it behind: {again:?}"
    );
    // An expired lock that no other turn took still belongs to its holder.
    take(locks, &request("b", "turn-3", SHORT)).await?;
    lapse().await;
    let slow = commit(&*store, ("b", "c", 4), "turn-3", true).await;
    ensure!(
        matches!(slow, Ok(Some(_))),
        "an expired lock that was not taken: {slow:?}"
    );
    Ok(())
}

async fn a_fenced_turn_cannot_record(store: Arc<dyn SessionStore>) -> Verdict {
    let (Some(locks), Some(journal)) = (store.turn_locks(), store.journal()) else {
        return Ok(());
    };
    begin(&*store).await?;
    let record = |sequence: u64, turn: &str| {
        let guard = JournalGuard::new(
            turn.into(),
            Lease::first(),
            Precondition::Held {
                turn: turn.into(),
                releases: false,
                and: Box::new(after("a")),
            },
        );
        let record = JournalRecord {
            sequence,
            body: json!(turn),
        };
        async move {
            let key = JournalKey::new("s".into(), "t");
            journal.append(&scope(), &key, record, Some(&guard)).await
        }
    };
    take(locks, &request("a", "turn-1", SHORT)).await?;
    for sequence in 0..2 {
        record(sequence, "turn-1").await.map_err(message)?;
    }
    lapse().await;
    ensure!(
        is_held(locks, "a", "turn-2").await?,
        "a lapsed lock does not let go"
    );

    let fenced = record(2, "turn-1").await;
    ensure!(
        matches!(&fenced, Err(error) if error.status() == Status::Aborted && error.is(TURN_LOCK_LOST)),
        "a record of a turn whose lock another turn has: {fenced:?}"
    );
    record(2, "turn-2").await.map_err(message)
}

async fn a_late_turn_is_refused(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(locks) = store.turn_locks() else {
        return Ok(());
    };
    let refused = async |request: &LockRequest| {
        let refused = locks.take(&scope(), request).await;
        let is_late =
            matches!(&refused, Err(error) if error.status() == Status::Aborted && error.is(TIP_MOVED));
        ensure!(is_late, "a turn that was too late: {refused:?}");
        Ok(())
    };
    begin(&*store).await?;
    refused(&request("", "turn-1", LONG)).await?;
    ensure!(is_held(locks, "a", "turn-2").await?, "a free lock is not granted");
    commit(&*store, ("a", "b", 2), "turn-2", true)
        .await
        .map_err(message)?;

    refused(&request("a", "turn-3", LONG)).await?;
    refused(&request("a", "turn-3", LONG).waiting()).await?;
    refused(&LockRequest::new(
        "s".into(),
        "turn-4".into(),
        Precondition::Tip(Some("a".into())),
        LONG,
    ))
    .await
}

async fn recalled_turns_are_checked(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(locks) = store.turn_locks() else {
        return Ok(());
    };
    begin(&*store).await?;
    for at in [ResumeAt::Tip("s".into()), ResumeAt::Snapshot("a".into())] {
        let Some(recalled) = locks.recall(&scope(), &at).await else {
            // A store may keep nothing in memory.
            continue;
        };
        let stored = store.latest(&scope(), &"s".into(), Detail::Whole).await;
        let stored = stored.map_err(message)?;
        ensure!(
            stored.as_ref() == Some(&recalled.snapshot),
            "{recalled:?} was recalled, and {stored:?} is stored"
        );
        let free = request("a", "turn-1", LONG).as_of(recalled.version);
        let granted = take(locks, &free).await?;
        ensure!(
            granted == LockGrant::Held,
            "an unchanged session is not granted: {granted:?}"
        );
        let released = locks.release(&scope(), &"s".into(), &"turn-1".into()).await;
        released.map_err(message)?;

        let mut noted = recalled.snapshot.clone();
        noted.note = Some(format!("{} was here", recalled.version));
        let changed = store
            .save(&scope(), Some(&"a".into()), Precondition::None, put(noted))
            .await;
        changed.map_err(message)?;

        let stale = request("a", "turn-2", LONG).as_of(recalled.version);
        let refused = locks.take(&scope(), &stale).await;
        ensure!(
            matches!(&refused, Err(error) if error.is(TIP_MOVED)),
            "the session has changed since it was recalled: {refused:?}"
        );
    }
    let other = Scope::new("another tenant");
    for at in [ResumeAt::Tip("s".into()), ResumeAt::Snapshot("a".into())] {
        let foreign = locks.recall(&other, &at).await;
        ensure!(foreign.is_none(), "another tenant recalls {foreign:?}");
    }
    Ok(())
}

async fn waiting_turns_take_their_turn(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(locks) = store.turn_locks() else {
        return Ok(());
    };
    begin(&*store).await?;
    let waiting = |turn: &str| request("a", turn, LONG).waiting();
    ensure!(is_held(locks, "a", "turn-1").await?, "a free lock is not granted");
    for turn in ["turn-2", "turn-3", "turn-4"] {
        let granted = take(locks, &waiting(turn)).await?;
        ensure!(
            granted == LockGrant::Taken { by: "turn-1".into() },
            "a turn that waits: {granted:?}"
        );
    }
    // A turn that died while it waited is skipped.
    take(locks, &request("a", "turn-2", SHORT).waiting()).await?;
    lapse().await;
    locks
        .release(&scope(), &"s".into(), &"turn-1".into())
        .await
        .map_err(message)?;

    ensure!(
        take(locks, &waiting("turn-4")).await? != LockGrant::Held,
        "a turn was granted the lock before one that waited longer"
    );
    ensure!(
        !is_held(locks, "a", "turn-5").await?,
        "a turn that does not wait was granted the lock before those that do"
    );
    ensure!(
        take(locks, &waiting("turn-3")).await? == LockGrant::Held,
        "the turn that waited longest is not granted the free lock"
    );
    locks
        .release(&scope(), &"s".into(), &"turn-3".into())
        .await
        .map_err(message)?;
    ensure!(
        take(locks, &waiting("turn-4")).await? == LockGrant::Held,
        "the last turn in the queue is not granted the free lock"
    );
    Ok(())
}

async fn a_lock_goes_along(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(locks) = store.turn_locks() else {
        return Ok(());
    };
    begin(&*store).await?;
    ensure!(is_held(locks, "a", "turn-1").await?, "a free lock is not granted");
    take(locks, &request("a", "turn-2", LONG).waiting()).await?;

    // A turn keeps its lock until its end.
    commit(&*store, ("a", "b", 2), "turn-1", false)
        .await
        .map_err(message)?;
    ensure!(
        !is_held(locks, "b", "turn-3").await?,
        "a commit in the middle of a turn released the lock"
    );
    commit(&*store, ("b", "c", 3), "turn-1", true)
        .await
        .map_err(message)?;

    ensure!(
        !is_held(locks, "c", "turn-3").await?,
        "a turn was granted the lock before one that waited since an earlier snapshot"
    );
    ensure!(
        take(locks, &request("c", "turn-2", LONG).waiting()).await? == LockGrant::Held,
        "a turn that waited since an earlier snapshot is not granted the lock"
    );
    let committed = commit(&*store, ("c", "d", 4), "turn-2", true).await;
    ensure!(
        matches!(committed, Ok(Some(_))),
        "the turn that waited: {committed:?}"
    );
    ensure!(is_held(locks, "d", "turn-4").await?, "the lock was not released");
    Ok(())
}
