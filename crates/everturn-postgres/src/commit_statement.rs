//! The statement of a commit: it compares and sets the session's version, and writes everything or nothing.

use std::borrow::Cow;

use everturn_agent::store::JournalKey;
use everturn_agent::{SessionId, Snapshot};
use everturn_sql::to_nanos;
use tokio_postgres::types::Type;

use crate::body::Packed;
use crate::change::{Cut, Plan};
use crate::connection::{NOW, Statement};
use crate::fault::Outcome;
use crate::known::line_checksum;
use crate::position::{LineageKey, SessionKey, column as number_column};
use crate::row::{Columns, StoredState};
use crate::turn_lock::HeldLock;
use crate::write::{NextTip, Wish};

/// How many commits a session remembers by their tokens.
const TOKENS: usize = 8;

impl Plan<'_> {
    /// Returns the statement of a commit. It answers with the new tip, whether turns wait for a lock that the
    /// commit releases, and the time; with no row if the session has another version, or the turn lost its
    /// lock.
    pub(crate) fn statement(
        &self,
        wish: &Wish<'_>,
        row: &Snapshot,
        state: Option<&StoredState>,
        exists: bool,
        tip: &NextTip,
        token: i64,
    ) -> Outcome<Statement<'static>> {
        let mut statement = Statement::default();
        let tenant = statement.bind(self.session.tenant, Type::INT4);
        let session = statement.bind(self.session.id, Type::UUID);
        let scope = statement.bind(wish.scope.as_str().as_bytes().to_vec(), Type::BYTEA);
        let id = statement.bind(row.snapshot_id.as_str().as_bytes().to_vec(), Type::BYTEA);
        let names = Names {
            tenant,
            session,
            scope,
            id,
        };
        let mut parts = Vec::new();
        let lock = HeldLock::bind(&mut statement, Some(row), wish.precondition);
        let mut conditions = Vec::new();
        conditions.extend(self.hold_foreign(&mut statement, &names, &mut parts)?);
        conditions.extend(self.is_start_stored(&mut statement, &names)?);
        conditions.extend(
            lock.as_ref()
                .map(|lock| lock.is_held(&names.tenant, &names.session)),
        );
        let held = if conditions.is_empty() {
            "true".to_owned()
        } else {
            conditions.join(" AND ")
        };
        self.compare_and_set(&mut statement, &names, row, tip, token, &held, &mut parts)?;
        self.insert_parts(&mut statement, &names, &mut parts)?;
        self.write_row(&mut statement, &names, wish, row, state, exists, &mut parts)?;
        drop_journals(&mut statement, &names, wish, &mut parts);
        // A session begins with a snapshot that has no parent.
        if let Some(name) = wish.scope.tenant().filter(|_| row.parent_id.is_none()) {
            let name = statement.bind(name.as_bytes().to_vec(), Type::BYTEA);
            let (tenant, scope) = (&names.tenant, &names.scope);
            parts.push(format!(
                "tenant_named AS (INSERT INTO @tenant_name (tenant, scope, name) SELECT {tenant}, {scope}, {name} FROM cas \
                 ON CONFLICT DO NOTHING)"
            ));
        }
        let waiting = match &lock {
            Some(lock) if lock.releases() => HeldLock::waiting(&names.tenant, &names.session),
            _ => "false".to_owned(),
        };
        if let Some(lock) = &lock {
            lock.go_along(&names.tenant, &names.session, &mut parts);
        }
        statement.sql = format!(
            "WITH {} SELECT tip_at, tip, {waiting}, {NOW} FROM cas",
            parts.join(", ")
        );
        Ok(statement)
    }

    /// Locks the lineage of another session against deletion, and returns the condition that the position is
    /// still there.
    fn hold_foreign(
        &self,
        statement: &mut Statement<'_>,
        names: &Names,
        parts: &mut Vec<String>,
    ) -> Outcome<Option<String>> {
        let Some(at) = self.change.foreign else {
            return Ok(None);
        };
        let owner = statement.bind(at.lineage.session.id, Type::UUID);
        let number = statement.bind(at.lineage.number, Type::INT8);
        let len = statement.bind(number_column(at.len)?, Type::INT4);
        let tenant = &names.tenant;
        parts.push(format!(
            "held AS (SELECT 1 FROM @lineage WHERE tenant = {tenant} AND session = {owner} AND number = {number} \
             AND base < {len} AND (cut IS NULL OR cut >= {len}) FOR KEY SHARE)"
        ));
        Ok(Some("EXISTS (SELECT 1 FROM held)".to_owned()))
    }

    /// Returns the condition that the stored messages before the new ones equal the cached ones.
    fn is_start_stored(&self, statement: &mut Statement<'_>, names: &Names) -> Outcome<Option<String>> {
        let Some((at, tail)) = self.change.start else {
            return Ok(None);
        };
        let owner = statement.bind(at.lineage.session.id, Type::UUID);
        let lineage = statement.bind(at.lineage.number, Type::INT8);
        let last = statement.bind(number_column(at.len)? - 1, Type::INT4);
        let tail = statement.bind(tail, Type::INT8);
        let tenant = &names.tenant;
        Ok(Some(format!(
            "EXISTS (SELECT 1 FROM @message WHERE tenant = {tenant} AND session = {owner} AND lineage = {lineage} \
             AND number = {last} AND checksum = {tail})"
        )))
    }

    #[expect(clippy::too_many_arguments, reason = "one part of one statement")]
    fn compare_and_set(
        &self,
        statement: &mut Statement<'_>,
        names: &Names,
        row: &Snapshot,
        tip: &NextTip,
        token: i64,
        held: &str,
        parts: &mut Vec<String>,
    ) -> Outcome<()> {
        let Names {
            tenant,
            session,
            scope,
            id,
        } = names;
        let (tip_at, tip) = match tip {
            NextTip::Is(tip) => {
                let at = tip.as_ref().map(|(at, _)| to_nanos(*at)).transpose()?;
                let id = tip.as_ref().map(|(_, id)| id.as_str().as_bytes().to_vec());
                (statement.bind(at, Type::INT8), statement.bind(id, Type::BYTEA))
            }
            NextTip::Search => {
                let own_at = statement.bind(
                    (!row.orphaned).then(|| to_nanos(row.created_at)).transpose()?,
                    Type::INT8,
                );
                parts.push(format!(
                    "best AS (SELECT at, id FROM ((SELECT created_at AS at, id FROM @snapshot WHERE tenant = {tenant} \
                     AND session = {session} AND NOT orphaned AND id <> {id} ORDER BY created_at DESC, id DESC LIMIT 1) \
                     UNION ALL (SELECT {own_at}, {id} WHERE {own_at} IS NOT NULL)) AS kept ORDER BY at DESC, id DESC LIMIT 1)"
                ));
                (
                    "(SELECT at FROM best)".to_owned(),
                    "(SELECT id FROM best)".to_owned(),
                )
            }
        };
        let token = statement.bind(token, Type::INT8);
        let next_version = statement.bind(self.next_version, Type::INT8);
        parts.push(if self.is_new {
            let name = row.session_id.as_ref().map(SessionId::as_str).unwrap_or_default();
            let name = statement.bind(name.as_bytes().to_vec(), Type::BYTEA);
            format!(
                "cas AS (INSERT INTO @session (tenant, key, version, tip_at, touched_at, tip, scope, name, tokens) \
                 SELECT {tenant}, {session}, {next_version}, {tip_at}, {NOW}, {tip}, {scope}, {name}, ARRAY[{token}] \
                 WHERE {held} ON CONFLICT DO NOTHING RETURNING tip_at, tip)"
            )
        } else {
            let version = statement.bind(self.known.version, Type::INT8);
            format!(
                "cas AS (UPDATE @session SET version = {next_version}, tip_at = {tip_at}, tip = {tip}, \
                 tokens = (ARRAY[{token}] || tokens)[1:{TOKENS}] \
                 WHERE tenant = {tenant} AND key = {session} AND version = {version} AND {held} RETURNING tip_at, tip)"
            )
        });
        Ok(())
    }

    /// Inserts the lineage, the messages, the documents and the blobs.
    fn insert_parts(
        &self,
        statement: &mut Statement<'_>,
        names: &Names,
        parts: &mut Vec<String>,
    ) -> Outcome<()> {
        let Names { tenant, session, .. } = names;
        let change = &self.change;
        if let Some((number, parent)) = &change.lineage {
            let base = number_column(parent.map_or(0, |parent| parent.len))?;
            let key = LineageKey {
                session: self.session,
                number: *number,
            };
            let checksum = line_checksum(key, parent.map(|parent| parent.lineage), base, None);
            let checksum = statement.bind(checksum, Type::INT8);
            let number = statement.bind(*number, Type::INT8);
            let base = statement.bind(base, Type::INT4);
            let parent_session = statement.bind(parent.map(|parent| parent.lineage.session.id), Type::UUID);
            let parent = statement.bind(parent.map(|parent| parent.lineage.number), Type::INT8);
            parts.push(format!(
                "line AS (INSERT INTO @lineage (tenant, session, number, parent_session, parent, base, checksum) \
                 SELECT {tenant}, {session}, {number}, {parent_session}, {parent}, {base}, {checksum} FROM cas)"
            ));
        }
        let messages = &change.messages;
        if !messages.numbers.is_empty() {
            let lineage = statement.bind(messages.lineage, Type::INT8);
            let numbers = statement.bind(messages.numbers.clone(), Type::INT4_ARRAY);
            let cuts = statement.bind(messages.cuts.clone(), Type::INT4_ARRAY);
            let bodies = statement.bind(messages.bodies.clone(), Type::BYTEA_ARRAY);
            let tails = statement.bind(messages.tails.clone(), Type::INT8_ARRAY);
            parts.push(format!(
                "said AS (INSERT INTO @message (tenant, session, lineage, number, cuts, body, checksum) \
                 SELECT {tenant}, {session}, {lineage}, new.* FROM cas, \
                 unnest({numbers}, {cuts}, {bodies}, {tails}) AS new)"
            ));
            if !messages.pieces.is_empty() {
                let numbers: Vec<i32> = messages
                    .pieces
                    .iter()
                    .map(|cut| i32::try_from(cut.number).unwrap_or(i32::MAX))
                    .collect();
                let numbers = statement.bind(numbers, Type::INT4_ARRAY);
                let (places, hashes) = bind_cuts(statement, &messages.pieces);
                parts.push(format!(
                    "said_cut AS (INSERT INTO @message_blob (tenant, session, lineage, number, place, hash) \
                     SELECT {tenant}, {session}, {lineage}, new.* FROM cas, unnest({numbers}, {places}, {hashes}) AS new)"
                ));
            }
        }
        self.insert_documents(statement, names, parts);
        if !change.blobs.is_empty() {
            let hashes: Vec<Vec<u8>> = change.blobs.iter().map(|(hash, _)| hash.to_vec()).collect();
            let bodies: Vec<Vec<u8>> = change.blobs.iter().map(|(_, body)| body.clone()).collect();
            let hashes = statement.bind(hashes, Type::BYTEA_ARRAY);
            let bodies = statement.bind(bodies, Type::BYTEA_ARRAY);
            parts.push(format!(
                "long AS (INSERT INTO @blob (tenant, session, hash, body) \
                 SELECT {tenant}, {session}, new.* FROM cas, unnest({hashes}, {bodies}) AS new ON CONFLICT DO NOTHING)"
            ));
        }
        Ok(())
    }

    fn insert_documents(&self, statement: &mut Statement<'_>, names: &Names, parts: &mut Vec<String>) {
        let Names { tenant, session, .. } = names;
        let documents = &self.change.documents;
        if documents.is_empty() {
            return;
        }
        let numbers: Vec<i64> = documents.iter().map(|document| document.number).collect();
        let bases: Vec<Option<i64>> = documents.iter().map(|document| document.base).collect();
        let depths: Vec<i32> = documents.iter().map(|document| document.depth).collect();
        let cuts: Vec<i32> = documents.iter().map(|document| document.cuts).collect();
        let bodies: Vec<Vec<u8>> = documents.iter().map(|document| document.body.clone()).collect();
        let checksums: Vec<i64> = documents.iter().map(|document| document.checksum).collect();
        let numbers = statement.bind(numbers, Type::INT8_ARRAY);
        let bases = statement.bind(bases, Type::INT8_ARRAY);
        let depths = statement.bind(depths, Type::INT4_ARRAY);
        let cuts = statement.bind(cuts, Type::INT4_ARRAY);
        let bodies = statement.bind(bodies, Type::BYTEA_ARRAY);
        let checksums = statement.bind(checksums, Type::INT8_ARRAY);
        parts.push(format!(
            "kept AS (INSERT INTO @document (tenant, session, number, base, depth, cuts, body, checksum) \
             SELECT {tenant}, {session}, new.* FROM cas, \
             unnest({numbers}, {bases}, {depths}, {cuts}, {bodies}, {checksums}) AS new)"
        ));
        let pieces = &self.change.document_pieces;
        if !pieces.is_empty() {
            let numbers: Vec<i64> = pieces.iter().map(|cut| cut.number).collect();
            let numbers = statement.bind(numbers, Type::INT8_ARRAY);
            let (places, hashes) = bind_cuts(statement, pieces);
            parts.push(format!(
                "kept_cut AS (INSERT INTO @document_blob (tenant, session, number, place, hash) \
                 SELECT {tenant}, {session}, new.* FROM cas, unnest({numbers}, {places}, {hashes}) AS new)"
            ));
        }
    }

    /// Inserts or updates the row itself.
    #[expect(clippy::too_many_arguments, reason = "one part of one statement")]
    fn write_row(
        &self,
        statement: &mut Statement<'_>,
        names: &Names,
        wish: &Wish<'_>,
        row: &Snapshot,
        state: Option<&StoredState>,
        exists: bool,
        parts: &mut Vec<String>,
    ) -> Outcome<()> {
        let Names {
            tenant,
            session,
            scope,
            id,
        } = names;
        let name = row.session_id.as_ref().map(SessionId::as_str).unwrap_or_default();
        let written = Columns::of(row, state, self.session, self.store.encoding)?;
        let (scope_name, id_name) = (
            wish.scope.as_str().as_bytes(),
            row.snapshot_id.as_str().as_bytes(),
        );
        let checksum = written.checksum(scope_name, name.as_bytes(), id_name);
        let owned = |packed: Option<Packed<'_>>| packed.map(|packed| packed.0.into_owned());
        let common = written.common;
        let word = |word: Option<Cow<'_, str>>| word.map(Cow::into_owned);
        let mut columns = Vec::new();
        let mut values = Vec::new();
        let mut set = |name: &'static str, value: String| {
            columns.push(name);
            values.push(value);
        };
        set(
            "parent",
            statement.bind(
                common.parent.map(|parent| parent.into_owned().into_bytes()),
                Type::BYTEA,
            ),
        );
        set("created_at", statement.bind(common.created_at, Type::INT8));
        set("updated_at", statement.bind(common.updated_at, Type::INT8));
        set("heartbeat_at", statement.bind(common.heartbeat_at, Type::INT8));
        set("status", statement.bind(common.status.into_owned(), Type::TEXT));
        set(
            "finish_reason",
            statement.bind(word(common.finish_reason), Type::TEXT),
        );
        set("event", statement.bind(word(common.event), Type::TEXT));
        set("number", statement.bind(common.number, Type::INT8));
        set("turn", statement.bind(common.turn, Type::INT8));
        set("orphaned", statement.bind(common.orphaned, Type::BOOL));
        set("details", statement.bind(owned(common.details), Type::BYTEA));
        set("lineage", statement.bind(written.lineage, Type::INT8));
        set("line_session", statement.bind(written.line_session, Type::UUID));
        set("up_to", statement.bind(written.up_to, Type::INT4));
        set("tail", statement.bind(written.tail, Type::INT8));
        set("custom", statement.bind(written.custom, Type::INT8));
        set("artifacts", statement.bind(written.artifacts, Type::INT8));
        set("prompt_input", statement.bind(written.prompt_input, Type::INT8));
        set("named", statement.bind(common.named, Type::BOOL));
        set("rest", statement.bind(owned(common.rest), Type::BYTEA));
        set("checksum", statement.bind(checksum, Type::INT8));
        let (columns, values) = (columns.join(", "), values.join(", "));
        parts.push(if exists {
            format!(
                "written AS (UPDATE @snapshot s SET ({columns}) = ROW ({values}) FROM cas \
                 WHERE s.tenant = {tenant} AND s.scope = {scope} AND s.id = {id})"
            )
        } else {
            format!(
                "written AS (INSERT INTO @snapshot (tenant, session, scope, id, {columns}) \
                 SELECT {tenant}, {session}, {scope}, {id}, {values} FROM cas)"
            )
        });
        Ok(())
    }
}

/// The parameters that most parts of the statement share.
struct Names {
    tenant: String,
    session: String,
    scope: String,
    id: String,
}

fn bind_cuts(statement: &mut Statement<'_>, cuts: &[Cut]) -> (String, String) {
    let places: Vec<i32> = cuts.iter().map(|cut| cut.place).collect();
    let hashes: Vec<Vec<u8>> = cuts.iter().map(|cut| cut.hash.to_vec()).collect();
    (
        statement.bind(places, Type::INT4_ARRAY),
        statement.bind(hashes, Type::BYTEA_ARRAY),
    )
}

fn drop_journals(statement: &mut Statement<'_>, names: &Names, wish: &Wish<'_>, parts: &mut Vec<String>) {
    if wish.journals.is_empty() {
        return;
    }
    let key = |key: &JournalKey| SessionKey::of(wish.scope, key.session().as_str()).id;
    let sessions: Vec<_> = wish.journals.iter().map(key).collect();
    let turns: Vec<Vec<u8>> = wish
        .journals
        .iter()
        .map(|key| key.turn().as_bytes().to_vec())
        .collect();
    let sessions = statement.bind(sessions, Type::UUID_ARRAY);
    let turns = statement.bind(turns, Type::BYTEA_ARRAY);
    let tenant = &names.tenant;
    parts.push(format!(
        "over AS (DELETE FROM @journal j USING cas, unnest({sessions}, {turns}) AS turns (session, turn) \
         WHERE j.tenant = {tenant} AND j.session = turns.session AND j.turn = turns.turn)"
    ));
    parts.push(format!(
        "settled AS (DELETE FROM @ledger l USING cas, unnest({sessions}, {turns}) AS turns (session, turn) \
         WHERE l.tenant = {tenant} AND l.session = turns.session AND l.turn = turns.turn)"
    ));
}
