//! The statement of a commit: it compares and sets the session's version, and writes everything or nothing.

use std::borrow::Cow;

use everturn_agent::store::JournalKey;
use everturn_agent::{SessionId, Snapshot};
use everturn_sql::to_nanos;

use crate::body::Packed;
use crate::change::{Cut, Plan};
use crate::connection::NOW;
use crate::fault::Outcome;
use crate::known::line_checksum;
use crate::position::{SessionKey, column as number_column};
use crate::row::{Columns, StoredState};
use crate::statement::{Parameter, Statement};
use crate::turn_lock::HeldLock;
use crate::write::{NextTip, Wish};

/// How many commits a session remembers by their tokens.
const TOKENS: usize = 8;

/// A statement in the making. Its parts after `cas` are carried out if `cas` changes the session. The first
/// parameters are the tenant (`$1`), the session (`$2`), the scope (`$3`) and the id of the row (`$4`).
#[derive(Default)]
struct Parts {
    statement: Statement<'static>,
    parts: Vec<String>,
}

impl Parts {
    fn bind(&mut self, value: impl Parameter + 'static) -> String {
        self.statement.bind(value)
    }

    fn add(&mut self, part: String) {
        self.parts.push(part);
    }

    /// Adds a part that inserts rows of the session. `shared` are the values that all of them begin with, and
    /// `arrays` the others by columns.
    fn insert(&mut self, name: &str, table: &str, shared: &str, arrays: &[String], conflict: &str) {
        let arrays = arrays.join(", ");
        self.add(format!(
            "{name} AS (INSERT INTO @{table} SELECT {shared}, new.* FROM cas, unnest({arrays}) AS new{conflict})"
        ));
    }

    /// Adds a part that inserts the places of long strings.
    fn insert_cuts(&mut self, name: &str, table: &str, shared: &str, numbers: String, cuts: &[Cut]) {
        let places = self.bind(column_of(cuts, |cut| cut.place));
        let hashes = self.bind(column_of(cuts, |cut| cut.hash.to_vec()));
        self.insert(name, table, shared, &[numbers, places, hashes], "");
    }

    /// Deletes the journals and the usage of the turns that the commit ends.
    fn drop_journals(&mut self, wish: &Wish<'_>) {
        if wish.journals.is_empty() {
            return;
        }
        let key = |key: &JournalKey| SessionKey::of(wish.scope, key.session().as_str()).id;
        let sessions = self.bind(column_of(wish.journals, key));
        let turns = self.bind(column_of(wish.journals, |key| key.turn().as_bytes().to_vec()));
        for (name, table) in [("over", "journal"), ("closed", "ledger")] {
            self.add(format!(
                "{name} AS (DELETE FROM @{table} t USING cas, unnest({sessions}, {turns}) AS turns (session, turn) \
                 WHERE t.tenant = $1 AND t.session = turns.session AND t.turn = turns.turn)"
            ));
        }
    }
}

/// Returns one column of rows.
fn column_of<T, C>(rows: &[T], column: impl Fn(&T) -> C) -> Vec<C> {
    rows.iter().map(column).collect()
}

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
        let own = (self.session, wish.scope.as_str(), row.snapshot_id.as_str());
        let mut commit = Parts {
            statement: Statement::default().with(own),
            parts: Vec::new(),
        };
        let lock = HeldLock::bind(&mut commit.statement, Some(row), wish.precondition);
        let mut conditions = Vec::new();
        conditions.extend(self.hold_foreign(&mut commit)?);
        conditions.extend(self.is_start_stored(&mut commit)?);
        conditions.extend(lock.as_ref().map(HeldLock::is_held));
        let held = if conditions.is_empty() {
            "true".to_owned()
        } else {
            conditions.join(" AND ")
        };
        self.compare_and_set(&mut commit, row, tip, token, &held)?;
        self.insert_parts(&mut commit)?;
        self.write_row(&mut commit, wish, row, state, exists)?;
        commit.drop_journals(wish);
        // A session begins with a snapshot that has no parent.
        if let Some(name) = wish.scope.tenant().filter(|_| row.parent_id.is_none()) {
            let name = commit.bind(name.as_bytes().to_vec());
            commit.add(format!(
                "tenant_named AS (INSERT INTO @tenant_name (tenant, scope, name) SELECT $1, $3, {name} FROM cas \
                 ON CONFLICT DO NOTHING)"
            ));
        }
        let waiting = match &lock {
            Some(lock) if lock.releases() => HeldLock::WAITING,
            _ => "false",
        };
        if let Some(lock) = &lock {
            lock.go_along(&mut commit.parts);
        }
        let Parts { mut statement, parts } = commit;
        statement.sql = format!(
            "WITH {} SELECT tip_at, tip, {waiting}, {NOW} FROM cas",
            parts.join(", ")
        );
        Ok(statement)
    }

    /// Locks the lineage of another session against deletion, and returns the condition that the position is
    /// still there.
    fn hold_foreign(&self, commit: &mut Parts) -> Outcome<Option<String>> {
        let Some(at) = self.change.foreign else {
            return Ok(None);
        };
        let owner = commit.bind(at.lineage.session.id);
        let number = commit.bind(at.lineage.number);
        let len = commit.bind(number_column(at.len)?);
        commit.add(format!(
            "held AS (SELECT 1 FROM @lineage WHERE tenant = $1 AND session = {owner} AND number = {number} \
             AND base < {len} AND (cut IS NULL OR cut >= {len}) FOR KEY SHARE)"
        ));
        Ok(Some("EXISTS (SELECT 1 FROM held)".to_owned()))
    }

    /// Returns the condition that the stored messages before the new ones equal the cached ones.
    fn is_start_stored(&self, commit: &mut Parts) -> Outcome<Option<String>> {
        let Some((at, tail)) = self.change.start else {
            return Ok(None);
        };
        let owner = commit.bind(at.lineage.session.id);
        let lineage = commit.bind(at.lineage.number);
        let last = commit.bind(number_column(at.len)? - 1);
        let tail = commit.bind(tail);
        Ok(Some(format!(
            "EXISTS (SELECT 1 FROM @message WHERE tenant = $1 AND session = {owner} AND lineage = {lineage} \
             AND number = {last} AND checksum = {tail})"
        )))
    }

    fn compare_and_set(
        &self,
        commit: &mut Parts,
        row: &Snapshot,
        tip: &NextTip,
        token: i64,
        held: &str,
    ) -> Outcome<()> {
        let (tip_at, tip) = match tip {
            NextTip::Is(tip) => {
                let at = tip.as_ref().map(|(at, _)| to_nanos(*at)).transpose()?;
                let id = tip.as_ref().map(|(_, id)| id.as_str().as_bytes().to_vec());
                (commit.bind(at), commit.bind(id))
            }
            NextTip::Search => {
                let own_at = (!row.orphaned).then(|| to_nanos(row.created_at)).transpose()?;
                let own_at = commit.bind(own_at);
                commit.add(format!(
                    "best AS (SELECT at, id FROM ((SELECT created_at AS at, id FROM @snapshot WHERE tenant = $1 \
                     AND session = $2 AND NOT orphaned AND id <> $4 ORDER BY created_at DESC, id DESC LIMIT 1) \
                     UNION ALL (SELECT {own_at}, $4 WHERE {own_at} IS NOT NULL)) AS kept ORDER BY at DESC, id DESC LIMIT 1)"
                ));
                let best = |column: &str| format!("(SELECT {column} FROM best)");
                (best("at"), best("id"))
            }
        };
        let token = commit.bind(token);
        let next_version = commit.bind(self.next_version);
        let cas = if self.is_new {
            let name = row.session_id.as_ref().map(SessionId::as_str).unwrap_or_default();
            let name = commit.bind(name.as_bytes().to_vec());
            format!(
                "cas AS (INSERT INTO @session (tenant, key, version, tip_at, touched_at, tip, scope, name, tokens) \
                 SELECT $1, $2, {next_version}, {tip_at}, {NOW}, {tip}, $3, {name}, ARRAY[{token}] \
                 WHERE {held} ON CONFLICT DO NOTHING RETURNING tip_at, tip)"
            )
        } else {
            let version = commit.bind(self.known.version);
            format!(
                "cas AS (UPDATE @session SET version = {next_version}, tip_at = {tip_at}, tip = {tip}, \
                 tokens = (ARRAY[{token}] || tokens)[1:{TOKENS}] \
                 WHERE tenant = $1 AND key = $2 AND version = {version} AND {held} RETURNING tip_at, tip)"
            )
        };
        commit.add(cas);
        Ok(())
    }

    /// Inserts the lineage, the messages, the documents and the blobs.
    fn insert_parts(&self, commit: &mut Parts) -> Outcome<()> {
        let change = &self.change;
        if let Some((number, parent)) = &change.lineage {
            let base = number_column(parent.map_or(0, |parent| parent.len))?;
            let key = self.session.lineage(*number);
            let checksum = line_checksum(key, parent.map(|parent| parent.lineage), base, None);
            let checksum = commit.bind(checksum);
            let number = commit.bind(*number);
            let base = commit.bind(base);
            let parent_session = commit.bind(parent.map(|parent| parent.lineage.session.id));
            let parent = commit.bind(parent.map(|parent| parent.lineage.number));
            commit.add(format!(
                "line AS (INSERT INTO @lineage (tenant, session, number, parent_session, parent, base, checksum) \
                 SELECT $1, $2, {number}, {parent_session}, {parent}, {base}, {checksum} FROM cas)"
            ));
        }
        let messages = &change.messages;
        if !messages.numbers.is_empty() {
            let shared = format!("$1, $2, {}", commit.bind(messages.lineage));
            let columns = [
                commit.bind(messages.numbers.clone()),
                commit.bind(messages.cuts.clone()),
                commit.bind(messages.bodies.clone()),
                commit.bind(messages.tails.clone()),
            ];
            let table = "message (tenant, session, lineage, number, cuts, body, checksum)";
            commit.insert("added", table, &shared, &columns, "");
            if !messages.pieces.is_empty() {
                let number = |cut: &Cut| i32::try_from(cut.number).unwrap_or(i32::MAX);
                let numbers = commit.bind(column_of(&messages.pieces, number));
                let table = "message_blob (tenant, session, lineage, number, place, hash)";
                commit.insert_cuts("added_cut", table, &shared, numbers, &messages.pieces);
            }
        }
        let documents = &change.documents;
        if !documents.is_empty() {
            let columns = [
                commit.bind(column_of(documents, |document| document.number)),
                commit.bind(column_of(documents, |document| document.base)),
                commit.bind(column_of(documents, |document| document.depth)),
                commit.bind(column_of(documents, |document| document.cuts)),
                commit.bind(column_of(documents, |document| document.body.clone())),
                commit.bind(column_of(documents, |document| document.checksum)),
            ];
            let table = "document (tenant, session, number, base, depth, cuts, body, checksum)";
            commit.insert("kept", table, "$1, $2", &columns, "");
            let pieces = &change.document_pieces;
            if !pieces.is_empty() {
                let numbers = commit.bind(column_of(pieces, |cut| cut.number));
                let table = "document_blob (tenant, session, number, place, hash)";
                commit.insert_cuts("kept_cut", table, "$1, $2", numbers, pieces);
            }
        }
        if !change.blobs.is_empty() {
            let columns = [
                commit.bind(column_of(&change.blobs, |(hash, _)| hash.to_vec())),
                commit.bind(column_of(&change.blobs, |(_, body)| body.clone())),
            ];
            let table = "blob (tenant, session, hash, body)";
            commit.insert("long", table, "$1, $2", &columns, " ON CONFLICT DO NOTHING");
        }
        Ok(())
    }

    /// Inserts or updates the row itself.
    fn write_row(
        &self,
        commit: &mut Parts,
        wish: &Wish<'_>,
        row: &Snapshot,
        state: Option<&StoredState>,
        exists: bool,
    ) -> Outcome<()> {
        let name = row.session_id.as_ref().map(SessionId::as_str).unwrap_or_default();
        let written = Columns::of(row, state, self.session, self.store.encoding)?;
        let (scope, id) = (wish.scope.as_str(), row.snapshot_id.as_str());
        let checksum = written.checksum(scope.as_bytes(), name.as_bytes(), id.as_bytes());
        let owned = |packed: Option<Packed<'_>>| packed.map(|packed| packed.0.into_owned());
        let common = written.common;
        let word = |word: Option<Cow<'_, str>>| word.map(Cow::into_owned);
        let parent = common.parent.map(|parent| parent.into_owned().into_bytes());
        let columns = [
            ("parent", commit.bind(parent)),
            ("created_at", commit.bind(common.created_at)),
            ("updated_at", commit.bind(common.updated_at)),
            ("heartbeat_at", commit.bind(common.heartbeat_at)),
            ("status", commit.bind(common.status.into_owned())),
            ("finish_reason", commit.bind(word(common.finish_reason))),
            ("event", commit.bind(word(common.event))),
            ("number", commit.bind(common.number)),
            ("turn", commit.bind(common.turn)),
            ("orphaned", commit.bind(common.orphaned)),
            ("details", commit.bind(owned(common.details))),
            ("lineage", commit.bind(written.lineage)),
            ("line_session", commit.bind(written.line_session)),
            ("up_to", commit.bind(written.up_to)),
            ("tail", commit.bind(written.tail)),
            ("custom", commit.bind(written.custom)),
            ("artifacts", commit.bind(written.artifacts)),
            ("prompt_input", commit.bind(written.prompt_input)),
            ("named", commit.bind(common.named)),
            ("rest", commit.bind(owned(common.rest))),
            ("checksum", commit.bind(checksum)),
        ];
        let (columns, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let (columns, values) = (columns.join(", "), values.join(", "));
        commit.add(if exists {
            format!(
                "written AS (UPDATE @snapshot s SET ({columns}) = ROW ({values}) FROM cas \
                 WHERE s.tenant = $1 AND s.scope = $3 AND s.id = $4)"
            )
        } else {
            format!(
                "written AS (INSERT INTO @snapshot (tenant, session, scope, id, {columns}) \
                 SELECT $1, $2, $3, $4, {values} FROM cas)"
            )
        });
        Ok(())
    }
}
