//! Asking a background run to stop.
//!
//! An abort changes the status of the run's snapshot from `pending` to `aborted`. The worker watches the snapshot and stops.
//! Whatever it still finishes cannot change the status any more.

use everturn_core::{Context, Error, Result};

use crate::invocation::Definition;
use crate::snapshot::Transition;
use crate::store::Detail;
use crate::{Abort, SnapshotId, SnapshotStatus};

impl<S> Definition<S> {
    /// Aborts the run behind a snapshot; `None` if there is no such snapshot. A run that is over stays as it is.
    pub(crate) async fn abort_run(&self, id: &SnapshotId, context: &Context) -> Result<Option<Abort>> {
        let tenant = self.tenant_store(context)?;
        if id.as_str().is_empty() {
            return Err(Error::invalid_argument("a snapshot id is needed to abort a run"));
        }
        let abort = Transition::Abort {
            now: self.clock.now(),
        };
        if tenant.change(id, abort).await?.is_some() {
            return Ok(Some(Abort {
                previous: SnapshotStatus::Pending,
                status: SnapshotStatus::Aborted,
            }));
        }
        // Nothing was pending, and a snapshot that is over keeps its status: a later read sees the same.
        let found = tenant.get(id, Detail::Metadata).await?;
        Ok(found.map(|snapshot| Abort {
            previous: snapshot.status,
            status: snapshot.status,
        }))
    }
}
