//! Reading rows and the states that they refer to.
//!
//! One statement reads a row, and others read the parts of its state that are not cached. In between, another
//! process may delete the row together with its parts. A missing part is therefore damage only if the row
//! still refers to it at the same version of its session.

use std::sync::Arc;

use everturn_agent::store::{Detail, Precondition, Scope};
use everturn_agent::{SessionState, Snapshot, SnapshotId};
use everturn_ai::History;
use everturn_sql::{StoreFault, from_word};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::Patience;
use crate::fault::{Fault, Outcome};
use crate::inner::Inner;
use crate::known::{Found, KNOWN, KNOWN_LINE, Known, TIP, known};
use crate::position::SessionKey;
use crate::row::{COLUMNS, Stored, StoredState, optional_text};
use crate::statement::{Statement, column};

/// The store as one call sees it: by way of the pool, or within the transaction on one connection.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) store: &'a Inner,
    pub(crate) on: Option<&'a tokio_postgres::Client>,
}

/// The state on which a commit is based: the row with an id and its session, or the session of the new row.
pub(crate) struct View {
    pub(crate) stored: Option<Stored>,
    pub(crate) session: Option<Found>,
    /// The session that was looked for.
    pub(crate) looked: Option<SessionKey>,
}

impl Inner {
    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading {
            store: self,
            on: None,
        }
    }

    /// Returns the store within the transaction on a connection.
    pub(crate) fn reading_on<'a>(&'a self, client: &'a tokio_postgres::Client) -> Reading<'a> {
        Reading {
            store: self,
            on: Some(client),
        }
    }
}

/// Selects the row with an id.
pub(crate) fn by_id(scope: &Scope, id: &str) -> Statement<'static> {
    Statement::new(format!(
        "SELECT {COLUMNS}, {KNOWN} FROM @snapshot s JOIN @session n ON n.tenant = s.tenant AND n.key = s.session \
         {KNOWN_LINE} WHERE s.tenant = $1 AND s.scope = $2 AND s.id = $3"
    )).with((scope, id))
}

/// Selects the tip of a session. The session is found even if the row of its tip is missing.
pub(crate) fn latest(key: SessionKey) -> Statement<'static> {
    Statement::new(format!(
        "SELECT {COLUMNS}, {KNOWN} FROM @session n LEFT JOIN @snapshot s ON s.tenant = n.tenant AND s.scope = n.scope \
         AND s.id = n.tip {KNOWN_LINE} WHERE n.tenant = $1 AND n.key = $2"
    )).with(key)
}

/// Selects the rows that name one as their parent, oldest first.
pub(crate) fn children(scope: &Scope, id: &str) -> Statement<'static> {
    Statement::new(format!(
        "SELECT {COLUMNS} FROM @snapshot s JOIN @session n ON n.tenant = s.tenant AND n.key = s.session \
         WHERE s.tenant = $1 AND s.scope = $2 AND s.parent = $3 ORDER BY s.created_at, s.id"
    ))
    .with((scope, id))
}

/// Selects the session's version, and the id and status of each row that no rewind left behind; the last
/// column is empty.
pub(crate) fn kept_rows(session: SessionKey) -> Statement<'static> {
    Statement::new(
        "SELECT n.version, s.id, s.status, NULL::bytea FROM @session n LEFT JOIN @snapshot s ON s.tenant = $1 \
         AND s.session = $2 AND NOT s.orphaned WHERE n.tenant = $1 AND n.key = $2",
    ).with(session)
}

/// Selects the session's version, the id and status of each row that follows one, and that one's own id if it
/// is kept.
pub(crate) fn followers(scope: &Scope, session: SessionKey, id: &str) -> Statement<'static> {
    Statement::new(
        "SELECT n.version, c.id, c.status, p.id FROM @session n \
         LEFT JOIN @snapshot p ON p.tenant = $1 AND p.scope = $3 AND p.id = $4 AND p.session = $2 AND NOT p.orphaned \
         LEFT JOIN @snapshot c ON c.tenant = $1 AND c.scope = $3 AND c.parent = p.id AND c.session = $2 \
         AND NOT c.orphaned AND (c.created_at, c.id) > (p.created_at, p.id) \
         WHERE n.tenant = $1 AND n.key = $2",
    ).with((session, scope.as_str(), id))
}

/// Selects what a commit starts from: always one row.
fn view(scope: &Scope, id: &str, session: Option<SessionKey>) -> Statement<'static> {
    Statement::new(format!(
        "SELECT {COLUMNS}, {KNOWN} FROM (SELECT 1) one \
         LEFT JOIN @snapshot s ON s.tenant = $1 AND s.scope = $2 AND s.id = $3 \
         LEFT JOIN @session n ON n.tenant = $1 AND n.key = coalesce(s.session, $4) {KNOWN_LINE}"
    ))
    .with((scope, id, session.map(|session| session.id)))
}

impl Reading<'_> {
    pub(crate) async fn rows(&self, statement: &Statement<'_>) -> Outcome<Vec<Row>> {
        match self.on {
            None => self.store.db.read(statement).await,
            Some(client) => self.store.db.run_on(client, statement).await,
        }
    }

    /// Runs a statement that writes, once. Commits the transaction, if there is one.
    pub(crate) async fn write(&self, statement: &Statement<'_>) -> Outcome<Vec<Row>> {
        let db = &self.store.db;
        let Some(client) = self.on else {
            return db.run(statement).await;
        };
        let rows = db.run_on(client, statement).await?;
        // The next transaction is empty, and undone by its owner.
        let committed = db.run_on(client, &Statement::new("COMMIT AND CHAIN")).await;
        committed.map_err(|fault| {
            if fault.is_lost() {
                fault.unanswered()
            } else {
                fault
            }
        })?;
        Ok(rows)
    }

    /// Reads what a commit starts from, and remembers the session.
    pub(crate) async fn view(&self, scope: &Scope, id: &str, session: Option<SessionKey>) -> Outcome<View> {
        let rows = self.rows(&view(scope, id, session)).await?;
        let row = rows
            .first()
            .ok_or_else(|| Fault::damaged("a question of one answer had none"))?;
        self.viewed(row, session)
    }

    fn viewed(&self, row: &Row, session: Option<SessionKey>) -> Outcome<View> {
        let there = column::<Option<&[u8]>>(row, 0)?.is_some();
        let stored = there.then(|| Stored::from_row(row)).transpose()?;
        let found = known(row, stored.as_ref())?;
        let key = stored.as_ref().map(|stored| stored.session).or(session);
        match (key, &found) {
            (Some(key), Some(found)) => self.store.cache.learn_session(key, Arc::clone(&found.known)),
            (Some(key), None) => self.store.cache.forget_session(key),
            (None, _) => {}
        }
        Ok(View {
            stored,
            session: found,
            looked: key,
        })
    }

    /// Reads the row with an id.
    pub(crate) async fn find(&self, scope: &Scope, id: &str) -> Outcome<Option<(Stored, i64)>> {
        self.one(&by_id(scope, id), None).await
    }

    /// Reads a row and the version of its session.
    async fn one(
        &self,
        statement: &Statement<'_>,
        session: Option<SessionKey>,
    ) -> Outcome<Option<(Stored, i64)>> {
        let rows = self.rows(statement).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let view = self.viewed(row, session)?;
        match (view.stored, view.session) {
            (Some(stored), Some(found)) => Ok(Some((stored, found.known.version))),
            (None, Some(_)) => match (optional_text(row, TIP)?, optional_text(row, 1)?) {
                (None, _) => Ok(None),
                (Some(tip), name) => Err(Fault::damaged(format!(
                    "the latest snapshot '{tip}' of session '{}' is missing",
                    name.unwrap_or_default()
                ))),
            },
            _ => Ok(None),
        }
    }

    pub(crate) async fn get(&self, scope: &Scope, id: &str, detail: Detail) -> Outcome<Option<Snapshot>> {
        self.read_whole(&by_id(scope, id), None, detail).await
    }

    pub(crate) async fn latest(
        &self,
        scope: &Scope,
        session: &str,
        detail: Detail,
    ) -> Outcome<Option<Snapshot>> {
        let key = SessionKey::of(scope, session);
        self.read_whole(&latest(key), Some(key), detail).await
    }

    /// Returns the row that a precondition asks for, where the row `written` is being written, at the version
    /// of the session that is known.
    ///
    /// The latest row has no successor, so most turns need no question.
    pub(crate) async fn found(
        &self,
        scope: &Scope,
        session: SessionKey,
        known: Option<&Known>,
        precondition: &Precondition,
        written: &SnapshotId,
    ) -> Outcome<Option<SnapshotId>> {
        let Some(known) = known else {
            return Ok(None);
        };
        let tip = known.tip.as_ref().map(|(_, id)| id);
        let (statement, continued) = match precondition.on_snapshots() {
            Precondition::None | Precondition::Held { .. } => return Ok(None),
            Precondition::Tip(_) => return Ok(tip.cloned()),
            Precondition::Unfollowed { snapshot, .. } if snapshot.as_ref() == tip => return Ok(tip.cloned()),
            Precondition::Unfollowed { snapshot: None, .. } => (kept_rows(session), None),
            Precondition::Unfollowed {
                snapshot: Some(id), ..
            } => (followers(scope, session, id.as_str()), Some(id)),
        };
        let rows = self.rows(&statement).await?;
        let mut found = None;
        for row in &rows {
            if column::<i64>(row, 0)? != known.version {
                return Err(Fault::Moved);
            }
            // The row that is continued comes first, alone if nothing follows it.
            if found.is_none() && optional_text(row, 3)?.is_some() {
                found = continued.cloned();
            }
            if let Some(id) = optional_text(row, 1)? {
                let id = SnapshotId::from(id);
                if id != *written && precondition.counts(&id, from_word(column(row, 2)?)?) {
                    return Ok(Some(id));
                }
            }
        }
        if rows.is_empty() {
            return Err(Fault::Moved);
        }
        Ok(found)
    }

    /// Reads the rows that name one as their parent, oldest first.
    pub(crate) async fn children(&self, scope: &Scope, id: &str) -> Outcome<Vec<Snapshot>> {
        let rows = self.rows(&children(scope, id)).await?;
        rows.iter()
            .map(|row| Ok(Stored::from_row(row)?.snapshot))
            .collect()
    }

    /// Reads a row and its state, again if they changed in between.
    async fn read_whole(
        &self,
        statement: &Statement<'_>,
        session: Option<SessionKey>,
        detail: Detail,
    ) -> Outcome<Option<Snapshot>> {
        let mut patience = Patience::new(self.store.db.patience);
        let mut before = None;
        loop {
            let Some((stored, version)) = self.one(statement, session).await? else {
                return Ok(None);
            };
            let place = (stored.session, version);
            match self.snapshot(stored, detail).await {
                Err(Fault::Damaged(_)) if before != Some(place) && patience.wait().await => {
                    before = Some(place);
                }
                outcome => return outcome.map(Some),
            }
        }
    }

    /// Returns the snapshot of a row, with its state if `detail` asks for it.
    pub(crate) async fn snapshot(&self, stored: Stored, detail: Detail) -> Outcome<Snapshot> {
        let mut snapshot = stored.snapshot;
        if detail == Detail::Whole
            && let Some(state) = stored.state
        {
            let read = self.state(stored.session, state).await;
            snapshot.state = Some(read.map_err(|fault| fault.in_snapshot(&snapshot))?);
        }
        Ok(snapshot)
    }

    async fn state(&self, session: SessionKey, stored: StoredState) -> Outcome<SessionState> {
        let messages = match stored.messages {
            Some((at, tail)) => self.history(at, tail).await?.history,
            None => History::new(),
        };
        self.load_documents(session, &stored).await?;
        Ok(SessionState {
            session_id: stored.session_id,
            messages,
            custom: self.json(session, stored.custom).await?,
            artifacts: self.artifacts(session, stored.artifacts).await?,
            prompt_input: self.json(session, stored.prompt_input).await?,
            extra: stored.extra,
        })
    }
}

/// Returns ids as the columns they are compared with.
pub(crate) fn bytes<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Vec<u8>> {
    names.into_iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// Returns the own keys of sessions.
pub(crate) fn ids(sessions: impl IntoIterator<Item = SessionKey>) -> Vec<Uuid> {
    sessions.into_iter().map(|session| session.id).collect()
}
