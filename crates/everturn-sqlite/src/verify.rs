//! Checking the integrity of a database.

use everturn_ai::Message;
use everturn_core::Result;
use everturn_sql::{StoreFault, Verification, parse};
use rusqlite::Connection;

use crate::checksum::Checksum;
use crate::fault::{Fault, Outcome};
use crate::position::message_index;
use crate::read::Reading;
use crate::row::{COLUMNS, Stored};
use crate::{SqliteStore, checksum};

/// Queries that find violations of an invariant. The column of a result names the violating row.
const INVARIANTS: &[(&str, &str)] = &[
    (
        "the lineage of a snapshot ends before the snapshot does",
        "SELECT id FROM snapshot WHERE lineage IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM message WHERE message.key = (snapshot.lineage << 24) + snapshot.up_to - 1)",
    ),
    (
        "a snapshot has messages and no lineage",
        "SELECT id FROM snapshot WHERE lineage IS NULL AND up_to > 0",
    ),
    (
        "a lineage forks from where its parent has no message",
        "SELECT key FROM lineage WHERE parent IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM message WHERE message.key = (lineage.parent << 24) + lineage.base - 1)",
    ),
    (
        "nothing refers to a lineage",
        "SELECT key FROM lineage WHERE NOT EXISTS (SELECT 1 FROM snapshot WHERE snapshot.lineage = lineage.key) \
         AND NOT EXISTS (SELECT 1 FROM lineage AS fork WHERE fork.parent = lineage.key)",
    ),
    (
        "nothing refers to a document",
        "SELECT key FROM document WHERE NOT EXISTS (SELECT 1 FROM snapshot WHERE custom = document.key) \
         AND NOT EXISTS (SELECT 1 FROM snapshot WHERE artifacts = document.key) \
         AND NOT EXISTS (SELECT 1 FROM snapshot WHERE prompt_input = document.key) \
         AND NOT EXISTS (SELECT 1 FROM document AS patch WHERE patch.base = document.key)",
    ),
    (
        "nothing refers to a blob",
        "SELECT key FROM blob WHERE NOT EXISTS (SELECT 1 FROM message_blob WHERE blob = blob.key) \
         AND NOT EXISTS (SELECT 1 FROM document_blob WHERE blob = blob.key)",
    ),
    (
        "a session has no snapshot",
        "SELECT name FROM session WHERE NOT EXISTS (SELECT 1 FROM snapshot WHERE snapshot.session = session.key)",
    ),
    (
        "a session is not listed by its latest snapshot",
        "SELECT name FROM session WHERE EXISTS (SELECT 1 FROM snapshot WHERE snapshot.session = session.key \
         AND orphaned = 0) AND NOT EXISTS (SELECT 1 FROM tip WHERE tip.scope = session.scope \
         AND tip.session = session.key AND (tip.created_at, tip.id) = (SELECT created_at, id FROM snapshot \
         WHERE snapshot.session = session.key AND orphaned = 0 ORDER BY created_at DESC, id DESC LIMIT 1))",
    ),
    (
        "a session without a latest snapshot is listed",
        "SELECT session FROM tip WHERE NOT EXISTS (SELECT 1 FROM snapshot WHERE snapshot.session = tip.session \
         AND orphaned = 0)",
    ),
    (
        "a session is listed more than once",
        "SELECT session FROM tip GROUP BY session HAVING count(*) > 1",
    ),
    (
        "a snapshot is in another tenant than its session",
        "SELECT id FROM snapshot JOIN session ON session.key = snapshot.session WHERE snapshot.scope <> session.scope",
    ),
];

impl SqliteStore {
    /// Reads the whole database and checks it: SQLite's own structures, every reference, and every message,
    /// document, blob and journal.
    ///
    /// # Errors
    /// `UNAVAILABLE` or `DATA_LOSS` if the database cannot be read at all. Problems inside it are listed in
    /// the [`Verification`].
    pub async fn verify(&self) -> Result<Verification> {
        self.read(|reading| {
            let mut found = Verification::default();
            structure(reading.db, &mut found)?;
            // On broken structures the queries fail or mislead, and would bury the cause.
            if found.is_clean() {
                invariants(reading.db, &mut found)?;
                messages(reading, &mut found)?;
                documents(reading, &mut found)?;
                blobs(reading, &mut found)?;
                journals(reading, &mut found)?;
                lineages(reading, &mut found)?;
                snapshots(reading, &mut found)?;
            }
            Ok(found)
        })
        .await
    }
}

fn structure(db: &Connection, found: &mut Verification) -> Outcome<()> {
    let mut statement = db.prepare("PRAGMA integrity_check")?;
    for line in statement.query_map([], |row| row.get::<_, String>(0))? {
        match line {
            Ok(line) if line == "ok" => {}
            Ok(line) => found.add_problem(line),
            Err(error) => found.add_problem(error),
        }
    }
    let mut statement = db.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (table, key, other): (String, Option<i64>, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        found.add_problem(format!(
            "a {table} ({key:?}) refers to a {other} that does not exist"
        ));
    }
    Ok(())
}

fn invariants(db: &Connection, found: &mut Verification) -> Outcome<()> {
    for (what, sql) in INVARIANTS {
        let mut statement = db.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            found.add_problem(format!("{what}: {:?}", row.get_ref(0)?));
        }
    }
    Ok(())
}

/// Reads every message, and checks that no lineage has gaps after its base.
fn messages(reading: &mut Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let mut statement = reading.db.prepare(
        "SELECT message.key, message.cuts, message.body, lineage.base, message.checksum \
         FROM message LEFT JOIN lineage ON lineage.key = message.key >> 24 ORDER BY message.key",
    )?;
    let mut rows = statement.query([])?;
    let mut before: Option<i64> = None;
    while let Some(row) = rows.next()? {
        found.messages += 1;
        let key: i64 = row.get(0)?;
        let text = reading.decoder.text(row.get_ref(2)?).map(str::to_owned);
        let cuts: i64 = row.get(1)?;
        let whole = match text {
            Ok(text) if cuts > 0 => reading.with_message_blobs(key, &text, cuts),
            text => text,
        };
        let checksum: Option<i64> = row.get(4)?;
        let right = whole.and_then(|text| {
            checksum::check("its body", checksum, || Checksum::of_text(key, &text))?;
            Ok(parse::<Message>(&text)?)
        });
        found.check(format_args!("message {key}"), right)?;
        // Keys sort by lineage, then by index. The key before index 0 would be another lineage's.
        let follows = before == Some(key - 1) && message_index(key) > 0;
        match row.get::<_, Option<usize>>(3)? {
            None => found.add_problem(format!("message {key} belongs to no lineage")),
            Some(base) if !follows && message_index(key) != base => {
                found.add_problem(format!("message {key} does not follow the one before it"));
            }
            Some(_) => {}
        }
        before = Some(key);
    }
    Ok(())
}

fn documents(reading: &mut Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let mut statement = reading.db.prepare("SELECT key FROM document")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        found.documents += 1;
        let key: i64 = row.get(0)?;
        let text = reading.document_text(key);
        found.check(
            format_args!("document {key}"),
            text.and_then(|text| Ok(parse::<serde_json::Value>(&text)?)),
        )?;
    }
    Ok(())
}

fn blobs(reading: &mut Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let mut statement = reading.db.prepare("SELECT key, hash, body FROM blob")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        found.blobs += 1;
        let (key, hash): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        let right = reading.decoder.text(row.get_ref(2)?).and_then(|text| {
            if hash == everturn_sql::hash(text) {
                Ok(())
            } else {
                Err(Fault::damaged("it is not what its hash says"))
            }
        });
        found.check(format_args!("blob {key}"), right)?;
    }
    Ok(())
}

fn journals(reading: &mut Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let mut statement = reading
        .db
        .prepare("SELECT key, body, sequence, checksum, scope, session, turn FROM journal")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        found.records += 1;
        let key: i64 = row.get(0)?;
        let text = reading.decoder.text(row.get_ref(1)?);
        let (sequence, checksum): (i64, Option<i64>) = (row.get(2)?, row.get(3)?);
        let (scope, session, turn): (String, String, String) = (row.get(4)?, row.get(5)?, row.get(6)?);
        let right = text.and_then(|text| {
            checksum::check("its body", checksum, || {
                Checksum::of_record(&scope, &session, &turn, sequence, &Checksum::text(text))
            })?;
            Ok(parse::<serde_json::Value>(text)?)
        });
        found.check(format_args!("journal record {key}"), right)?;
    }
    Ok(())
}

fn lineages(reading: &mut Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let mut statement = reading.db.prepare("SELECT key, checksum FROM lineage")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (key, stored): (i64, Option<i64>) = (row.get(0)?, row.get(1)?);
        let computed = reading.lineage_checksum(key)?;
        found.check(
            format_args!("lineage {key}"),
            checksum::check("it", stored, || computed),
        )?;
    }
    Ok(())
}

fn snapshots(reading: &mut Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let sql = format!("SELECT {COLUMNS} FROM snapshot JOIN session ON session.key = snapshot.session");
    let mut statement = reading.db.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        found.snapshots += 1;
        let key: i64 = row.get(0)?;
        found.check(format_args!("snapshot {key}"), Stored::from_row(row))?;
    }
    Ok(())
}
