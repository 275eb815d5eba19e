//! Writing a row: read, mutation, rules, precondition and write, all in one transaction.

use std::sync::Arc;

use everturn_agent::store::{Detail, Mutation, Precondition, Scope, admit};
use everturn_agent::{SessionId, SessionState, Snapshot, SnapshotId};
use rusqlite::types::ToSqlOutput;
use rusqlite::{OptionalExtension, Params, ToSql, params_from_iter};

use crate::body::Encoder;
use crate::cache::Document;
use crate::fault::Outcome;
use crate::position::Position;
use crate::read::{Reading, Tip};
use crate::row::{Details, Rest, Stored, StoredState, check_id, to_nanos, to_word};
use crate::watch::Key;

/// A writing transaction.
pub(crate) struct Writing<'a> {
    pub(crate) reading: Reading<'a>,
    pub(crate) encoder: &'a mut Encoder,
    /// Rows whose status changed, for their watchers.
    pub(crate) changed: Vec<Key>,
}

const INSERT: &str = "INSERT INTO snapshot (id, parent, created_at, updated_at, heartbeat_at, status, finish_reason, event, \
    number, turn, orphaned, details, lineage, up_to, custom, artifacts, prompt_input, named, rest, scope, session, checksum) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)";

const UPDATE: &str = "UPDATE snapshot SET id = ?1, parent = ?2, created_at = ?3, updated_at = ?4, heartbeat_at = ?5, \
    status = ?6, finish_reason = ?7, event = ?8, number = ?9, turn = ?10, orphaned = ?11, details = ?12, lineage = ?13, \
    up_to = ?14, custom = ?15, artifacts = ?16, prompt_input = ?17, named = ?18, rest = ?19, checksum = ?22 \
    WHERE key = ?20 AND session = ?21";

impl Writing<'_> {
    /// Reads a row, applies `mutation` and writes the result. Returns the written row, or `None` if the mutation wrote nothing.
    pub(crate) fn save(
        &mut self,
        scope: &Scope,
        id: &SnapshotId,
        precondition: &Precondition,
        mutation: &Mutation,
    ) -> Outcome<Option<Snapshot>> {
        check_id("scope", scope.as_str())?;
        check_id("snapshot id", id.as_str())?;
        let stored = self.reading.find(scope.as_str(), id.as_str())?;
        let (existing, before) = match stored {
            Some(stored) => {
                let before = Before {
                    key: stored.key,
                    session: stored.session,
                    scope: stored.scope,
                    state: stored.state.clone(),
                };
                // Whole, because a mutation may look at the state.
                (Some(self.reading.snapshot(stored, Detail::Whole)?), Some(before))
            }
            None => (None, None),
        };
        let Some(row) = mutation.apply(existing.as_ref())? else {
            return Ok(None);
        };
        let row = admit(id, existing.as_ref(), row)?;
        if let Some(session) = &row.session_id {
            self.check_lock(scope, session, precondition)?;
        }
        self.write(scope, &row, before, precondition)?;
        self.move_lock(scope, &row, precondition)?;
        // Watchers are told of statuses only; heartbeats must not wake them.
        if existing.is_none_or(|existing| existing.status != row.status) {
            self.changed.push((scope.clone(), id.clone()));
        }
        Ok(Some(row))
    }

    fn write(
        &mut self,
        scope: &Scope,
        row: &Snapshot,
        before: Option<Before>,
        precondition: &Precondition,
    ) -> Outcome<()> {
        let session_id = row.session_id.as_ref().expect("an admitted row has a session");
        check_id("session id", session_id.as_str())?;
        if let Some(parent) = &row.parent_id {
            check_id("parent id", parent.as_str())?;
        }
        // New parts are stored before old ones are released, so that parts the two share survive.
        let own = before.as_ref().and_then(|before| before.state.as_ref());
        let state = row
            .state
            .as_ref()
            .map(|state| self.put_state(scope, row, state, own))
            .transpose()?;
        match before {
            None => self.create(scope, session_id, row, state.as_ref(), precondition),
            Some(before) => {
                let tip = self.reading.known_tip(before.scope, before.session)?;
                self.check_precondition(before.session, session_id, row, precondition)?;
                self.execute(
                    UPDATE,
                    row,
                    state.as_ref(),
                    before.scope,
                    (before.key, before.session),
                )?;
                self.move_tip(
                    before.session,
                    tip.as_ref(),
                    self.reading.tip(before.session)?.as_ref(),
                )?;
                self.release_replaced(before.state.as_ref(), state.as_ref())
            }
        }
    }

    fn create(
        &mut self,
        scope: &Scope,
        session_id: &SessionId,
        row: &Snapshot,
        state: Option<&StoredState>,
        precondition: &Precondition,
    ) -> Outcome<()> {
        let (scope, _) = self.scope(scope.as_str())?;
        let (session, is_new) = self.session(scope, session_id.as_str())?;
        let tip = if is_new {
            None
        } else {
            self.reading.known_tip(scope, session)?
        };
        self.check_precondition(session, session_id, row, precondition)?;
        self.execute(INSERT, row, state, scope, (scope, session))?;
        let own = (row.created_at, row.snapshot_id.clone());
        let is_ahead = !row.orphaned && tip.as_ref().is_none_or(|tip| *tip < own);
        let latest = if is_ahead { Some(&own) } else { tip.as_ref() };
        self.move_tip(session, tip.as_ref(), latest)
    }

    fn check_precondition(
        &self,
        session: i64,
        session_id: &SessionId,
        row: &Snapshot,
        precondition: &Precondition,
    ) -> Outcome<()> {
        let found = self.reading.found(session, precondition, &row.snapshot_id)?;
        Ok(precondition.check(session_id, found.as_ref())?)
    }

    /// Stores the new parts of a state and returns references to all parts.
    fn put_state(
        &mut self,
        scope: &Scope,
        row: &Snapshot,
        state: &SessionState,
        own: Option<&StoredState>,
    ) -> Outcome<StoredState> {
        let start = self.known_start(&state.messages)?;
        let documents = state.custom.is_some() || state.prompt_input.is_some() || !state.artifacts.is_empty();
        let parent = match &row.parent_id {
            // Reading the parent is saved for most turns, which add messages to a known history and nothing else.
            Some(parent) if documents || start.is_none() => self
                .reading
                .find(scope.as_str(), parent.as_str())?
                .and_then(|parent| parent.state),
            _ => None,
        };
        let related: Vec<Position> = own
            .into_iter()
            .chain(&parent)
            .filter_map(|state| state.messages)
            .collect();
        let messages = self.put_history(&state.messages, start, &related)?;
        let mut put = |document: Option<Document>, part: fn(&StoredState) -> Option<i64>| {
            document
                .map(|document| {
                    self.put_document(&document, own.and_then(part), parent.as_ref().and_then(part))
                })
                .transpose()
        };
        let artifacts = Some(&state.artifacts).filter(|artifacts| !artifacts.is_empty());
        Ok(StoredState {
            messages,
            custom: put(state.custom.clone().map(Document::Json), |state| state.custom)?,
            artifacts: put(
                artifacts.map(|artifacts| Document::Artifacts(Arc::clone(artifacts))),
                |state| state.artifacts,
            )?,
            prompt_input: put(state.prompt_input.clone().map(Document::Json), |state| {
                state.prompt_input
            })?,
            session_id: state.session_id.clone(),
            extra: state.extra.clone(),
        })
    }

    /// Executes a statement with the columns of a row; the meaning of the two keys in `place` depends on the statement.
    fn execute(
        &self,
        sql: &str,
        row: &Snapshot,
        state: Option<&StoredState>,
        scope: i64,
        place: (i64, i64),
    ) -> Outcome<()> {
        let session = row.session_id.as_ref().expect("an admitted row has a session");
        let messages = state.and_then(|state| state.messages);
        let (named, rest) = Rest::of(row, state)?;
        let columns: [&dyn ToSql; 19] = [
            &row.snapshot_id.as_str(),
            &row.parent_id.as_ref().map(SnapshotId::as_str),
            &to_nanos(row.created_at)?,
            &row.updated_at.map(to_nanos).transpose()?,
            &row.heartbeat_at.map(to_nanos).transpose()?,
            &to_word(&row.status)?,
            &row.finish_reason.as_ref().map(to_word).transpose()?,
            &row.event.as_ref().map(to_word).transpose()?,
            &row.index.map(u64::cast_signed),
            &row.turn_index.map(u64::cast_signed),
            &row.orphaned,
            &Details::of(row)?,
            &messages.map(|messages| messages.lineage),
            &state.map(|_| messages.map_or(0, |messages| messages.len)),
            &state.and_then(|state| state.custom),
            &state.and_then(|state| state.artifacts),
            &state.and_then(|state| state.prompt_input),
            &named,
            &rest,
        ];
        let mut values = Vec::with_capacity(columns.len() + 3);
        for column in columns {
            values.push(column.to_sql()?);
        }
        let checksum = Stored::checksum_of(&values, session, scope)?;
        values.extend([place.0, place.1, checksum].map(ToSqlOutput::from));
        self.reading
            .db
            .prepare_cached(sql)?
            .execute(params_from_iter(values))?;
        Ok(())
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
        let known = db
            .prepare_cached(select)?
            .query_row(params, |row| row.get(0))
            .optional()?;
        match known {
            Some(key) => Ok((key, false)),
            None => Ok((db.prepare_cached(insert)?.insert(params)?, true)),
        }
    }

    /// Updates the table of tips after the tip of a session may have changed.
    pub(crate) fn move_tip(&self, session: i64, before: Option<&Tip>, after: Option<&Tip>) -> Outcome<()> {
        if before == after {
            return Ok(());
        }
        let db = self.reading.db;
        let scope: i64 = db
            .prepare_cached("SELECT scope FROM session WHERE key = ?1")?
            .query_row([session], |row| row.get(0))?;
        if let Some((created_at, id)) = before {
            let sql = "DELETE FROM tip WHERE scope = ?1 AND created_at = ?2 AND id = ?3";
            db.prepare_cached(sql)?
                .execute((scope, to_nanos(*created_at)?, id.as_str()))?;
        }
        if let Some((created_at, id)) = after {
            let sql = "INSERT INTO tip (scope, created_at, id, session) VALUES (?1, ?2, ?3, ?4)";
            db.prepare_cached(sql)?
                .execute((scope, to_nanos(*created_at)?, id.as_str(), session))?;
        }
        Ok(())
    }
}

/// The existing row that a save replaces.
struct Before {
    key: i64,
    session: i64,
    scope: i64,
    state: Option<StoredState>,
}
