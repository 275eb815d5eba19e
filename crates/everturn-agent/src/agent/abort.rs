//! Asking a background run to stop.
//!
//! An abort is a change of the run's row from `pending` to `aborted`. Its worker watches the row and stops; whatever it
//! still brings to an end cannot change the row's status any more.

use std::sync::Arc;

use everturn_core::{Context, Error, Result};

use crate::invocation::Definition;
use crate::store::{Detail, Precondition};
use crate::{Abort, SnapshotId, SnapshotStatus};

impl<S> Definition<S> {
    /// Aborts the run behind a row; `None` if there is no such row. A run that is over stays as it is.
    pub(crate) async fn abort_run(&self, id: &SnapshotId, context: &Context) -> Result<Option<Abort>> {
        let store = self.require_store()?;
        if id.as_str().is_empty() {
            return Err(Error::invalid_argument("a snapshot id is needed to abort a run"));
        }
        let scope = self.scope(context);
        let now = self.clock.now();
        let mutation = Arc::new(move |row: Option<&crate::Snapshot>| {
            let pending = row.filter(|row| row.status == SnapshotStatus::Pending);
            Ok(pending.map(|row| crate::Snapshot {
                status: SnapshotStatus::Aborted,
                updated_at: Some(now),
                ..row.clone()
            }))
        });
        if store
            .save(&scope, Some(id), Precondition::None, mutation)
            .await?
            .is_some()
        {
            return Ok(Some(Abort {
                previous: SnapshotStatus::Pending,
                status: SnapshotStatus::Aborted,
            }));
        }
        // Nothing was pending, and a row that is over never changes again: a later look sees the same.
        let row = store.get(&scope, id, Detail::Metadata).await?;
        Ok(row.map(|row| Abort {
            previous: row.status,
            status: row.status,
        }))
    }
}
