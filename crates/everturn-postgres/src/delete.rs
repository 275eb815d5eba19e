//! Deleting rows, and everything that is no longer referred to.
//!
//! A deletion is a transaction of several statements. It first locks the sessions whose rows are deleted, and
//! sets their next versions: commits that were computed from deleted rows fail, and are computed again. Data
//! that only a deleted row referred to is deleted in the same transaction: messages beyond the last position
//! in use, documents, blobs and the session. A document that was a patch on a deleted one is written in full.

use std::collections::BTreeSet;

use everturn_agent::SnapshotId;
use everturn_agent::store::{Deletion, Scope};
use tokio_postgres::Row;

use crate::body::pack;
use crate::connection::Patience;
use crate::fault::Outcome;
use crate::inner::Inner;
use crate::known::{line, line_checksum};
use crate::position::{LineageKey, SessionKey, column as number_column, length, new_version, tenant};
use crate::read::{Reading, bytes};
use crate::row::{COLUMNS, Stored, StoredState};
use crate::statement::{Statement, column};
use crate::usage_ledger::close_tenant;

/// The parts that deleted or rewritten rows referred to, in the session of these rows.
#[derive(Default)]
pub(crate) struct Released {
    pub(crate) lineages: BTreeSet<LineageKey>,
    pub(crate) documents: BTreeSet<(SessionKey, i64)>,
}

impl Released {
    fn add(&mut self, session: SessionKey, state: &StoredState) {
        self.lineages.extend(state.messages.map(|(at, _)| at.lineage));
        self.documents
            .extend(state.documents().map(|number| (session, number)));
    }
}

impl Inner {
    /// Deletes rows and returns how many existed.
    pub(crate) async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Outcome<u64> {
        let mut patience = Patience::new(self.db.patience);
        loop {
            match self.try_delete(scope, deletion).await {
                Err(fault) if fault.is_conflict() && patience.wait_turn().await => {}
                // A deletion whose connection broke may be carried out again: it is the same in the end.
                Err(fault) if fault.is_lost() && patience.wait().await => {}
                outcome => return outcome,
            }
        }
    }

    /// Deletes all sessions of a tenant, one after the other, until there is none.
    pub(crate) async fn delete_tenant(&self, scope: &Scope) -> Outcome<u64> {
        let mut deleted = 0;
        let mut before = Vec::new();
        loop {
            let statement =
                Statement::new("SELECT name FROM @session WHERE tenant = $1 AND scope = $2 ORDER BY name")
                    .with(scope);
            let rows = self.db.read(&statement).await?;
            let names: Vec<Vec<u8>> = rows.iter().map(|row| column(row, 0)).collect::<Outcome<_>>()?;
            // A session that cannot be deleted away, because a turn of it holds it, is no reason to go on for
            // ever.
            if names.is_empty() || names == before {
                self.db.read(&close_tenant(scope)).await?;
                self.db.read(&forget_name(scope)).await?;
                return Ok(deleted);
            }
            for name in &names {
                let session = String::from_utf8_lossy(name).into_owned();
                deleted += self.delete(scope, &Deletion::Session(session.into())).await?;
            }
            before = names;
        }
    }

    /// Returns all tenants that have sessions or usage.
    pub(crate) async fn tenants(&self) -> Outcome<Vec<Scope>> {
        let sql = "SELECT known.scope, n.name FROM (SELECT tenant, scope FROM @session UNION SELECT tenant, scope FROM @ledger) \
                   AS known LEFT JOIN @tenant_name n ON n.tenant = known.tenant AND n.scope = known.scope";
        let rows = self.db.read(&Statement::new(sql)).await?;
        let text = |name: Vec<u8>| String::from_utf8_lossy(&name).into_owned();
        rows.iter()
            .map(|row| {
                let scope = Scope::new(text(column(row, 0)?));
                Ok(match column::<Option<Vec<u8>>>(row, 1)? {
                    Some(name) => scope.with_tenant(text(name)),
                    None => scope,
                })
            })
            .collect()
    }

    async fn try_delete(&self, scope: &Scope, deletion: &Deletion) -> Outcome<u64> {
        let mut connection = self.db.connection().await?;
        let transaction = self.db.bounded(connection.transaction()).await?;
        let deleting = Deleting(self.reading_on(transaction.client()));
        let rows = deleting.delete(scope, deletion).await?;
        self.db.bounded(transaction.commit()).await?;
        for row in &rows {
            self.cache.forget_session(row.session);
        }
        let gone = rows
            .iter()
            .map(|row| (scope.clone(), row.snapshot.snapshot_id.clone()));
        self.watchers.notice(gone);
        Ok(rows.len() as u64)
    }

    /// Deletes what a rewritten row referred to before and nothing refers to now.
    ///
    /// The row is written already, so a failure is no failure of the commit: [`PostgresStore::tidy`] deletes
    /// it later.
    ///
    /// [`PostgresStore::tidy`]: crate::PostgresStore::tidy
    pub(crate) async fn release_replaced(&self, session: SessionKey, before: &StoredState) {
        let mut released = Released::default();
        released.add(session, before);
        if let Err(fault) = self.release(session, released).await {
            let error = fault.into_error(&self.db.place);
            tracing::warn!(%error, "what a rewritten snapshot no longer needs was not deleted yet");
        }
    }

    /// Deletes the parts that nothing refers to, in a separate transaction.
    pub(crate) async fn release(&self, session: SessionKey, released: Released) -> Outcome<()> {
        self.cache.forget_session(session);
        let mut connection = self.db.connection().await?;
        let transaction = self.db.bounded(connection.transaction()).await?;
        let deleting = Deleting(self.reading_on(transaction.client()));
        deleting.lock(&BTreeSet::from([session])).await?;
        deleting.release(released).await?;
        self.db.bounded(transaction.commit()).await
    }
}

/// A transaction that deletes.
struct Deleting<'a>(Reading<'a>);

impl Deleting<'_> {
    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Outcome<Vec<Stored>> {
        let rows = match deletion {
            Deletion::Snapshots(ids) => self.named(scope, ids).await?,
            // It is deleted session by session.
            Deletion::Tenant => Vec::new(),
            Deletion::Session(session) => {
                let key = SessionKey::of(scope, session.as_str());
                self.lock(&BTreeSet::from([key])).await?;
                let statement = of_session("DELETE FROM @journal WHERE tenant = $1 AND session = $2", key);
                self.0.rows(&statement).await?;
                let statement = of_session("DELETE FROM @ledger WHERE tenant = $1 AND session = $2", key);
                self.0.rows(&statement).await?;
                let rows = self.of_session(key).await?;
                if rows.is_empty() {
                    self.update_session(key).await?;
                }
                rows
            }
        };
        let ids = bytes(rows.iter().map(|row| row.snapshot.snapshot_id.as_str()));
        let statement =
            Statement::new("DELETE FROM @snapshot WHERE tenant = $1 AND scope = $2 AND id = ANY ($3)")
                .with((scope, ids));
        self.0.rows(&statement).await?;
        let sessions: BTreeSet<SessionKey> = rows.iter().map(|row| row.session).collect();
        for session in sessions {
            self.update_session(session).await?;
        }
        let mut released = Released::default();
        for row in &rows {
            if let Some(state) = &row.state {
                released.add(row.session, state);
            }
        }
        self.release(released).await?;
        self.0.rows(&forget_name(scope)).await?;
        Ok(rows)
    }

    /// Locks sessions, always in one order, and sets their next versions.
    async fn lock(&self, sessions: &BTreeSet<SessionKey>) -> Outcome<()> {
        for session in sessions {
            let sql = "UPDATE @session SET version = $3 WHERE tenant = $1 AND key = $2";
            let statement = of_session(sql, *session).with(new_version());
            self.0.rows(&statement).await?;
        }
        Ok(())
    }

    /// Returns the rows with these ids, their sessions locked.
    async fn named(&self, scope: &Scope, ids: &[SnapshotId]) -> Outcome<Vec<Stored>> {
        let ids = bytes(ids.iter().map(SnapshotId::as_str));
        let select = |columns: &str| {
            Statement::new(format!(
                "SELECT {columns} FROM @snapshot s JOIN @session n ON n.tenant = s.tenant AND n.key = s.session \
                 WHERE s.tenant = $1 AND s.scope = $2 AND s.id = ANY ($3)"
            )).with((scope, ids.clone()))
        };
        let mut sessions = BTreeSet::new();
        for row in self.0.rows(&select("s.session")).await? {
            sessions.insert(SessionKey::new(tenant(scope), column(&row, 0)?));
        }
        self.lock(&sessions).await?;
        stored(&self.0.rows(&select(COLUMNS)).await?)
    }

    async fn of_session(&self, session: SessionKey) -> Outcome<Vec<Stored>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM @session n JOIN @snapshot s ON s.tenant = $1 AND s.session = $2 \
             WHERE n.tenant = $1 AND n.key = $2"
        );
        stored(&self.0.rows(&of_session(&sql, session)).await?)
    }

    /// Updates a session's tip, or deletes the session if it has no rows.
    async fn update_session(&self, session: SessionKey) -> Outcome<()> {
        let sql = "DELETE FROM @session WHERE tenant = $1 AND key = $2 AND NOT EXISTS \
                   (SELECT 1 FROM @snapshot WHERE tenant = $1 AND session = $2) RETURNING 1";
        if !self.0.rows(&of_session(sql, session)).await?.is_empty() {
            return Ok(());
        }
        let sql = "UPDATE @session SET (tip_at, tip) = (SELECT created_at, id FROM @snapshot \
                   WHERE tenant = $1 AND session = $2 AND NOT orphaned ORDER BY created_at DESC, id DESC LIMIT 1) \
                   WHERE tenant = $1 AND key = $2";
        self.0.rows(&of_session(sql, session)).await.map(|_| ())
    }

    async fn release(&self, released: Released) -> Outcome<()> {
        let mut lineages: Vec<LineageKey> = released.lineages.into_iter().collect();
        // A lineage that goes may have been the last that its parent was needed for.
        while let Some(lineage) = lineages.pop() {
            lineages.extend(self.release_lineage(lineage).await?);
        }
        let sessions: BTreeSet<SessionKey> = released.documents.iter().map(|(session, _)| *session).collect();
        for session in sessions {
            let numbers = released
                .documents
                .iter()
                .filter(|(of, _)| *of == session)
                .map(|(_, number)| *number)
                .collect();
            self.release_documents(session, numbers).await?;
        }
        Ok(())
    }

    /// Deletes the messages of a lineage beyond its last position in use. If none is in use, deletes the
    /// lineage and returns its parent.
    async fn release_lineage(&self, lineage: LineageKey) -> Outcome<Option<LineageKey>> {
        let place = |sql: &str| of_session(sql, lineage.session).with(lineage.number);
        // Also locks the lineage's session, if it is another one, because the deletion makes the cached state
        // of that session's writers stale.
        self.lock(&BTreeSet::from([lineage.session])).await?;
        let sql = "SELECT parent_session, parent, base, cut, NULL::integer, checksum FROM @lineage \
                   WHERE tenant = $1 AND session = $2 AND number = $3 FOR UPDATE";
        let Some(row) = self.0.rows(&place(sql)).await?.into_iter().next() else {
            return Ok(None);
        };
        let Some(known) = line(&row, 0, lineage)? else {
            return Ok(None);
        };
        let sql = "SELECT greatest( \
             (SELECT max(up_to) FROM @snapshot WHERE tenant = $1 AND session = $2 AND line_session IS NULL AND lineage = $3), \
             (SELECT max(up_to) FROM @snapshot WHERE tenant = $1 AND line_session = $2 AND lineage = $3), \
             (SELECT max(base) FROM @lineage WHERE tenant = $1 AND parent_session = $2 AND parent = $3))";
        let rows = self.0.rows(&place(sql)).await?;
        let used: Option<i32> = rows.first().map_or(Ok(None), |row| column(row, 0))?;
        let used = used.map_or(0, length);
        let cut = self.delete_messages(lineage, used).await?;
        if used > 0 {
            if cut {
                // A position must keep its meaning, so no message may be appended where messages were
                // deleted.
                let (used, base) = (number_column(used)?, number_column(known.base)?);
                let checksum = line_checksum(lineage, known.parent, base, Some(used));
                let sql = "UPDATE @lineage SET cut = $4, checksum = $5 WHERE tenant = $1 AND session = $2 AND number = $3";
                let statement = place(sql).with((used, checksum));
                self.0.rows(&statement).await?;
            }
            return Ok(None);
        }
        let sql = "DELETE FROM @lineage WHERE tenant = $1 AND session = $2 AND number = $3";
        self.0.rows(&place(sql)).await?;
        Ok(known.parent)
    }

    /// Deletes the messages of a lineage from an index on and returns whether there were any.
    async fn delete_messages(&self, lineage: LineageKey, from: usize) -> Outcome<bool> {
        let from = number_column(from)?;
        let place = |sql: &str| of_session(sql, lineage.session).with((lineage.number, from));
        let sql = "DELETE FROM @message_blob WHERE tenant = $1 AND session = $2 AND lineage = $3 AND number >= $4 RETURNING hash";
        let links = self.0.rows(&place(sql)).await?;
        let sql = "WITH gone AS (DELETE FROM @message WHERE tenant = $1 AND session = $2 AND lineage = $3 AND number >= $4 \
                   RETURNING 1) SELECT count(*) FROM gone";
        let rows = self.0.rows(&place(sql)).await?;
        self.release_blobs(lineage.session, &links).await?;
        Ok(rows.first().map_or(Ok(0), |row| column::<i64>(row, 0))? > 0)
    }

    /// Deletes those documents that no snapshot refers to. Documents that are patches on them are first
    /// written in full.
    async fn release_documents(&self, session: SessionKey, numbers: Vec<i64>) -> Outcome<()> {
        let sql = "SELECT unnest($3) EXCEPT SELECT unnest(ARRAY[custom, artifacts, prompt_input]) FROM @snapshot \
                   WHERE tenant = $1 AND session = $2";
        let statement = of_session(sql, session).with(numbers);
        let mut unused: Vec<i64> = Vec::new();
        for row in self.0.rows(&statement).await? {
            unused.push(column(&row, 0)?);
        }
        if unused.is_empty() {
            return Ok(());
        }
        let sql = "SELECT number FROM @document WHERE tenant = $1 AND session = $2 AND base = ANY ($3) \
                   AND NOT number = ANY ($3)";
        let statement = of_session(sql, session).with(unused.clone());
        for row in self.0.rows(&statement).await? {
            self.make_independent(session, column(&row, 0)?).await?;
        }
        let sql = "DELETE FROM @document_blob WHERE tenant = $1 AND session = $2 AND number = ANY ($3) RETURNING hash";
        let links = self
            .0
            .rows(&of_session(sql, session).with(unused.clone()))
            .await?;
        let sql = "DELETE FROM @document WHERE tenant = $1 AND session = $2 AND number = ANY ($3)";
        self.0.rows(&of_session(sql, session).with(unused)).await?;
        self.release_blobs(session, &links).await
    }

    /// Rewrites a patch as a full text, so that its base can be deleted.
    async fn make_independent(&self, session: SessionKey, number: i64) -> Outcome<()> {
        let (text, _) = self.0.document_text(session, number).await?;
        let encoding = self.0.store.encoding;
        let cut = encoding.cut(&text);
        let place = |sql: &str| of_session(sql, session).with(number);
        let sql =
            "DELETE FROM @document_blob WHERE tenant = $1 AND session = $2 AND number = $3 RETURNING hash";
        let links = self.0.rows(&place(sql)).await?;
        let sql = "UPDATE @document SET base = NULL, depth = 0, cuts = $4, body = $5 \
                   WHERE tenant = $1 AND session = $2 AND number = $3";
        let statement = place(sql).with((number_column(cut.pieces.len())?, pack(encoding, &cut.text)?));
        self.0.rows(&statement).await?;
        for (offset, piece) in &cut.pieces {
            let sql = "WITH long AS (INSERT INTO @blob (tenant, session, hash, body) VALUES ($1, $2, $5, $6) \
                       ON CONFLICT DO NOTHING) \
                       INSERT INTO @document_blob (tenant, session, number, place, hash) VALUES ($1, $2, $3, $4, $5)";
            let statement = place(sql).with((
                number_column(*offset)?,
                everturn_sql::hash(piece).to_vec(),
                pack(encoding, piece)?,
            ));
            self.0.rows(&statement).await?;
        }
        self.release_blobs(session, &links).await
    }

    /// Deletes those blobs that are no longer referred to. `links` are rows of their hashes.
    async fn release_blobs(&self, session: SessionKey, links: &[Row]) -> Outcome<()> {
        if links.is_empty() {
            return Ok(());
        }
        let mut hashes: Vec<Vec<u8>> = Vec::with_capacity(links.len());
        for row in links {
            hashes.push(column(row, 0)?);
        }
        let sql = "DELETE FROM @blob b WHERE tenant = $1 AND session = $2 AND hash = ANY ($3) \
             AND NOT EXISTS (SELECT 1 FROM @message_blob l WHERE l.tenant = $1 AND l.session = $2 AND l.hash = b.hash) \
             AND NOT EXISTS (SELECT 1 FROM @document_blob l WHERE l.tenant = $1 AND l.session = $2 AND l.hash = b.hash)";
        let statement = of_session(sql, session).with(hashes);
        self.0.rows(&statement).await.map(|_| ())
    }
}

/// Deletes the readable name of a tenant that has no session any more.
fn forget_name(scope: &Scope) -> Statement<'static> {
    let sql = "DELETE FROM @tenant_name WHERE tenant = $1 AND scope = $2 \
               AND NOT EXISTS (SELECT 1 FROM @session WHERE tenant = $1 AND scope = $2)";
    Statement::new(sql).with(scope)
}

fn of_session(sql: &str, session: SessionKey) -> Statement<'static> {
    Statement::new(sql).with(session)
}

fn stored(rows: &[Row]) -> Outcome<Vec<Stored>> {
    rows.iter().map(Stored::from_row).collect()
}
