//! Checking the integrity of the tables.

use everturn_ai::Message;
use everturn_core::Result;
use everturn_sql::{StoreFault, Verification, hash, parse};
use serde_json::Value;
use uuid::Uuid;

use crate::PostgresStore;
use crate::blob::Pieces;
use crate::body::unpack;
use crate::fault::{Fault, Outcome};
use crate::journal::record;
use crate::known::line;
use crate::position::{Tail, follows};
use crate::read::Reading;
use crate::row::{COLUMNS, SCOPE, Stored};
use crate::statement::{Statement, column, session_key};

/// How many rows are read at a time.
const BATCH: i64 = 1_000;

/// Queries that find violations of an invariant. The column of a result names the violating row.
const INVARIANTS: &[(&str, &str)] = &[
    (
        "a snapshot has no session",
        "SELECT encode(s.id, 'escape') FROM @snapshot s WHERE NOT EXISTS \
         (SELECT 1 FROM @session n WHERE n.tenant = s.tenant AND n.key = s.session)",
    ),
    (
        "the lineage of a snapshot ends before the snapshot does",
        "SELECT encode(s.id, 'escape') FROM @snapshot s WHERE s.lineage IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM @message m WHERE m.tenant = s.tenant AND m.session = coalesce(s.line_session, s.session) \
          AND m.lineage = s.lineage AND m.number = s.up_to - 1)",
    ),
    (
        "a snapshot has messages and no lineage",
        "SELECT encode(id, 'escape') FROM @snapshot WHERE lineage IS NULL AND up_to > 0",
    ),
    (
        "a snapshot refers to a document that does not exist",
        "SELECT encode(s.id, 'escape') FROM @snapshot s, unnest(ARRAY[s.custom, s.artifacts, s.prompt_input]) AS part \
         WHERE part IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM @document d WHERE d.tenant = s.tenant AND d.session = s.session AND d.number = part)",
    ),
    (
        "a lineage forks from where its parent has no message",
        "SELECT l.number::text FROM @lineage l WHERE l.parent IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM @message m WHERE m.tenant = l.tenant AND m.session = l.parent_session \
          AND m.lineage = l.parent AND m.number = l.base - 1)",
    ),
    (
        "the messages of a lineage have gaps",
        "SELECT m.lineage::text FROM @message m LEFT JOIN @lineage l ON l.tenant = m.tenant AND l.session = m.session \
         AND l.number = m.lineage GROUP BY m.tenant, m.session, m.lineage, l.base \
         HAVING l.base IS NULL OR min(m.number) <> l.base OR max(m.number) - min(m.number) + 1 <> count(*)",
    ),
    ("nothing refers to a lineage", UNUSED_LINEAGES),
    ("nothing refers to a document", UNUSED_DOCUMENTS),
    (
        "nothing refers to a blob",
        "SELECT encode(b.hash, 'hex') FROM @blob b WHERE NOT EXISTS \
         (SELECT 1 FROM @message_blob l WHERE l.tenant = b.tenant AND l.session = b.session AND l.hash = b.hash) \
         AND NOT EXISTS \
         (SELECT 1 FROM @document_blob l WHERE l.tenant = b.tenant AND l.session = b.session AND l.hash = b.hash)",
    ),
    (
        "the blobs of a message are missing",
        "SELECT m.lineage || '/' || m.number FROM @message m WHERE m.cuts <> \
         (SELECT count(*) FROM @message_blob l JOIN @blob b ON b.tenant = l.tenant AND b.session = l.session \
          AND b.hash = l.hash WHERE l.tenant = m.tenant AND l.session = m.session AND l.lineage = m.lineage \
          AND l.number = m.number)",
    ),
    (
        "the latest snapshot of a session is another than its row says",
        "SELECT encode(n.name, 'escape') FROM @session n WHERE n.tip IS DISTINCT FROM \
         (SELECT s.id FROM @snapshot s WHERE s.tenant = n.tenant AND s.session = n.key AND NOT s.orphaned \
          ORDER BY s.created_at DESC, s.id DESC LIMIT 1)",
    ),
];

/// Selects the numbers, tenants and sessions of lineages that nothing refers to.
pub(crate) const UNUSED_LINEAGES: &str = "SELECT l.number::text, l.tenant, l.session, l.number FROM @lineage l WHERE NOT EXISTS \
     (SELECT 1 FROM @snapshot s WHERE s.tenant = l.tenant AND s.session = l.session AND s.lineage = l.number \
      AND s.line_session IS NULL) AND NOT EXISTS \
     (SELECT 1 FROM @snapshot s WHERE s.tenant = l.tenant AND s.line_session = l.session AND s.lineage = l.number) \
     AND NOT EXISTS (SELECT 1 FROM @lineage f WHERE f.tenant = l.tenant AND f.parent_session = l.session \
      AND f.parent = l.number)";

/// Selects the numbers, tenants and sessions of documents that nothing refers to.
pub(crate) const UNUSED_DOCUMENTS: &str = "SELECT d.number::text, d.tenant, d.session, d.number FROM @document d WHERE NOT EXISTS \
     (SELECT 1 FROM @snapshot s WHERE s.tenant = d.tenant AND s.session = d.session \
      AND d.number IN (s.custom, s.artifacts, s.prompt_input)) \
     AND NOT EXISTS (SELECT 1 FROM @document p WHERE p.tenant = d.tenant AND p.session = d.session AND p.base = d.number)";

impl PostgresStore {
    /// Reads all tables and checks them: every reference, and every message, document, blob and journal.
    ///
    /// PostgreSQL checks its own structures with `pg_amcheck`. Commits continue meanwhile. The remains of
    /// dead processes, which [`PostgresStore::tidy`] deletes, are listed as problems too.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the database cannot be read. Problems inside it are listed in the [`Verification`].
    pub async fn verify(&self) -> Result<Verification> {
        let reading = self.inner().reading();
        let outcome = self.inner().db.unhurried(verify(&reading)).await;
        self.result(outcome)
    }
}

async fn verify(reading: &Reading<'_>) -> Outcome<Verification> {
    let mut found = Verification::default();
    for (what, sql) in INVARIANTS {
        for row in reading.rows(&Statement::new(*sql)).await? {
            let name: Option<String> = column(&row, 0)?;
            found.add_problem(format!("{what}: {}", name.unwrap_or_default()));
        }
    }
    snapshots(reading, &mut found).await?;
    lineages(reading, &mut found).await?;
    messages(reading, &mut found).await?;
    documents(reading, &mut found).await?;
    blobs(reading, &mut found).await?;
    journals(reading, &mut found).await?;
    Ok(found)
}

/// Reads every message, and checks that its checksum follows that of the message before it.
async fn messages(reading: &Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let mut after = (i32::MIN, Uuid::nil(), i64::MIN, i32::MIN);
    let mut last: Option<Tail> = None;
    loop {
        let statement = Statement::new(
            "SELECT m.tenant, m.session, m.lineage, m.number, m.cuts, m.body, m.checksum, p.checksum, l.base \
             FROM (SELECT * FROM @message WHERE (tenant, session, lineage, number) > ($1, $2, $3, $4) \
               ORDER BY tenant, session, lineage, number LIMIT $5) m \
             LEFT JOIN @lineage l ON l.tenant = m.tenant AND l.session = m.session AND l.number = m.lineage \
             LEFT JOIN @message p ON p.tenant = l.tenant AND p.session = l.parent_session AND p.lineage = l.parent \
               AND p.number = l.base - 1 AND m.number = l.base \
             ORDER BY m.tenant, m.session, m.lineage, m.number",
        ).with((after.0, after.1, after.2, after.3, BATCH));
        let rows = reading.rows(&statement).await?;
        for row in &rows {
            found.messages += 1;
            let place: (i32, Uuid, i64, i32) =
                (column(row, 0)?, column(row, 1)?, column(row, 2)?, column(row, 3)?);
            let begins = (place.0, place.1, place.2) != (after.0, after.1, after.2)
                || column::<Option<i32>>(row, 8)? == Some(place.3);
            // The first message of a lineage follows the one that its parent has before it.
            let before = if begins { column(row, 7)? } else { last };
            let checksum: Tail = column(row, 6)?;
            let parsed = whole(reading, place, column(row, 4)?, column(row, 5)?)
                .await
                .and_then(|text| {
                    if !follows(checksum, before, place.3, &text) {
                        return Err(Fault::damaged(
                            "it is not what its checksum says, or does not follow the one before it",
                        ));
                    }
                    Ok(parse::<Message>(&text)?)
                });
            found.check(format_args!("message {}/{}", place.2, place.3), parsed)?;
            (after, last) = (place, Some(checksum));
        }
        if rows.is_empty() {
            return Ok(());
        }
    }
}

/// Returns the text of a message with its long strings put back.
async fn whole(
    reading: &Reading<'_>,
    (tenant, session, lineage, number): (i32, Uuid, i64, i32),
    cuts: i32,
    packed: &[u8],
) -> Outcome<String> {
    let pieces = if cuts == 0 {
        Pieces::default()
    } else {
        let sql = "SELECT b.number::bigint, b.place, t.body FROM @message_blob b \
            LEFT JOIN @blob t ON t.tenant = $1 AND t.session = $2 AND t.hash = b.hash \
            WHERE b.tenant = $1 AND b.session = $2 AND b.lineage = $3 AND b.number = $4 ORDER BY b.place";
        let links = Statement::new(sql).with((tenant, session, lineage, number));
        reading.pieces(&links).await?
    };
    pieces.whole(number.into(), cuts, packed)
}

/// Reads every snapshot's row, and checks that its last message has the recorded checksum.
async fn snapshots(reading: &Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let mut after = (i32::MIN, Vec::<u8>::new(), Vec::<u8>::new());
    loop {
        let statement = Statement::new(format!(
            "SELECT {COLUMNS}, m.checksum FROM @snapshot s JOIN @session n ON n.tenant = s.tenant AND n.key = s.session \
             LEFT JOIN @message m ON m.tenant = s.tenant AND m.session = coalesce(s.line_session, s.session) \
               AND m.lineage = s.lineage AND m.number = s.up_to - 1 \
             WHERE (s.tenant, s.scope, s.id) > ($1, $2, $3) ORDER BY s.tenant, s.scope, s.id LIMIT $4"
        )).with((after.0, after.1.clone(), after.2.clone(), BATCH));
        let rows = reading.rows(&statement).await?;
        for row in &rows {
            found.snapshots += 1;
            after = (column(row, 20)?, column(row, SCOPE)?, column(row, 0)?);
            let last: Option<Tail> = column(row, 26)?;
            let right = Stored::from_row(row).and_then(|stored| {
                let tail = stored
                    .state
                    .and_then(|state| state.messages)
                    .map(|(_, tail)| tail);
                if tail == last {
                    return Ok(());
                }
                Err(Fault::damaged(
                    "its messages are others than those that were saved, by their checksum",
                ))
            });
            let id = String::from_utf8_lossy(&after.2).into_owned();
            found.check(format_args!("snapshot '{id}'"), right)?;
        }
        if rows.is_empty() {
            return Ok(());
        }
    }
}

async fn lineages(reading: &Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let statement = Statement::new(
        "SELECT parent_session, parent, base, cut, NULL::integer, checksum, tenant, session, number FROM @lineage",
    );
    for row in reading.rows(&statement).await? {
        let session = session_key(&row, 6)?;
        let number: i64 = column(&row, 8)?;
        let right = line(&row, 0, session.lineage(number));
        found.check(format_args!("lineage {number}"), right)?;
    }
    Ok(())
}

async fn documents(reading: &Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let statement = Statement::new("SELECT tenant, session, number FROM @document");
    for row in reading.rows(&statement).await? {
        found.documents += 1;
        let session = session_key(&row, 0)?;
        let number: i64 = column(&row, 2)?;
        let text = match reading.document_texts(session, &[number]).await {
            Ok(mut texts) => match texts.remove(&number) {
                Some((text, _)) => parse::<Value>(&text).map_err(Fault::from),
                // It was deleted meanwhile.
                None => continue,
            },
            Err(fault) => Err(fault),
        };
        found.check(format_args!("document {number}"), text)?;
    }
    Ok(())
}

async fn blobs(reading: &Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let mut after = (i32::MIN, Uuid::nil(), Vec::<u8>::new());
    loop {
        let sql = "SELECT tenant, session, hash, body FROM @blob WHERE (tenant, session, hash) > ($1, $2, $3) \
            ORDER BY tenant, session, hash LIMIT 100";
        let statement = Statement::new(sql).with((after.0, after.1, after.2.clone()));
        let rows = reading.rows(&statement).await?;
        for row in &rows {
            found.blobs += 1;
            after = (column(row, 0)?, column(row, 1)?, column(row, 2)?);
            let right = unpack(column(row, 3)?).map_err(Fault::from).and_then(|text| {
                if after.2 == hash(&text) {
                    Ok(())
                } else {
                    Err(Fault::damaged("it is not what its hash says"))
                }
            });
            found.check("a blob", right)?;
        }
        if rows.is_empty() {
            return Ok(());
        }
    }
}

async fn journals(reading: &Reading<'_>, found: &mut Verification) -> Outcome<()> {
    let statement = Statement::new("SELECT session, turn, sequence, body, checksum FROM @journal");
    for row in reading.rows(&statement).await? {
        found.records += 1;
        let sequence: i64 = column(&row, 2)?;
        let text = record(
            column(&row, 0)?,
            column(&row, 1)?,
            sequence,
            column(&row, 3)?,
            column(&row, 4)?,
        );
        let parsed = text.and_then(|text| Ok(parse::<Value>(&text)?));
        found.check(format_args!("journal record {sequence}"), parsed)?;
    }
    Ok(())
}
