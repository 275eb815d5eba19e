//! Aborting a background run.
//!
//! An abort changes the status of the run's snapshot from `pending` to `aborted`. The worker watches the
//! snapshot and stops. Work that it still completes cannot change the status any more.

use everturn_core::{Context, Error, Result};

use crate::invocation::Definition;
use crate::storage::snapshot::Transition;
use crate::store::Detail;
use crate::{Abort, SnapshotId, SnapshotStatus};

impl Definition {
    /// Aborts the run of a snapshot; `None` if the snapshot does not exist. A finished run does not change.
    pub(crate) async fn abort_run(&self, id: &SnapshotId, context: &Context) -> Result<Option<Abort>> {
        let tenant = self.tenant_store(context)?;
        if id.as_str().is_empty() {
            return Err(Error::invalid_argument("a snapshot id is needed to abort a run").with_public());
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
        // The run was not pending, and a final status never changes: this later read sees the status that the
        // abort found.
        let found = tenant.get(id, Detail::Metadata).await?;
        Ok(found.map(|snapshot| Abort {
            previous: snapshot.status,
            status: snapshot.status,
        }))
    }
}
