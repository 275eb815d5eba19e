//! Rows that are changed or exchanged behind the back of the store: `verify` lists them, and no reader is
//! given anything but what was saved.

use std::sync::Arc;

use everturn_agent::Snapshot;
use everturn_agent::store::{Detail, Journal, JournalKey, JournalRecord, SessionStore};
use everturn_ai::Message;
use everturn_core::Status;
use serde_json::json;

use crate::support::{Fixture, put, row, scope, sql, state_of};

/// Conversations with documents, patches, a fork and journals.
async fn filled(fixture: &Fixture) -> Vec<Snapshot> {
    let mut rows = Vec::new();
    for session in ["s", "other"] {
        let mut state = state_of(&[]);
        for number in 0..4_i64 {
            state
                .messages
                .push(Message::user(format!("question {number} of {session}")));
            state.messages.push(Message::model("soup ".repeat(if number == 1 {
                5_000
            } else {
                5
            })));
            state.custom = Some(Arc::new(
                json!({"number": number, "of": session, "kept": "salt ".repeat(900)}),
            ));
            let mut next = row(&format!("{session}-{number}"), session, number);
            let parent = number.checked_sub(1).filter(|parent| *parent >= 0);
            next.parent_id = parent.map(|parent| format!("{session}-{parent}").as_str().into());
            next.state = Some(state.clone());
            rows.push(next);
        }
        let mut fork = rows[rows.len() - 3].clone();
        fork.snapshot_id = format!("{session}-fork").as_str().into();
        fork.created_at = crate::support::at(9);
        fork.state
            .as_mut()
            .unwrap()
            .messages
            .push(Message::user("another way"));
        rows.push(fork);
    }
    for row in &rows {
        put(&fixture.store, row.clone()).await.unwrap();
    }
    for turn in ["t", "u"] {
        for sequence in 0..2 {
            let body = json!({"turn": turn, "sequence": sequence});
            let key = JournalKey::new("s".into(), turn);
            let record = JournalRecord { sequence, body };
            fixture.store.append(&scope(), &key, record, None).await.unwrap();
        }
    }
    rows
}

/// Statements that change what is stored.
fn damages() -> Vec<String> {
    let of = |session: &str| format!("(SELECT key FROM @session WHERE name = '{session}')");
    let message = |session: &str, number: i64| {
        format!(
            "a.session = {} AND a.number = {number} AND a.cuts = 0",
            of(session)
        )
    };
    let pair = |table: &str, columns: &[&str], one: &str, other: &str| {
        let unnamed = |condition: &str| condition.replace("a.", "");
        let set: Vec<String> = columns
            .iter()
            .map(|column| format!("{column} = b.{column}"))
            .collect();
        format!(
            "WITH b AS (SELECT *, ({other_row}) AS is_other FROM @{table} WHERE ({one_row}) OR ({other_row})) \
             UPDATE @{table} AS a SET {set} FROM b WHERE (({one}) AND b.is_other) OR (({other}) AND NOT b.is_other)",
            one_row = unnamed(one),
            other_row = unnamed(other),
            set = set.join(", "),
        )
    };
    let mut damages = vec![
        // Bodies of the same session, of two sessions, and with their checksums.
        pair("message", &["body"], &message("s", 0), &message("s", 4)),
        pair(
            "message",
            &["body", "checksum"],
            &message("s", 0),
            &message("s", 4),
        ),
        pair("message", &["body"], &message("s", 4), &message("other", 4)),
        pair(
            "message",
            &["body", "checksum"],
            &message("s", 4),
            &message("other", 4),
        ),
    ];
    let document = |session: &str| {
        format!(
            "a.session = {session} AND a.number = (SELECT min(d.number) FROM @document d WHERE d.session = {session} AND d.base IS NULL)",
            session = of(session)
        )
    };
    damages.push(pair(
        "document",
        &["body", "cuts", "checksum"],
        &document("s"),
        &document("other"),
    ));
    let record = |turn: &str| format!("a.turn = '{turn}' AND a.sequence = 0");
    damages.push(pair("journal", &["body", "checksum"], &record("t"), &record("u")));
    for change in [
        "up_to = up_to - 1",
        "up_to = up_to - 2, tail = (SELECT m.checksum FROM @message m WHERE m.session = s.session \
         AND m.lineage = s.lineage AND m.number = s.up_to - 3)",
        "status = 'failed'",
        "parent = 's-0'",
        "parent = NULL",
        "created_at = created_at + 1",
        "updated_at = 5",
        "heartbeat_at = 5",
        "finish_reason = 'stop'",
        "event = 'turnEnd'",
        "number = 77",
        "turn = 77",
        "orphaned = true",
        "details = NULL, named = NOT named",
        "custom = (SELECT c.custom FROM @snapshot c WHERE c.id = 's-2')",
        "artifacts = custom",
        "prompt_input = custom",
        "id = 'renamed'",
        "lineage = NULL, up_to = 0, tail = NULL",
    ] {
        damages.push(format!("UPDATE @snapshot s SET {change} WHERE s.id = 's-3'"));
    }
    damages.push(format!(
        "UPDATE @snapshot SET session = {other} WHERE id = 's-3'",
        other = of("other")
    ));
    damages.push("UPDATE @session SET name = 'renamed' WHERE name = 's'".to_owned());
    for change in ["base = base - 1", "parent = parent + 1", "cut = 1"] {
        damages.push(format!(
            "UPDATE @lineage SET {change} WHERE parent IS NOT NULL AND session = {}",
            of("s")
        ));
    }
    damages.push(format!(
        "UPDATE @message_blob SET place = place - 1 WHERE session = {}",
        of("s")
    ));
    damages.push(format!(
        "UPDATE @document SET depth = depth + 1 WHERE base IS NULL AND session = {}",
        of("s")
    ));
    damages
}

#[tokio::test]
async fn no_changed_or_exchanged_row_goes_unnoticed() {
    for damage in damages() {
        let Some(fixture) = Fixture::new().await else {
            return;
        };
        let rows = filled(&fixture).await;
        let sound = fixture.store.verify().await.unwrap();
        assert_eq!(sound.problems, Vec::<String>::new());
        assert_eq!((sound.snapshots, sound.records), (10, 4));
        let named = damage.replace('@', &format!("\"{}\".", fixture.schema));
        sql(&fixture.url, &named).await;

        let reopened = fixture.reopened().await;
        assert!(
            !reopened.verify().await.unwrap().is_clean(),
            "not noticed: {damage}"
        );
        for row in &rows {
            match reopened.get(&scope(), &row.snapshot_id, Detail::Whole).await {
                Ok(Some(read)) => assert_eq!(read, *row, "{damage}"),
                Ok(None) => {}
                Err(error) => assert_eq!(error.status(), Status::DataLoss, "{damage}: {error}"),
            }
        }
        for turn in ["t", "u"] {
            let key = JournalKey::new("s".into(), turn);
            match Journal::read(&reopened, &scope(), &key).await {
                Ok(records) => assert!(
                    records.iter().all(|record| record.body["turn"] == turn),
                    "{damage}"
                ),
                Err(error) => assert_eq!(error.status(), Status::DataLoss, "{damage}: {error}"),
            }
        }
    }
}
