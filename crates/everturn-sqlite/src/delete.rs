//! Deleting rows, and everything that is no longer referred to.
//!
//! Data that only a deleted row referred to is deleted in the same transaction: messages beyond the last
//! position in use, documents, blobs, the session and the tenant. A document that was a patch on a deleted
//! one is written in full.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use everturn_agent::store::{Deletion, Scope};
use everturn_agent::{SessionId, SnapshotId};

use crate::fault::{Fault, Outcome};
use crate::position::{end_of_keys, message_key};
use crate::read::SESSION_KEY;
use crate::row::{COLUMNS, Stored, StoredState};
use crate::statement::Statements;
use crate::write::Writing;

pub(crate) static OF_SESSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM session JOIN snapshot ON snapshot.session = session.key \
         WHERE session.scope = (SELECT key FROM scope WHERE name = ?1) AND session.name = ?2"
    )
});

/// Asks for the sessions of a tenant that have rows or journals.
const SESSIONS_OF_TENANT: &str = "SELECT session.name FROM session JOIN scope ON scope.key = session.scope \
    WHERE scope.name = ?1 UNION SELECT session FROM journal WHERE scope = ?1";

/// Asks whether a snapshot or a patch refers to a document.
const DOCUMENT_IN_USE: &str = "SELECT EXISTS (SELECT 1 FROM snapshot WHERE custom = ?1) \
    OR EXISTS (SELECT 1 FROM snapshot WHERE artifacts = ?1) OR EXISTS (SELECT 1 FROM snapshot WHERE prompt_input = ?1)";

/// Asks for the greatest position in a lineage that a snapshot or a fork refers to.
const LINEAGE_IN_USE: &str = "SELECT max(coalesce((SELECT max(up_to) FROM snapshot WHERE lineage = ?1), 0), \
    coalesce((SELECT max(base) FROM lineage WHERE parent = ?1), 0))";

impl Writing<'_> {
    /// Deletes rows and returns how many existed.
    pub(crate) fn delete(&mut self, scope: &Scope, deletion: &Deletion) -> Outcome<u64> {
        let rows = match deletion {
            Deletion::Snapshots(ids) => {
                let rows = self.named(scope, ids)?;
                let found: BTreeSet<&SnapshotId> = rows.iter().map(|row| &row.snapshot.snapshot_id).collect();
                for id in ids.iter().filter(|id| !found.contains(id)) {
                    self.forget_lost_tip(scope, id)?;
                }
                rows
            }
            Deletion::Tenant => return self.delete_tenant(scope),
            Deletion::Session(session) => {
                self.forget_session_tip(scope, session)?;
                // Also a session that has only journals: its first turn may have died before its first row.
                self.clear_session(scope, session)?;
                self.close_session(scope, session)?;
                self.reading
                    .rows(&OF_SESSION, (scope.as_str(), session.as_str()))?
            }
        };
        self.latest_changes.note_all();
        let sessions: BTreeSet<(i64, i64)> = rows.iter().map(|row| (row.scope, row.session)).collect();
        // Read before the rows are deleted, because the order of sessions is kept by them.
        let mut tips = Vec::new();
        for place in sessions {
            tips.push((place, self.reading.tip(place.1)?));
        }
        for row in &rows {
            self.reading
                .db
                .run("DELETE FROM snapshot WHERE key = ?1", [row.key])?;
            self.changed
                .push((scope.clone(), row.snapshot.snapshot_id.clone()));
        }
        for ((scope, session), before) in tips {
            let after = self.reading.tip(session)?;
            self.move_tip((scope, session), before.as_ref(), after.as_ref())?;
            if after.is_none() && !self.reading.has_rows(session)? {
                self.delete_session(session)?;
            }
        }
        // After all rows are gone: data that two of them shared is then in use by neither.
        self.release(rows.iter().filter_map(|row| row.state.as_ref()))?;
        Ok(rows.len() as u64)
    }

    /// Deletes all sessions of a tenant, also those that have only journals.
    fn delete_tenant(&mut self, scope: &Scope) -> Outcome<u64> {
        let sessions: Vec<String> = self
            .reading
            .db
            .all(SESSIONS_OF_TENANT, [scope.as_str()], |row| row.get(0))?;
        let mut deleted = 0;
        for session in sessions {
            deleted += self.delete(scope, &Deletion::Session(session.into()))?;
        }
        // Also the usage of sessions that have nothing else, and the tenant's own.
        self.close_tenant(scope)?;
        Ok(deleted)
    }

    /// Replaces a tip that was lost by the last row before it, because the operator gives it up.
    fn forget_lost_tip(&self, scope: &Scope, id: &SnapshotId) -> Outcome<()> {
        let sql = "DELETE FROM tip WHERE scope = (SELECT key FROM scope WHERE name = ?1) AND id = ?2 RETURNING scope, session";
        let sessions: Vec<(i64, i64)> = self.reading.db.all(sql, (scope.as_str(), id.as_str()), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        for place in sessions {
            let tip = self.reading.tip(place.1)?;
            self.move_tip(place, None, tip.as_ref())?;
        }
        Ok(())
    }

    /// Replaces the tip of a session by the last of its rows, if it is not that one.
    fn forget_session_tip(&self, scope: &Scope, session: &SessionId) -> Outcome<()> {
        let db = self.reading.db;
        let known = db.find(SESSION_KEY, (scope.as_str(), session.as_str()), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        let Some((scope, session)): Option<(i64, i64)> = known else {
            return Ok(());
        };
        if matches!(self.reading.known_tip(scope, session), Err(Fault::Damaged(_))) {
            db.execute(
                "DELETE FROM tip WHERE scope = ?1 AND session = ?2",
                (scope, session),
            )?;
            let tip = self.reading.tip(session)?;
            self.move_tip((scope, session), None, tip.as_ref())?;
            if tip.is_none() && !self.reading.has_rows(session)? {
                self.delete_session(session)?;
            }
        }
        Ok(())
    }

    fn named(&self, scope: &Scope, ids: &[SnapshotId]) -> Outcome<Vec<Stored>> {
        let mut rows = Vec::new();
        for id in ids.iter().collect::<BTreeSet<_>>() {
            rows.extend(self.reading.find(scope.as_str(), id.as_str())?);
        }
        Ok(rows)
    }

    /// Deletes a session that has no rows, and its tenant if it was the tenant's last session.
    fn delete_session(&self, session: i64) -> Outcome<()> {
        let db = self.reading.db;
        let sql = "DELETE FROM session WHERE key = ?1 RETURNING scope";
        let scope: i64 = db.one(sql, [session], |row| row.get(0))?;
        let sql = "DELETE FROM scope WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM session WHERE scope = ?1)";
        db.run(sql, [scope])?;
        Ok(())
    }

    /// Deletes what a rewritten row referred to before and nothing refers to now.
    pub(crate) fn release_replaced(
        &mut self,
        before: Option<&StoredState>,
        after: Option<&StoredState>,
    ) -> Outcome<()> {
        if before == after {
            Ok(())
        } else {
            self.release(before.into_iter())
        }
    }

    fn release<'s>(&mut self, states: impl Iterator<Item = &'s StoredState>) -> Outcome<()> {
        let (mut lineages, mut documents) = (BTreeSet::new(), BTreeSet::new());
        for state in states {
            lineages.extend(state.messages.map(|messages| messages.lineage));
            documents.extend(state.documents());
        }
        // Forks come first, so that a lineage is examined after the lineages that fork from it.
        for lineage in lineages.into_iter().rev() {
            self.release_lineage(lineage)?;
        }
        // Patches come first, for the same reason.
        for document in documents.into_iter().rev() {
            self.release_document(document)?;
        }
        Ok(())
    }

    /// Deletes the messages of a lineage beyond its last position in use. If none is in use, deletes the
    /// lineage and continues with its parent.
    fn release_lineage(&mut self, lineage: i64) -> Outcome<()> {
        let mut next = Some(lineage);
        while let Some(lineage) = next.take() {
            let db = self.reading.db;
            let used: usize = db.one(LINEAGE_IN_USE, [lineage], |row| row.get(0))?;
            let cut = self.delete_messages(lineage, used)?;
            if used > 0 {
                if cut {
                    // A position must keep its meaning, so no message may be appended where messages were
                    // deleted.
                    db.run("UPDATE lineage SET open = 0 WHERE key = ?1", [lineage])?;
                }
            } else {
                let sql = "DELETE FROM lineage WHERE key = ?1 RETURNING parent";
                // It may have been deleted already, together with a fork that was released before.
                let mut parents: Vec<Option<i64>> = db.all(sql, [lineage], |row| row.get(0))?;
                next = parents.pop().flatten();
            }
        }
        Ok(())
    }

    /// Deletes the messages of a lineage from an index on and returns whether there were any.
    fn delete_messages(&mut self, lineage: i64, from: usize) -> Outcome<bool> {
        let (from, to) = (message_key(lineage, from), end_of_keys(lineage));
        let db = self.reading.db;
        let sql = "DELETE FROM message_blob WHERE message >= ?1 AND message < ?2 RETURNING blob";
        let blobs: Vec<i64> = db.all(sql, [from, to], |row| row.get(0))?;
        let count = db.run("DELETE FROM message WHERE key >= ?1 AND key < ?2", [from, to])?;
        self.release_blobs(&blobs)?;
        Ok(count > 0)
    }

    /// Deletes a document that no snapshot refers to. Documents that are patches on it are first written in
    /// full.
    fn release_document(&mut self, document: i64) -> Outcome<()> {
        let mut next = Some(document);
        while let Some(document) = next.take() {
            let db = self.reading.db;
            if db.one(DOCUMENT_IN_USE, [document], |row| row.get(0))? {
                return Ok(());
            }
            let mut patches = db.prepare_cached("SELECT key FROM document WHERE base = ?1")?;
            let patches: Vec<i64> = patches
                .query_map([document], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            // Rows of later snapshots still need these documents.
            for patch in patches {
                self.make_independent(patch)?;
            }
            let blobs = self.unlink_document_blobs(document)?;
            let sql = "DELETE FROM document WHERE key = ?1 RETURNING base";
            let mut bases: Vec<Option<i64>> = db.all(sql, [document], |row| row.get(0))?;
            next = bases.pop().flatten();
            self.release_blobs(&blobs)?;
        }
        Ok(())
    }
}
