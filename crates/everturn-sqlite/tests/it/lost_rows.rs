//! After any external change to a database, a reader gets either the written data or an error that names the
//! damage.

use std::path::Path;
use std::sync::Arc;

use everturn_agent::store::{
    Deletion, Detail, Journal, JournalKey, JournalRecord, Precondition, SessionStore,
};
use everturn_agent::{Snapshot, SnapshotId};
use everturn_ai::{Message, Part};
use everturn_core::Status;
use everturn_sqlite::SqliteStore;
use serde_json::json;

use crate::support::{Fixture, at, noise, open, path, put, row, scope, set};

const SESSIONS: usize = 12;
const TURNS: i64 = 5;

/// Conversations with every form of stored data: long strings, compressed texts, patches, forks.
fn rows() -> Vec<Snapshot> {
    let mut random = fastrand::Rng::with_seed(5);
    let mut rows = Vec::new();
    for session in 0..SESSIONS {
        let name = format!("session-{session}");
        let mut state = everturn_agent::SessionState::default();
        for turn in 0..TURNS {
            state
                .messages
                .push(Message::user(format!("turn {turn} of {name}")));
            let answer = match turn {
                0 => vec![Part::media(format!("data:,{}", noise(&mut random, 20_000)))],
                1 => vec![Part::text("leeks and potatoes ".repeat(60))],
                _ => vec![Part::data(json!({"turn": turn, "dish": "soup"}))],
            };
            state.messages.push(Message::model(answer));
            state.custom = Some(Arc::new(json!({
                "turn": turn, "long": "salt ".repeat(400), "list": [1, 2, {"deep": name}],
            })));
            let mut row = row(&format!("{name}-{turn}"), &name, turn);
            row.parent_id = (turn > 0).then(|| SnapshotId::from(format!("{name}-{}", turn - 1)));
            row.state = Some(state.clone());
            rows.push(row);
        }
        let mut fork = rows[rows.len() - 3].clone();
        fork.snapshot_id = format!("{name}-fork").into();
        fork.created_at = at(2);
        let state = fork.state.as_mut().unwrap();
        state.messages.push(Message::user("another way"));
        rows.push(fork);
    }
    rows
}

async fn filled() -> (Fixture, Vec<Snapshot>) {
    let (fixture, rows) = (Fixture::new().await, rows());
    for row in &rows {
        put(&fixture.store, row.clone()).await.unwrap();
    }
    (fixture, rows)
}

fn change(path: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[tokio::test]
async fn no_random_damage_gives_another_text_or_none_without_an_error() {
    let (fixture, rows) = filled().await;
    fixture.store.close().await.unwrap();
    let whole = std::fs::read(fixture.path()).unwrap();
    let mut random = fastrand::Rng::with_seed(23);
    let mut noticed = 0;
    for round in 0..200 {
        let folder = tempfile::tempdir().unwrap();
        let (at, mut damaged) = (random.usize(..whole.len()), whole.clone());
        let end = (at + random.usize(1..600)).min(whole.len());
        match round % 4 {
            0 => damaged[at..end].fill(0),
            1 => damaged[at..end].fill_with(|| random.u8(..)),
            2 => damaged[at..end].rotate_left(1),
            _ => damaged[at] ^= 1 << random.u8(..8),
        }
        std::fs::write(path(folder.path()), damaged).unwrap();
        let Ok(store) = SqliteStore::open(path(folder.path())).await else {
            noticed += 1;
            continue;
        };

        for row in &rows {
            match store.get(&scope(), &row.snapshot_id, Detail::Whole).await {
                Ok(Some(read)) => assert_eq!(read, *row, "round {round} at {at}"),
                Ok(None) => panic!("round {round} at {at}: a snapshot is missing, without an error"),
                Err(_) => noticed += 1,
            }
        }
        for session in 0..SESSIONS {
            let session = format!("session-{session}");
            let last = rows
                .iter()
                .find(|row| row.snapshot_id.as_str() == format!("{session}-{}", TURNS - 1));
            match store.latest(&scope(), &session.into(), Detail::Whole).await {
                Ok(Some(read)) => assert_eq!(Some(&read), last, "round {round} at {at}"),
                Ok(None) => panic!("round {round} at {at}: a session is missing, without an error"),
                Err(_) => noticed += 1,
            }
        }
    }
    assert!(noticed > 20, "only {noticed} of the reads noticed anything");
}

#[tokio::test]
async fn no_damaged_name_makes_a_session_or_a_snapshot_vanish() {
    let (fixture, _) = filled().await;
    fixture.store.close().await.unwrap();
    let whole = std::fs::read(fixture.path()).unwrap();
    let mut noticed = 0;
    // Each name is in a table and in its index, and in texts.
    for name in ["session-7", "session-7-4", "global"] {
        let name = name.as_bytes();
        let places = (0..=whole.len() - name.len()).filter(|at| whole[*at..].starts_with(name));
        for (place, bit) in places.flat_map(|place| [0, 2, 6].map(|bit| (place, bit))) {
            for byte in [0, name.len() - 1] {
                let folder = tempfile::tempdir().unwrap();
                let mut flipped = whole.clone();
                flipped[place + byte] ^= 1 << bit;
                std::fs::write(path(folder.path()), flipped).unwrap();
                let Ok(store) = SqliteStore::open(path(folder.path())).await else {
                    noticed += 1;
                    continue;
                };

                let latest = store
                    .latest(&scope(), &"session-7".into(), Detail::Metadata)
                    .await;
                let last = store.get(&scope(), &"session-7-4".into(), Detail::Metadata).await;

                for (what, read) in [("session", latest), ("snapshot", last)] {
                    match read {
                        Ok(Some(read)) => assert_eq!(read.snapshot_id.as_str(), "session-7-4"),
                        Ok(None) => panic!("the {what} is missing: bit {bit} of byte {}", place + byte),
                        Err(error) => {
                            assert_eq!(error.status(), Status::DataLoss, "{error}");
                            noticed += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(noticed > 20, "only {noticed} of the reads noticed anything");
}

/// Returns where a page of a database counts its cells, and how many it has; `None` for a page that is not of
/// a tree.
fn cells(database: &[u8], page: usize) -> Option<(usize, u16)> {
    let size = usize::from(u16::from_be_bytes([database[16], database[17]]));
    let start = page * size;
    let header = if page == 0 { 100 } else { start };
    let is_tree = matches!(database[header], 2 | 5 | 10 | 13);
    let count = u16::from_be_bytes([database[header + 3], database[header + 4]]);
    (is_tree && count > 0).then_some((header + 3, count))
}

#[tokio::test]
async fn no_shortened_page_makes_a_session_vanish_or_go_back() {
    // Long names, so that the indexes have several levels.
    let name = |number: i64| format!("{}-{number}", "session".repeat(20));
    let fixture = Fixture::new().await;
    for number in 0..60 {
        put(
            &fixture.store,
            row(&format!("{}-a", name(number)), &name(number), 1),
        )
        .await
        .unwrap();
        put(
            &fixture.store,
            row(&format!("{}-b", name(number)), &name(number), 2),
        )
        .await
        .unwrap();
    }
    fixture.store.close().await.unwrap();
    let whole = std::fs::read(fixture.path()).unwrap();
    let size = usize::from(u16::from_be_bytes([whole[16], whole[17]]));
    let (mut copies, mut noticed) = (0, 0);
    for (at, count) in (0..whole.len() / size).filter_map(|page| cells(&whole, page)) {
        for shorter in [0, count / 2, count - 1] {
            let folder = tempfile::tempdir().unwrap();
            let mut shortened = whole.clone();
            shortened[at..at + 2].copy_from_slice(&shorter.to_be_bytes());
            std::fs::write(path(folder.path()), shortened).unwrap();
            copies += 1;
            let Ok(store) = SqliteStore::open(path(folder.path())).await else {
                noticed += 1;
                continue;
            };
            for number in 0..60 {
                let last = format!("{}-b", name(number));
                let latest = store
                    .latest(&scope(), &name(number).into(), Detail::Metadata)
                    .await;
                let got = store.get(&scope(), &last.clone().into(), Detail::Metadata).await;
                for read in [latest, got] {
                    match read {
                        Ok(Some(read)) => assert_eq!(read.snapshot_id.as_str(), last, "{at}: {shorter}"),
                        Ok(None) => panic!("session {number} is missing: {shorter} of {count} cells at {at}"),
                        Err(error) => {
                            assert_eq!(error.status(), Status::DataLoss, "{error}");
                            noticed += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(
        noticed > copies,
        "only {noticed} reads of {copies} copies noticed anything"
    );
}

#[tokio::test]
async fn every_reference_that_leads_nowhere_names_session_and_snapshot() {
    let last = "session-3-4";
    for damage in [
        "DELETE FROM message_blob",
        "DELETE FROM blob",
        "UPDATE blob SET body = 'something else'",
        "UPDATE message_blob SET offset = offset + 1",
        "UPDATE message SET body = replace(body, 'turn', 'term') WHERE typeof(body) = 'text'",
        "DELETE FROM message WHERE key & 16777215 = 4",
        "UPDATE snapshot SET up_to = up_to - 1 WHERE up_to > 1",
        "UPDATE snapshot SET custom = custom - 1 WHERE custom > 1",
        "UPDATE snapshot SET status = 'failed'",
        "UPDATE snapshot SET parent = 'other'",
        "UPDATE lineage SET base = base + 1",
        "DELETE FROM lineage",
        "DELETE FROM document",
        "UPDATE document SET body = '{\"turn\":9}' WHERE base IS NULL",
    ] {
        let (fixture, _) = filled().await;
        fixture.store.close().await.unwrap();
        change(&fixture.path(), damage);
        let store = open(fixture.folder.path()).await;

        let by_id = store.get(&scope(), &last.into(), Detail::Whole).await;
        let latest = store.latest(&scope(), &"session-3".into(), Detail::Whole).await;

        for read in [by_id, latest] {
            let error = read.expect_err(damage);
            assert_eq!(error.status(), Status::DataLoss, "{damage}: {error}");
            let names =
                error.message().contains("'session-3'") && error.message().contains(&format!("'{last}'"));
            assert!(names, "{damage}: {error}");
        }
        assert!(!store.verify().await.unwrap().is_clean(), "{damage}");
    }
}

#[tokio::test]
async fn no_changed_or_exchanged_row_goes_unnoticed() {
    let swap = |table: &str, columns: &[&str], keys: [&str; 2]| {
        let [one, other] = keys;
        let set: Vec<String> = columns
            .iter()
            .map(|column| format!("{column} = b.{column}"))
            .collect();
        format!(
            "CREATE TABLE b AS SELECT * FROM {table}; UPDATE {table} SET {set} FROM b \
             WHERE ({table}.key = ({one}) AND b.key = ({other})) OR ({table}.key = ({other}) AND b.key = ({one})); \
             DROP TABLE b",
            set = set.join(", ")
        )
    };
    let message = |number: i64| format!("SELECT min(key) + {number} FROM b WHERE key & 16777215 = 0");
    let (first, second) = (message(0), message(2));
    let of_other = "SELECT max(key) + 2 FROM b WHERE key & 16777215 = 0".to_owned();
    let turn = |turn: &str| format!("SELECT key FROM b WHERE turn = '{turn}'");
    let mut damages = vec![
        swap("message", &["body"], [&first, &second]),
        swap("message", &["body", "checksum"], [&first, &second]),
        swap("message", &["body", "checksum"], [&second, &of_other]),
        swap(
            "document",
            &["base", "depth", "cuts", "body", "checksum"],
            ["SELECT 1", "SELECT 6"],
        ),
        swap("journal", &["body", "checksum"], [&turn("t"), &turn("u")]),
    ];
    for change in [
        "up_to = up_to - 1",
        "status = 'failed'",
        "parent = NULL",
        "created_at = created_at + 1",
        "updated_at = 5",
        "heartbeat_at = 5",
        "finish_reason = 'stop'",
        "event = 'turnEnd'",
        "number = 77",
        "turn = 77",
        "orphaned = 1",
        "artifacts = custom",
        "id = 'renamed'",
        "session = (SELECT max(key) FROM session)",
    ] {
        damages.push(format!("UPDATE snapshot SET {change} WHERE id = 'session-3-4'"));
    }
    for damage in damages {
        let (fixture, rows) = filled().await;
        for turn in ["t", "u"] {
            let key = JournalKey::new("session-3".into(), turn);
            let record = JournalRecord {
                sequence: 0,
                body: json!({"turn": turn}),
            };
            fixture.store.append(&scope(), &key, record, None).await.unwrap();
        }
        assert!(fixture.store.verify().await.unwrap().is_clean());
        fixture.store.close().await.unwrap();
        change(&fixture.path(), &damage);
        let store = open(fixture.folder.path()).await;

        assert!(!store.verify().await.unwrap().is_clean(), "not noticed: {damage}");
        for row in &rows {
            match store.get(&scope(), &row.snapshot_id, Detail::Whole).await {
                Ok(Some(read)) => assert_eq!(read, *row, "{damage}"),
                Ok(None) => {}
                Err(error) => assert_eq!(error.status(), Status::DataLoss, "{damage}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn a_missing_tip_is_named_until_it_is_given_up() {
    let (fixture, rows) = filled().await;
    fixture.store.close().await.unwrap();
    change(&fixture.path(), "DELETE FROM snapshot WHERE id = 'session-3-4'");
    let store = open(fixture.folder.path()).await;

    let latest = store.latest(&scope(), &"session-3".into(), Detail::Whole).await;
    let next = row("session-3-5", "session-3", 9);
    let tip = Precondition::Tip(Some("session-3-3".into()));
    let saved = store
        .save(&scope(), Some(&"session-3-5".into()), tip, set(next))
        .await;

    for error in [latest.unwrap_err(), saved.unwrap_err()] {
        assert_eq!(error.status(), Status::DataLoss, "{error}");
        assert!(error.message().contains("'session-3-4'"), "{error}");
    }
    let given_up = Deletion::Snapshots(vec!["session-3-4".into()]);
    store.delete(&scope(), &given_up).await.unwrap();
    let latest = store.latest(&scope(), &"session-3".into(), Detail::Whole).await;
    let before = rows.iter().find(|row| row.snapshot_id.as_str() == "session-3-3");
    assert_eq!(latest.unwrap().as_ref(), before);
}

#[tokio::test]
async fn a_session_whose_rows_are_all_missing_is_not_taken_for_a_new_one() {
    let (fixture, _) = filled().await;
    fixture.store.close().await.unwrap();
    change(
        &fixture.path(),
        "DELETE FROM snapshot WHERE session = (SELECT key FROM session WHERE name = 'session-3')",
    );
    let store = open(fixture.folder.path()).await;

    let latest = store.latest(&scope(), &"session-3".into(), Detail::Whole).await;

    assert_eq!(latest.unwrap_err().status(), Status::DataLoss);
    let deletion = Deletion::Session("session-3".into());
    store.delete(&scope(), &deletion).await.unwrap();
    let latest = store.latest(&scope(), &"session-3".into(), Detail::Whole).await;
    assert_eq!(latest.unwrap(), None);
}

#[cfg(unix)]
#[tokio::test]
async fn a_database_that_was_removed_or_replaced_acknowledges_nothing() {
    for (what, files) in [
        (
            "removed",
            &["sessions.db", "sessions.db-wal", "sessions.db-shm"][..],
        ),
        ("without its log", &["sessions.db-wal"][..]),
        ("replaced", &["sessions.db"][..]),
    ] {
        let (fixture, _) = filled().await;
        for file in files {
            std::fs::remove_file(fixture.folder.path().join(file)).unwrap();
        }
        if what == "replaced" {
            std::fs::write(fixture.path(), b"").unwrap();
        }

        for number in 0..3 {
            let error = put(&fixture.store, row(&format!("late-{number}"), "s", 1)).await;
            let error = error.expect_err(what);
            assert_eq!(error.status(), Status::DataLoss, "{what}: {error}");
            assert!(error.message().contains("removed or replaced"), "{error}");
        }
    }
}
