//! Where an invocation stands, for whoever must know it while a turn runs.

use std::sync::Mutex;

use everturn_core::Result;

use crate::lease::Lease;
use crate::lock::lock;
use crate::store::Precondition;
use crate::{SessionId, Snapshot, SnapshotId};

/// What changes under a turn while it runs.
#[derive(Default)]
pub(super) struct Whereabouts {
    /// The id of the session's latest row as the invocation knows it.
    tip: Mutex<Option<SnapshotId>>,
    /// The claim on the background run that the invocation has become.
    lease: Mutex<Option<Lease>>,
}

impl Whereabouts {
    pub(super) fn set_tip(&self, tip: Option<&SnapshotId>) {
        *lock(&self.tip) = tip.cloned();
    }

    pub(super) fn check_tip(&self, session: &SessionId, latest: Option<&SnapshotId>) -> Result<()> {
        let known = lock(&self.tip).clone();
        Precondition::Tip(known).check(session, latest)
    }

    pub(super) fn hold(&self, lease: Lease) {
        *lock(&self.lease) = Some(lease);
    }

    /// Whether the run is this invocation's. Its row may be seen before the invocation knows that it was written.
    pub(super) fn holds(&self, row: &Snapshot) -> bool {
        lock(&self.lease).unwrap_or_else(Lease::first).is_on(row)
    }
}
