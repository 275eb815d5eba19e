//! Reading rows and the states that they refer to.

use std::sync::LazyLock;

use everturn_agent::store::{Detail, Precondition};
use everturn_agent::{SessionState, Snapshot, SnapshotId, SnapshotStatus};
use everturn_sql::{StoreFault, from_word, to_nanos, to_time};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Params};

use crate::body::Decoder;
use crate::cache::Cache;
use crate::fault::{Fault, Outcome};
use crate::row::{COLUMNS, Stored, StoredState};
use crate::statement::Statements;

/// Where a session's tip is in the order of rows.
pub(crate) type Tip = (Timestamp, SnapshotId);

/// The database as one transaction sees it.
pub(crate) struct Reading<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) decoder: &'a mut Decoder,
    pub(crate) cache: Cache<'a>,
}

pub(crate) static BY_ID: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM snapshot JOIN session ON session.key = snapshot.session \
         WHERE snapshot.scope = (SELECT key FROM scope WHERE name = ?1) AND snapshot.id = ?2"
    )
});

pub(crate) static LATEST: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM session JOIN snapshot ON snapshot.session = session.key \
         WHERE session.scope = (SELECT key FROM scope WHERE name = ?1) AND session.name = ?2 AND snapshot.orphaned = 0 \
         ORDER BY snapshot.created_at DESC, snapshot.id DESC LIMIT 1"
    )
});

pub(crate) static CHILDREN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM snapshot JOIN session ON session.key = snapshot.session \
         WHERE snapshot.scope = (SELECT key FROM scope WHERE name = ?1) AND snapshot.parent = ?2"
    )
});

pub(crate) const TIP: &str = "SELECT created_at, id FROM snapshot WHERE session = ?1 AND orphaned = 0 \
    ORDER BY created_at DESC, id DESC LIMIT 1";

/// Asks when a row that is not orphaned was created.
pub(crate) const KEPT_ROW: &str = "SELECT created_at FROM snapshot \
    WHERE scope = (SELECT scope FROM session WHERE key = ?1) AND id = ?2 AND session = ?1 AND orphaned = 0";

/// Asks for the kept rows after one that name it as their parent. A row has few children, so these are looked
/// through.
pub(crate) const CHILDREN_AFTER: &str = "SELECT id, status FROM snapshot INDEXED BY snapshot_by_parent \
    WHERE scope = (SELECT scope FROM session WHERE key = ?1) AND parent = ?2 AND session = ?1 AND orphaned = 0 \
    AND (created_at, id) > (?3, ?2)";

pub(crate) const KEPT_ROWS: &str = "SELECT id, status FROM snapshot WHERE session = ?1 AND orphaned = 0 \
    ORDER BY created_at DESC, id DESC";

/// Selects whether a row is a session's tip according to the table of tips.
pub(crate) const IS_TIP: &str =
    "SELECT EXISTS (SELECT 1 FROM tip WHERE scope = ?1 AND created_at = ?2 AND id = ?3 AND session = ?4)";

/// Selects the tip of a session from the table. Reads all tips of the tenant, so it is used only after an
/// inconsistency.
const TIP_OF: &str = "SELECT id FROM tip WHERE scope = ?1 AND session = ?2";

pub(crate) const HAS_ROWS: &str = "SELECT EXISTS (SELECT 1 FROM snapshot WHERE session = ?1)";

pub(crate) const SESSION_KEY: &str =
    "SELECT scope, key FROM session WHERE scope = (SELECT key FROM scope WHERE name = ?1) AND name = ?2";

pub(crate) const STATUS: &str =
    "SELECT status FROM snapshot WHERE scope = (SELECT key FROM scope WHERE name = ?1) AND id = ?2";

impl Reading<'_> {
    pub(crate) fn get(&mut self, scope: &str, id: &str, detail: Detail) -> Outcome<Option<Snapshot>> {
        let stored = self.find(scope, id)?;
        if stored.is_none() {
            self.check_no_snapshot(scope, id)?;
        }
        stored.map(|stored| self.snapshot(stored, detail)).transpose()
    }

    pub(crate) fn latest(&mut self, scope: &str, session: &str, detail: Detail) -> Outcome<Option<Snapshot>> {
        let stored = self.rows(&LATEST, (scope, session))?.pop();
        if let Some(stored) = &stored {
            let own = (stored.snapshot.created_at, stored.snapshot.snapshot_id.clone());
            self.check_tip(stored.scope, stored.session, Some(&own))?;
        } else {
            // Without this a session that has lost all its rows would look like one that never existed.
            let known = self
                .db
                .prepare_cached(SESSION_KEY)?
                .query_row((scope, session), |row| Ok((row.get(0)?, row.get(1)?)));
            match known.optional()? {
                Some((scope, key)) => {
                    self.check_session(key, session)?;
                    self.check_tip(scope, key, None)?;
                }
                None => self.check_no_session(scope, session)?,
            }
        }
        stored.map(|stored| self.snapshot(stored, detail)).transpose()
    }

    /// Returns the rows that name this one as their parent, oldest first.
    pub(crate) fn children(&mut self, scope: &str, id: &str) -> Outcome<Vec<Snapshot>> {
        let mut children: Vec<Snapshot> = self
            .rows(&CHILDREN, (scope, id))?
            .into_iter()
            .map(|stored| stored.snapshot)
            .collect();
        children.sort_by(|one, other| one.position().cmp(&other.position()));
        Ok(children)
    }

    pub(crate) fn find(&self, scope: &str, id: &str) -> Outcome<Option<Stored>> {
        Ok(self.rows(&BY_ID, (scope, id))?.pop())
    }

    pub(crate) fn rows(&self, sql: &str, params: impl Params) -> Outcome<Vec<Stored>> {
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(Stored::from_row(row)?);
        }
        Ok(found)
    }

    /// Returns where a session's tip is.
    pub(crate) fn tip(&self, session: i64) -> Outcome<Option<Tip>> {
        let tip = self
            .db
            .find(TIP, [session], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
        tip.map(|(created_at, id)| Ok((to_time(created_at)?, id.into())))
            .transpose()
    }

    /// Returns the row that a precondition asks for, where the row `written` is being written.
    pub(crate) fn found(
        &self,
        session: i64,
        precondition: &Precondition,
        written: &SnapshotId,
    ) -> Outcome<Option<SnapshotId>> {
        match precondition.on_snapshots() {
            Precondition::None | Precondition::Held { .. } => Ok(None),
            Precondition::Tip(_) => Ok(self.tip(session)?.map(|(_, id)| id)),
            Precondition::Unfollowed { snapshot: None, .. } => {
                // A turn that begins the session competes with whatever is in it.
                self.successor(KEPT_ROWS, [session], precondition, written)
            }
            Precondition::Unfollowed {
                snapshot: Some(id), ..
            } => {
                let created_at: Option<i64> =
                    self.db.find(KEPT_ROW, (session, id.as_str()), |row| row.get(0))?;
                let Some(created_at) = created_at else {
                    return Ok(None);
                };
                let place = (session, id.as_str(), created_at);
                let successor = self.successor(CHILDREN_AFTER, place, precondition, written)?;
                // Without a successor, the precondition expects the row itself; `None` would mean that it was
                // deleted.
                Ok(successor.or_else(|| Some(id.clone())))
            }
        }
    }

    /// Returns the first of some rows that a precondition counts as a successor.
    fn successor(
        &self,
        sql: &str,
        params: impl Params,
        precondition: &Precondition,
        written: &SnapshotId,
    ) -> Outcome<Option<SnapshotId>> {
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            let id = SnapshotId::from(row.get::<_, String>(0)?);
            let status = from_word(&row.get::<_, String>(1)?)?;
            if id != *written && precondition.counts(&id, status) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Returns the key of a session, if it has one.
    pub(crate) fn session_key(&self, scope: &str, session: &str) -> Outcome<Option<i64>> {
        self.db.find(SESSION_KEY, (scope, session), |row| row.get(1))
    }

    /// Returns where a session's tip is, after checking that it is the tip that was last written.
    pub(crate) fn known_tip(&self, scope: i64, session: i64) -> Outcome<Option<Tip>> {
        let tip = self.tip(session)?;
        self.check_tip(scope, session, tip.as_ref())?;
        Ok(tip)
    }

    /// Checks that the tip that was found among a session's rows is the one that the table of tips names.
    fn check_tip(&self, scope: i64, session: i64, found: Option<&Tip>) -> Outcome<()> {
        if let Some((created_at, id)) = found {
            let mut statement = self.db.prepare_cached(IS_TIP)?;
            let place = (scope, to_nanos(*created_at)?, id.as_str(), session);
            if statement.query_row(place, |row| row.get(0))? {
                return Ok(());
            }
        }
        let named: Option<String> = self.db.find(TIP_OF, (scope, session), |row| row.get(0))?;
        let name = self
            .db
            .query_row("SELECT name FROM session WHERE key = ?1", [session], |row| {
                row.get(0)
            });
        let name: String = name.optional()?.unwrap_or_default();
        match (named, found) {
            (None, None) => Ok(()),
            (Some(id), _) => Err(Fault::damaged(format!(
                "session '{name}' has lost its latest snapshot '{id}'; delete the snapshot to continue from the one before"
            ))),
            (None, Some((_, id))) => Err(Fault::damaged(format!(
                "session '{name}' does not list its latest snapshot '{id}'"
            ))),
        }
    }

    /// Returns whether a session has any rows, orphaned ones included.
    pub(crate) fn has_rows(&self, session: i64) -> Outcome<bool> {
        self.db.one(HAS_ROWS, [session], |row| row.get(0))
    }

    /// Returns the snapshot of a row, with its state if `detail` asks for it.
    pub(crate) fn snapshot(&mut self, stored: Stored, detail: Detail) -> Outcome<Snapshot> {
        let mut snapshot = stored.snapshot;
        if detail == Detail::Whole {
            let state = stored.state.map(|state| self.state(state)).transpose();
            snapshot.state = state.map_err(|fault| fault.in_snapshot(&snapshot))?;
        }
        Ok(snapshot)
    }

    fn state(&mut self, stored: StoredState) -> Outcome<SessionState> {
        Ok(SessionState {
            session_id: stored.session_id,
            messages: stored
                .messages
                .map(|at| self.history(at))
                .transpose()?
                .unwrap_or_default(),
            custom: stored.custom.map(|key| self.json(key)).transpose()?,
            artifacts: stored
                .artifacts
                .map(|key| self.artifacts(key))
                .transpose()?
                .unwrap_or_default(),
            prompt_input: stored.prompt_input.map(|key| self.json(key)).transpose()?,
            extra: stored.extra,
        })
    }
}

/// Returns the status of a row; `None` if there is no such row.
pub(crate) fn status(db: &Connection, scope: &str, id: &str) -> Outcome<Option<SnapshotStatus>> {
    let word: Option<String> = db.find(STATUS, (scope, id), |row| row.get(0))?;
    Ok(word.map(|word| from_word(&word)).transpose()?)
}
