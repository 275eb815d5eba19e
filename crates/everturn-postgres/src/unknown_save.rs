//! Saves whose outcome is unknown: they were sent, and the database did not answer.
//!
//! The caller receives the error immediately. The outcome is determined when the database answers again: the
//! id of a snapshot is reserved before it is saved, so its row shows whether the save was committed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use everturn_agent::store::{Detail, Precondition, Scope};
use everturn_agent::{SessionId, SnapshotId};

use crate::PostgresStore;
use crate::fault::{Outcome, UnknownSave};
use crate::inner::Inner;

/// How long to wait before the database is queried again. The query has the timeout of every call.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl PostgresStore {
    /// Logs what became of a save once the database answers, and releases its turn's lock.
    pub(crate) fn find_out(&self, scope: &Scope, save: &UnknownSave, precondition: &Precondition) {
        let lock = match precondition {
            Precondition::Held { turn, .. } => save.session.clone().map(|session| (session, turn.clone())),
            _ => None,
        };
        let (store, stop) = (Arc::downgrade(self.inner()), self.inner().watchers.stopped());
        let (scope, snapshot) = (scope.clone(), save.snapshot.clone());
        tokio::spawn(async move {
            let asking = ask(&store, &scope, &snapshot, lock.as_ref());
            stop.run_until_cancelled(asking).await;
        });
    }
}

type Lock = (SessionId, SnapshotId);

async fn ask(store: &Weak<Inner>, scope: &Scope, snapshot: &SnapshotId, lock: Option<&Lock>) {
    loop {
        tokio::time::sleep(ASK_AGAIN_AFTER).await;
        let Some(store) = store.upgrade() else {
            return;
        };
        match store.db.within(store.is_saved(scope, snapshot, lock)).await {
            Ok(true) => tracing::info!(%snapshot, "a snapshot whose save was not answered is stored"),
            Ok(false) => tracing::warn!(%snapshot, "a snapshot whose save was not answered is not stored"),
            Err(fault) if fault.is_lost() => continue,
            Err(fault) => {
                let error = fault.into_error(&store.db.place);
                tracing::warn!(%snapshot, %error, "whether a snapshot was saved could not be found out");
            }
        }
        return;
    }
}

impl Inner {
    async fn is_saved(&self, scope: &Scope, snapshot: &SnapshotId, lock: Option<&Lock>) -> Outcome<bool> {
        // A save that has not arrived by then is refused, because its turn no longer holds its lock.
        if let Some((session, turn)) = lock {
            self.release_lock(scope, session, turn).await?;
        }
        let found = self
            .reading()
            .get(scope, snapshot.as_str(), Detail::Metadata)
            .await?;
        if found.is_some() {
            self.watchers.notice([(scope.clone(), snapshot.clone())]);
        }
        Ok(found.is_some())
    }
}
