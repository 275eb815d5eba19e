//! Checks that journals, if a store keeps them, are reliable.

use std::sync::Arc;

use everturn_agent::store::{
    Deletion, Journal, JournalGuard, JournalKey, JournalQuery, JournalRecord, Lease, Precondition,
    RECORD_TAKEN, Scope, SessionStore, UnfinishedTurn,
};
use everturn_agent::{SnapshotId, SnapshotStatus};
use everturn_core::{Error, Status};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::row::{background_run, put, row, save, save_in, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "a journal is read as it was written, in order" => a_journal_is_read_as_it_was_written,
    "a record number of a journal is written once" => a_number_is_written_once,
    "a record is written only if its guard allows it" => a_guard_is_obeyed,
    "a record of a background run is written only under its lease" => a_lease_is_obeyed,
    "journals of turns, sessions and tenants are apart" => journals_are_apart,
    "a dropped journal is removed and can be started again" => a_dropped_journal_is_removed,
    "a commit drops the journals of its turns, and only a commit" => a_commit_drops_journals,
    "a deleted session leaves no journal" => a_deleted_session_leaves_no_journal,
    "old journals are swept and young ones stay" => old_journals_are_swept,
    "a journal that is kept goes with its session, and not before" => kept_journals_stay_with_their_session,
    "the journals of unfinished turns are found, page by page" => unfinished_turns_are_found,
    "a journal with an unknown outcome is not swept" => unknown_outcomes_are_not_swept,
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn message(error: Error) -> String {
    format!("{error:?}")
}

fn turn(session: &str, turn: &str) -> JournalKey {
    JournalKey::new(session.into(), turn)
}

async fn write(journal: &dyn Journal, key: &JournalKey, sequence: u64, body: Value) -> Result<(), Error> {
    journal
        .append(&scope(), key, JournalRecord { sequence, body }, None)
        .await
}

async fn bodies(journal: &dyn Journal, scope: &Scope, key: &JournalKey) -> Result<Vec<(u64, Value)>, String> {
    let is_said_to_be_empty = journal.is_known_empty(scope, key.session());
    let records = journal.read(scope, key).await.map_err(message)?;
    ensure!(
        records.is_empty() || !is_said_to_be_empty,
        "session '{}' has a journal, and the store reports none",
        key.session()
    );
    Ok(records
        .into_iter()
        .map(|record| (record.sequence, record.body))
        .collect())
}

async fn a_journal_is_read_as_it_was_written(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    let key = turn("s", "t");
    let written: Vec<(u64, Value)> = (0..12)
        .map(|number| {
            (
                number,
                json!({"number": number, "text": "ünïcödé ✓".repeat(500), "list": [1.5, null]}),
            )
        })
        .collect();
    ensure!(
        bodies(journal, &scope(), &key).await?.is_empty(),
        "a journal that was never written was read"
    );

    for (number, body) in &written {
        write(journal, &key, *number, body.clone())
            .await
            .map_err(message)?;
    }

    let read = bodies(journal, &scope(), &key).await?;
    ensure!(read == written, "wrote {written:?}, read {read:?}");
    Ok(())
}

async fn a_number_is_written_once(store: Arc<dyn SessionStore>) -> Verdict {
    let key = turn("s", "t");
    for number in 0..4 {
        let writers = (0..16).map(|writer| {
            let (store, key) = (Arc::clone(&store), key.clone());
            tokio::spawn(async move {
                match store.journal() {
                    Some(journal) => Some(write(journal, &key, number, json!(writer)).await),
                    None => None,
                }
            })
        });
        let mut winner = None;
        for (writer, written) in futures::future::join_all(writers).await.into_iter().enumerate() {
            match written.map_err(|error| error.to_string())? {
                None => return Ok(()),
                Some(Ok(())) => {
                    ensure!(winner.is_none(), "number {number} was written twice");
                    winner = Some(writer);
                }
                Some(Err(error)) => ensure!(
                    error.status() == Status::Aborted && error.is(RECORD_TAKEN),
                    "a number that is taken: {error:?}"
                ),
            }
        }
        let journal = store.journal().ok_or("the store has stopped keeping journals")?;
        let read = bodies(journal, &scope(), &key).await?;
        let last = read.last().map(|(_, body)| body.clone());
        ensure!(
            winner.is_some() && last == winner.map(|writer| json!(writer)),
            "writer {winner:?} received a success, and {last:?} was read"
        );
    }
    Ok(())
}

async fn a_guard_is_obeyed(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    let key = turn("s", "t");
    save_in(&*store, &Scope::new("stranger"), row("s", "own", 9)).await?;
    // Allows a record while there is no snapshot 'own' and the latest is the expected one.
    let guard = |expected: Option<&'static str>| {
        let tip = Precondition::Tip(expected.map(SnapshotId::from));
        JournalGuard::new("own".into(), Lease::first(), tip)
    };
    let write = async |sequence: u64, expected: Option<&'static str>| {
        let record = JournalRecord {
            sequence,
            body: json!(sequence),
        };
        let written = journal
            .append(&scope(), &key, record, Some(&guard(expected)))
            .await;
        written.map_err(|error| error.status())
    };

    ensure!(write(0, None).await == Ok(()), "in a session without snapshots");
    ensure!(
        write(1, Some("a")).await == Err(Status::Aborted),
        "a guard was shown a snapshot that is not there"
    );
    save(&*store, row("s", "a", 1)).await?;
    ensure!(
        write(1, None).await == Err(Status::Aborted),
        "a record was written although the session had moved on"
    );
    ensure!(
        write(1, Some("a")).await == Ok(()),
        "at the session's latest snapshot"
    );
    save(&*store, row("s", "own", 2)).await?;
    ensure!(
        write(2, Some("own")).await == Err(Status::Aborted),
        "a record was written although the turn's snapshot was there"
    );
    let read = bodies(journal, &scope(), &key).await?;
    ensure!(read == [(0, json!(0)), (1, json!(1))], "read {read:?}");
    Ok(())
}

async fn a_lease_is_obeyed(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    let lease = Lease::first();
    let guard = JournalGuard::new("run".into(), lease, Precondition::Tip(None));
    let another = serde_json::json!({"worker": "00000000-0000-0000-0000-000000000001", "epoch": 2});
    let unreadable = serde_json::json!({"epoch": "two"});
    let mut sequence = 0;
    for (status, lease, expected) in [
        (SnapshotStatus::Pending, Some(json!(lease)), Ok(())),
        (SnapshotStatus::Pending, None, Ok(())),
        (SnapshotStatus::Pending, Some(another), Err(Status::Aborted)),
        (SnapshotStatus::Pending, Some(unreadable), Err(Status::DataLoss)),
        (SnapshotStatus::Aborted, Some(json!(lease)), Err(Status::Aborted)),
    ] {
        let mut run = row("s", "run", 1);
        run.status = status;
        run.bookkeeping = lease.as_ref().map(background_run).unwrap_or_default();
        save(&*store, run).await?;

        let record = JournalRecord {
            sequence,
            body: json!(sequence),
        };
        let written = journal
            .append(&scope(), &turn("s", "t"), record, Some(&guard))
            .await
            .map_err(|error| error.status());

        ensure!(
            written == expected,
            "a record of a run that is {status:?} under the lease {lease:?}: {written:?}"
        );
        sequence += u64::from(written.is_ok());
    }
    let read = bodies(journal, &scope(), &turn("s", "t")).await?;
    ensure!(read.len() == 2, "read {read:?}");
    Ok(())
}

async fn journals_are_apart(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    let stranger = Scope::new("stranger");
    let keys = [turn("s", "t"), turn("s", "u"), turn("r", "t")];
    for (number, key) in keys.iter().enumerate() {
        write(journal, key, 0, json!(number)).await.map_err(message)?;
    }
    let own = JournalRecord {
        sequence: 0,
        body: json!("own"),
    };
    let written = journal.append(&stranger, &keys[0], own, None).await;
    ensure!(
        written.is_ok(),
        "a stranger's journal of the same turn: {written:?}"
    );

    for (number, key) in keys.iter().enumerate() {
        let read = bodies(journal, &scope(), key).await?;
        ensure!(read == [(0, json!(number))], "{key:?} reads as {read:?}");
    }
    journal.clear(&stranger, &keys[0]).await.map_err(message)?;
    let read = bodies(journal, &scope(), &keys[0]).await?;
    ensure!(read.len() == 1, "a stranger dropped the journal");
    Ok(())
}

async fn a_dropped_journal_is_removed(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    let (gone, stays) = (turn("s", "gone"), turn("s", "stays"));
    for key in [&gone, &stays] {
        write(journal, key, 0, json!(1)).await.map_err(message)?;
    }

    for _ in 0..2 {
        journal.clear(&scope(), &gone).await.map_err(message)?;
        ensure!(
            bodies(journal, &scope(), &gone).await?.is_empty(),
            "a dropped journal is still read"
        );
    }

    write(journal, &gone, 0, json!(2)).await.map_err(message)?;
    ensure!(
        bodies(journal, &scope(), &gone).await? == [(0, json!(2))],
        "a journal cannot be begun again"
    );
    ensure!(
        bodies(journal, &scope(), &stays).await?.len() == 1,
        "a neighbour was dropped too"
    );
    Ok(())
}

async fn a_commit_drops_journals(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    let (held, other) = (turn("s", "held"), turn("s", "other"));
    for key in [&held, &other] {
        write(journal, key, 0, json!(1)).await.map_err(message)?;
    }
    let journals = [held.clone()];
    let refused = store
        .commit(
            &scope(),
            Some(&"a".into()),
            Precondition::Tip(Some("nowhere".into())),
            put(row("s", "a", 1)),
            &journals,
        )
        .await;
    ensure!(refused.is_err(), "a commit at a tip that is none succeeded");
    ensure!(
        bodies(journal, &scope(), &held).await?.len() == 1,
        "a commit that failed dropped a journal"
    );

    store
        .commit(
            &scope(),
            Some(&"a".into()),
            Precondition::Tip(None),
            put(row("s", "a", 1)),
            &journals,
        )
        .await
        .map_err(message)?;

    ensure!(
        bodies(journal, &scope(), &held).await?.is_empty(),
        "the journal of a committed turn is still there"
    );
    ensure!(
        bodies(journal, &scope(), &other).await?.len() == 1,
        "the journal of another turn was dropped"
    );
    Ok(())
}

async fn a_deleted_session_leaves_no_journal(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    // One session has a snapshot; the other ended during its first turn.
    save(&*store, row("row", "a", 1)).await?;
    for session in ["row", "none", "stays"] {
        write(journal, &turn(session, "t"), 0, json!(1))
            .await
            .map_err(message)?;
    }

    for session in ["row", "none"] {
        let deletion = Deletion::Session(session.into());
        store.delete(&scope(), &deletion).await.map_err(message)?;
        ensure!(
            bodies(journal, &scope(), &turn(session, "t")).await?.is_empty(),
            "the journal of the deleted session '{session}' is still there"
        );
    }
    ensure!(
        bodies(journal, &scope(), &turn("stays", "t")).await?.len() == 1,
        "the journal of another session was deleted"
    );
    Ok(())
}

async fn old_journals_are_swept(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    let key = turn("s", "t");
    write(journal, &key, 0, json!(1)).await.map_err(message)?;
    let hour = SignedDuration::from_hours(1);
    let now = Timestamp::now();

    let early = journal.sweep(now - hour).await.map_err(message)?;
    let kept = bodies(journal, &scope(), &key).await?.len();
    let late = journal.sweep(now + hour).await.map_err(message)?;
    let left = bodies(journal, &scope(), &key).await?.len();

    ensure!(
        (early, kept) == (0, 1),
        "a young journal was swept ({early} gone, {kept} records left)"
    );
    ensure!(
        (late, left) == (1, 0),
        "an old journal was not swept ({late} gone, {left} records left)"
    );
    Ok(())
}

async fn kept_journals_stay_with_their_session(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    save(&*store, row("s", "a", 1)).await?;
    let key = JournalKey::kept("s".into(), "question");
    write(journal, &key, 0, json!(1)).await.map_err(message)?;
    let later = Timestamp::now() + SignedDuration::from_hours(1);

    let swept = journal.sweep(later).await.map_err(message)?;
    let kept = bodies(journal, &scope(), &key).await?.len();
    let again = write(journal, &key, 0, json!(2)).await;
    let deletion = Deletion::Session("s".into());
    store.delete(&scope(), &deletion).await.map_err(message)?;
    let left = bodies(journal, &scope(), &key).await?.len();

    ensure!(
        (swept, kept) == (0, 1),
        "a journal that is kept as long as its session was swept ({swept} gone, {kept} records left)"
    );
    ensure!(again.is_err(), "a number of a kept journal was written twice");
    ensure!(left == 0, "a kept journal is still there after its session");
    Ok(())
}

/// Returns every journal that a query selects, read in pages of two.
async fn unfinished(journal: &dyn Journal, mut query: JournalQuery) -> Result<Vec<UnfinishedTurn>, String> {
    query.limit = 2;
    let mut found = Vec::new();
    loop {
        let page = journal.unfinished(&query).await.map_err(message)?;
        ensure!(
            page.items.len() <= 2,
            "a page of two has {} journals",
            page.items.len()
        );
        found.extend(page.items);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(found),
        }
    }
}

async fn unfinished_turns_are_found(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    save(&*store, row("a", "a1", 1)).await?;
    let stranger = Scope::new("stranger");
    // The first turn of session `b` died, so that the session has no snapshot.
    let places = [
        (scope(), turn("a", "t")),
        (scope(), turn("a", "u")),
        (scope(), turn("b", "t")),
        (stranger.clone(), turn("a", "t")),
    ];
    let guard = JournalGuard::new("own".into(), Lease::first(), Precondition::None);
    let record = |sequence: u64| JournalRecord {
        sequence,
        body: json!({"number": sequence}),
    };
    let kept = (scope(), JournalKey::kept("a".into(), "question"));
    let earlier = Timestamp::now() - SignedDuration::from_hours(1);
    for (scope, key) in places.iter().chain([&kept]) {
        for number in 0..2 {
            let written = journal.append(scope, key, record(number), Some(&guard)).await;
            written.map_err(message)?;
        }
    }
    let later = Timestamp::now() + SignedDuration::from_hours(1);
    let since = |moment: Timestamp| {
        let mut query = JournalQuery::of_tenant(scope());
        query.since = Some(moment);
        query
    };
    let of = |range: std::ops::Range<usize>| places[range].to_vec();
    for (what, query, expected) in [
        ("of all tenants", JournalQuery::default(), of(0..4)),
        ("of a tenant", JournalQuery::of_tenant(scope()), of(0..3)),
        (
            "of a session",
            JournalQuery::of_session(scope(), "a".into()),
            of(0..2),
        ),
        (
            "of a session without a snapshot",
            JournalQuery::of_session(scope(), "b".into()),
            of(2..3),
        ),
        ("of another tenant", JournalQuery::of_tenant(stranger), of(3..4)),
        (
            "before they were written",
            JournalQuery::of_tenant(scope()).before(earlier),
            of(0..0),
        ),
        (
            "before a later moment",
            JournalQuery::of_tenant(scope()).before(later),
            of(0..3),
        ),
        ("since they were written", since(earlier), of(0..3)),
        ("since a later moment", since(later), of(0..0)),
    ] {
        let mut found = Vec::new();
        for unfinished in unfinished(journal, query).await? {
            ensure!(
                unfinished.records == [record(0), record(1)],
                "{what}: the journal {:?} was listed with {:?}",
                unfinished.key,
                unfinished.records
            );
            ensure!(
                (earlier..later).contains(&unfinished.added_at),
                "{what}: the journal {:?} was listed as of {}",
                unfinished.key,
                unfinished.added_at
            );
            found.push((unfinished.scope, unfinished.key));
        }
        found.sort();
        let mut expected = expected;
        expected.sort();
        ensure!(
            found == expected,
            "{what}: found {found:?}, expected {expected:?}"
        );
    }
    journal.clear(&scope(), &places[0].1).await.map_err(message)?;
    let left = unfinished(journal, JournalQuery::of_session(scope(), "a".into())).await?;
    ensure!(left.len() == 1, "a dropped journal is still listed: {left:?}");
    Ok(())
}

async fn unknown_outcomes_are_not_swept(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(journal) = store.journal() else {
        return Ok(());
    };
    let now = Timestamp::now();
    let begun = json!({"agent": "desk", "name": "book", "beganAt": now, "snapshot": "own"});
    let started = json!({"kind": "started", "effect": "e", "call": "c", "begun": begun});
    let ended = |outcome: Value| json!({"kind": "ended", "effect": "e", "call": "c", "outcome": outcome});
    let failed = json!({"kind": "failed", "effect": "e"});
    let question = json!({"interrupted": {"outcomeUnknown": true}});
    for (name, end, stays) in [
        ("begun", None, true),
        ("asked", Some(ended(question)), true),
        ("ended", Some(ended(json!({"finished": {"output": 1}}))), false),
        ("failed", Some(failed), false),
    ] {
        let key = turn("s", name);
        let entries = [Some(started.clone()), end];
        for (number, entry) in entries.into_iter().flatten().enumerate() {
            let body = json!({"by": "a worker", "entries": [entry]});
            write(journal, &key, number as u64, body).await.map_err(message)?;
        }

        let later = now + SignedDuration::from_hours(1);
        let swept = journal.sweep(later).await.map_err(message)?;
        let left = bodies(journal, &scope(), &key).await?.len();
        journal.clear(&scope(), &key).await.map_err(message)?;

        ensure!(
            (swept == 0, left > 0) == (stays, stays),
            "of the journal of a call that {name}, {left} records are left ({swept} swept)"
        );
    }
    Ok(())
}
