//! Writing a prepared save: comparison, precondition and rows, all in one transaction.
//!
//! No caller's code runs here and nothing is serialised: see [`crate::prepare`].

use everturn_agent::store::{Detail, Precondition, Scope};
use everturn_agent::{SessionId, Snapshot};
use everturn_sql::{Key, to_nanos};
use rusqlite::types::Value;
use rusqlite::{Params, params_from_iter};

use crate::fault::{Fault, Outcome};
use crate::latest_cache::{Changes, LatestCache};
use crate::prepare::{PreparedDocument, PreparedSave, PreparedState, Rewrites};
use crate::read::{Reading, Tip};
use crate::row::{STATE_COLUMNS, Stored, StoredState, state_columns};
use crate::statement::Statements;

/// A writing transaction.
pub(crate) struct Writing<'a> {
    pub(crate) reading: Reading<'a>,
    /// Rows whose status changed, for their watchers.
    pub(crate) changed: Vec<Key>,
    /// The documents that the current part rewrites.
    pub(crate) rewrites: Rewrites,
    /// The cached latest rows, and the rows that the transaction has changed.
    pub(crate) latest: &'a LatestCache,
    pub(crate) latest_changes: Changes,
    /// The version of the database that the transaction changes.
    pub(crate) version: Option<i64>,
}

const INSERT: &str = "INSERT INTO snapshot (id, parent, created_at, updated_at, heartbeat_at, status, finish_reason, event, \
    number, turn, orphaned, details, lineage, up_to, custom, artifacts, prompt_input, named, rest, scope, session, checksum) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22) \
    ON CONFLICT (scope, id) DO NOTHING";

const UPDATE: &str = "UPDATE snapshot SET id = ?1, parent = ?2, created_at = ?3, updated_at = ?4, heartbeat_at = ?5, \
    status = ?6, finish_reason = ?7, event = ?8, number = ?9, turn = ?10, orphaned = ?11, details = ?12, lineage = ?13, \
    up_to = ?14, custom = ?15, artifacts = ?16, prompt_input = ?17, named = ?18, rest = ?19, checksum = ?22 \
    WHERE key = ?20 AND session = ?21";

impl Writing<'_> {
    /// Writes a prepared row, if the stored row is still the one that it was computed from.
    pub(crate) fn save(&mut self, save: PreparedSave, precondition: &Precondition) -> Outcome<Snapshot> {
        let PreparedSave {
            scope,
            row,
            before,
            mut columns,
            state,
        } = save;
        let stored = || self.reading.find(scope.as_str(), row.snapshot_id.as_str());
        if before.is_some() && stored()? != before {
            return Err(Fault::Stale);
        }
        if let Err(fault) = self.check_lock(&scope, session_of(&row), precondition) {
            // A row that exists by now is not created: its mutation has not seen it.
            let is_stale = before.is_none() && stored()?.is_some();
            return Err(if is_stale { Fault::Stale } else { fault });
        }
        // New parts are stored before old ones are released, so that parts the two share survive.
        let state = state.map(|state| self.put_state(state)).transpose()?;
        if let Some(state) = &state {
            columns.splice(STATE_COLUMNS, state_columns(state)?);
        }
        let status = before.as_ref().map(|before| before.snapshot.status);
        match before {
            None => self.create(&scope, &row, columns, state, precondition)?,
            Some(before) => {
                self.replace(&before, &row, columns, state.as_ref(), precondition)?;
                self.latest_changes.note(&scope, session_of(&row), None);
            }
        }
        self.move_lock(&scope, &row, precondition)?;
        // Watchers receive statuses only; heartbeats must not wake them.
        if status != Some(row.status) {
            self.changed.push((scope, row.snapshot_id.clone()));
        }
        Ok(row)
    }

    fn replace(
        &mut self,
        before: &Stored,
        row: &Snapshot,
        columns: Vec<Value>,
        state: Option<&StoredState>,
        precondition: &Precondition,
    ) -> Outcome<()> {
        let tip = self.reading.known_tip(before.scope, before.session)?;
        self.check_precondition(before.session, row, precondition)?;
        self.execute(UPDATE, row, columns, before.scope, (before.key, before.session))?;
        let after = self.reading.tip(before.session)?;
        self.move_tip((before.scope, before.session), tip.as_ref(), after.as_ref())?;
        self.release_replaced(before.state.as_ref(), state)
    }

    fn create(
        &mut self,
        scope_name: &Scope,
        row: &Snapshot,
        columns: Vec<Value>,
        state: Option<StoredState>,
        precondition: &Precondition,
    ) -> Outcome<()> {
        let known =
            self.latest
                .in_transaction(self.version, &self.latest_changes, scope_name, session_of(row));
        let has_journal = known.is_none() && self.has_journal(scope_name, session_of(row))?;
        let (scope, session, tip) = match known {
            Some((scope, session, tip)) => (scope, session, Some(tip)),
            None => self.place(scope_name, session_of(row))?,
        };
        // Nothing comes after the latest row of a session, so nothing follows it.
        let holds_at_tip = match precondition.on_snapshots() {
            Precondition::Unfollowed { snapshot, .. } | Precondition::Tip(snapshot) => snapshot.as_ref(),
            _ => None,
        };
        let is_at_tip = holds_at_tip.is_some() && holds_at_tip == tip.as_ref().map(|(_, id)| id);
        if !is_at_tip && let Err(fault) = self.check_precondition(session, row, precondition) {
            // A row that exists by now is not created: its mutation has not seen it.
            let exists = self.reading.find(scope_name.as_str(), row.snapshot_id.as_str())?;
            return Err(exists.map_or(fault, |_| Fault::Stale));
        }
        if self.execute(INSERT, row, columns, scope, (scope, session))? == 0 {
            return Err(Fault::Stale);
        }
        let own = (row.created_at, row.snapshot_id.clone());
        let is_ahead = !row.orphaned && tip.as_ref().is_none_or(|tip| *tip < own);
        if !is_ahead {
            return Ok(());
        }
        self.move_tip((scope, session), tip.as_ref(), Some(&own))?;
        let latest = Stored {
            key: self.reading.db.last_insert_rowid(),
            session,
            scope,
            snapshot: Detail::Metadata.cut(row.clone()),
            state,
        };
        let latest = Some(latest).filter(|_| !has_journal);
        self.latest_changes.note(scope_name, session_of(row), latest);
        Ok(())
    }

    /// Returns the keys of a tenant and of a session, which are inserted if they do not exist, and the
    /// session's tip.
    fn place(&self, scope_name: &Scope, session: &SessionId) -> Outcome<(i64, i64, Option<Tip>)> {
        let (scope, _) = self.scope(scope_name.as_str())?;
        let (session, is_new) = self.session(scope, session.as_str())?;
        if let Some(tenant) = scope_name.tenant().filter(|_| is_new) {
            let sql = "UPDATE scope SET tenant = ?2 WHERE key = ?1 AND tenant IS NULL";
            self.reading.db.run(sql, (scope, tenant))?;
        }
        let tip = if is_new {
            None
        } else {
            self.reading.known_tip(scope, session)?
        };
        Ok((scope, session, tip))
    }

    fn check_precondition(&self, session: i64, row: &Snapshot, precondition: &Precondition) -> Outcome<()> {
        let found = self.reading.found(session, precondition, &row.snapshot_id)?;
        Ok(precondition.check(session_of(row), found.as_ref())?)
    }

    /// Stores the new parts of a state and returns references to all parts.
    fn put_state(&mut self, state: PreparedState) -> Outcome<StoredState> {
        let messages = state.messages.as_ref();
        let messages = messages.map(|history| self.put_history(history)).transpose()?;
        let mut put = |document: Option<PreparedDocument>| {
            document.map(|document| self.put_document(&document)).transpose()
        };
        Ok(StoredState {
            messages,
            custom: put(state.custom)?,
            artifacts: put(state.artifacts)?,
            prompt_input: put(state.prompt_input)?,
            session_id: state.session_id,
            extra: state.extra,
        })
    }

    /// Executes a statement with the columns of a row; the meaning of the two keys in `place` depends on the
    /// statement. Returns how many rows it changed.
    fn execute(
        &self,
        sql: &str,
        row: &Snapshot,
        mut columns: Vec<Value>,
        scope: i64,
        place: (i64, i64),
    ) -> Outcome<usize> {
        let checksum = Stored::checksum_of(&columns, session_of(row), scope)?;
        columns.extend([place.0, place.1, checksum].map(Value::Integer));
        self.reading.db.run(sql, params_from_iter(columns))
    }

    fn scope(&self, name: &str) -> Outcome<(i64, bool)> {
        self.key(
            "SELECT key FROM scope WHERE name = ?1",
            "INSERT INTO scope (name) VALUES (?1)",
            [name],
        )
    }

    fn session(&self, scope: i64, name: &str) -> Outcome<(i64, bool)> {
        let select = "SELECT key FROM session WHERE scope = ?1 AND name = ?2";
        self.key(
            select,
            "INSERT INTO session (scope, name) VALUES (?1, ?2)",
            (scope, name),
        )
    }

    /// Returns the key of a named row, inserting the row if it does not exist, and whether it was inserted.
    fn key(&self, select: &str, insert: &str, params: impl Params + Copy) -> Outcome<(i64, bool)> {
        let db = self.reading.db;
        let known = db.find(select, params, |row| row.get(0))?;
        match known {
            Some(key) => Ok((key, false)),
            None => Ok((db.insert(insert, params)?, true)),
        }
    }

    /// Updates the table of tips after the tip of a session may have changed.
    pub(crate) fn move_tip(
        &self,
        (scope, session): (i64, i64),
        before: Option<&Tip>,
        after: Option<&Tip>,
    ) -> Outcome<()> {
        if before == after {
            return Ok(());
        }
        let db = self.reading.db;
        if let Some((created_at, id)) = before {
            let sql = "DELETE FROM tip WHERE scope = ?1 AND created_at = ?2 AND id = ?3";
            db.run(sql, (scope, to_nanos(*created_at)?, id.as_str()))?;
        }
        if let Some((created_at, id)) = after {
            let sql = "INSERT INTO tip (scope, created_at, id, session) VALUES (?1, ?2, ?3, ?4)";
            db.run(sql, (scope, to_nanos(*created_at)?, id.as_str(), session))?;
        }
        Ok(())
    }
}

fn session_of(row: &Snapshot) -> &SessionId {
    row.session_id.as_ref().expect("an admitted row has a session")
}
