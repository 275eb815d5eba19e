//! A cache of the latest rows of sessions that have no journals, so that continuing a session reads nothing.
//!
//! Unlike the facts of [`crate::cache`], these rows are valid only until the next write. Transactions of this
//! process record the rows that they change. Commits of other processes change SQLite's `data_version` on
//! every other connection. So two connections are queried after every commit:
//!
//! 1. the *monitor*, a connection that never writes, for its version;
//! 2. the writer, for whether its version is still that of the transaction. If so, every change that the
//!    monitor has seen was made by this process.
//!
//! From then on the cached rows are the latest ones as long as the monitor's version stays the same. Reading
//! that version takes a few microseconds and never waits, so it needs no other thread.

use std::path::PathBuf;

use everturn_agent::SessionId;
use everturn_agent::store::Scope;
use everturn_sql::Lru;
use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;

use crate::connection::{data_version, open_monitor};
use crate::read::Tip;
use crate::row::Stored;

/// The number of cached sessions. Evicting one costs a read.
const MAX_SESSIONS: usize = 4 * 1024;

type Session = (Scope, SessionId);

/// The cached rows.
pub(crate) struct LatestCache {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    rows: Lru<Session, Stored>,
    /// The writer's version at its last commit.
    written_at: Option<i64>,
    /// The monitor's version at which the rows are the latest ones.
    valid_at: Option<i64>,
    monitor: Monitor,
}

enum Monitor {
    /// Not opened before the first commit: a store that only reads needs no monitor.
    NotYet,
    Open(Connection),
    Closed,
}

/// The rows that a transaction has changed.
#[derive(Default)]
pub(crate) struct Changes {
    /// The latest row of each session that was written; `None` if the row or a journal must be read.
    rows: Vec<(Session, Option<Stored>)>,
    is_everything: bool,
}

impl Changes {
    /// Records the latest row of a session that has no journals; `None` if they must be read.
    pub(crate) fn note(&mut self, scope: &Scope, session: &SessionId, row: Option<Stored>) {
        self.rows.push(((scope.clone(), session.clone()), row));
    }

    /// Records that any session may have changed.
    pub(crate) fn note_all(&mut self) {
        self.is_everything = true;
    }

    /// Returns the number of records, for [`Changes::undo`].
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Drops all records after the first `len`, because they were rolled back.
    pub(crate) fn undo(&mut self, len: usize) {
        self.rows.truncate(len);
    }
}

impl LatestCache {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            state: Mutex::new(State {
                rows: Lru::new(MAX_SESSIONS),
                written_at: None,
                valid_at: None,
                monitor: Monitor::NotYet,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic can at worst leave `valid_at` unchanged; the next commit updates it.
        self.state.lock()
    }

    /// Returns the latest row of a session that has no journals, if it is cached and no other connection has
    /// written since.
    pub(crate) fn now(&self, scope: &Scope, session: &SessionId) -> Option<Stored> {
        let mut state = self.state();
        let row = state.rows.get(&(scope.clone(), session.clone())).cloned()?;
        state.is_valid().then_some(row)
    }

    /// Returns whether a session is cached, and so has no journals.
    pub(crate) fn has_no_journal(&self, scope: &Scope, session: &SessionId) -> bool {
        let mut state = self.state();
        state.rows.get(&(scope.clone(), session.clone())).is_some() && state.is_valid()
    }

    /// Returns the keys of a session's tenant and of the session, and its tip, as seen by a transaction that
    /// writes at this version.
    pub(crate) fn in_transaction(
        &self,
        version: Option<i64>,
        changes: &Changes,
        scope: &Scope,
        session: &SessionId,
    ) -> Option<(i64, i64, Tip)> {
        let place = |row: &Stored| {
            let tip = (row.snapshot.created_at, row.snapshot.snapshot_id.clone());
            (row.scope, row.session, tip)
        };
        let is_own = |((of, named), _): &&(Session, _)| of == scope && named == session;
        if let Some((_, row)) = changes.rows.iter().rev().find(is_own) {
            return row.as_ref().map(place);
        }
        let mut state = self.state();
        if changes.is_everything || version.is_none() || state.written_at != version {
            return None;
        }
        state.rows.get(&(scope.clone(), session.clone())).map(place)
    }

    /// Caches the rows of a transaction that began at this version and has just been committed.
    pub(crate) fn committed(&self, writer: &Connection, version: Option<i64>, changes: Changes) {
        let mut state = self.state();
        if changes.is_everything || version.is_none() || state.written_at != version {
            state.rows.clear();
        }
        for (session, row) in changes.rows {
            match row {
                Some(row) => drop(state.rows.insert(session, row, 1)),
                None => drop(state.rows.remove(&session)),
            }
        }
        if matches!(state.monitor, Monitor::NotYet) {
            // Without a monitor, rows are read from the database.
            state.monitor = open_monitor(&self.path).map_or(Monitor::Closed, Monitor::Open);
        }
        let seen = state.seen();
        let now = data_version(writer).ok();
        let is_alone = now.is_some() && now == version;
        state.written_at = version.filter(|_| is_alone);
        state.valid_at = seen.filter(|_| is_alone);
    }

    /// Removes all rows.
    pub(crate) fn forget(&self) {
        let mut state = self.state();
        (state.written_at, state.valid_at) = (None, None);
        state.rows.clear();
    }

    /// Closes the monitor and disables the cache.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.monitor = Monitor::Closed;
        state.rows.clear();
    }
}

impl State {
    fn is_valid(&self) -> bool {
        self.valid_at.is_some() && self.seen() == self.valid_at
    }

    /// Returns the monitor's version.
    fn seen(&self) -> Option<i64> {
        match &self.monitor {
            Monitor::Open(connection) => data_version(connection).ok(),
            Monitor::NotYet | Monitor::Closed => None,
        }
    }
}
