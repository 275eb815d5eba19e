//! How a turn comes to have its session: at once, or after those that came before.

use std::sync::Arc;

use everturn_core::Result;

use crate::claim::{Claim, Interest};
use crate::opening::resumable;
use crate::store::{Detail, Scope, SessionStore};
use crate::timeline::Line;
use crate::{SessionId, Snapshot, SnapshotId};

/// What a turn needs before it may start.
pub(crate) enum Admission {
    /// Nothing more.
    Granted,
    /// Its turn in the queue; give what it yields to [`Ledger::admit`](super::Ledger::admit).
    Queued(QueuedTurn),
}

/// A turn that waits for the session.
pub(crate) struct QueuedTurn {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) scope: Scope,
    pub(super) session_id: SessionId,
    pub(super) interest: Arc<Interest>,
    pub(super) turn: SnapshotId,
    pub(super) known_tip: Option<SnapshotId>,
}

/// A turn that waited, with the row it must go on from if the session moved on meanwhile.
pub(crate) struct Admitted {
    pub(super) claim: Claim,
    pub(super) moved_to: Option<Snapshot>,
}

impl QueuedTurn {
    /// Waits for those that came before, and looks where they left the session.
    ///
    /// # Errors
    /// What the store fails with; `FAILED_PRECONDITION` if they left it where nobody can go on.
    pub(crate) async fn wait(self) -> Result<Admitted> {
        let claim = self.interest.claim_in_order(&self.turn).await;
        let moved = self
            .interest
            .tip()
            .is_some_and(|tip| Some(&tip) != self.known_tip.as_ref());
        let moved_to = if moved {
            let line = Line {
                store: &*self.store,
                scope: &self.scope,
                session: &self.session_id,
            };
            let latest = line.latest(Detail::Whole).await?;
            latest.map(resumable).transpose()?
        } else {
            None
        };
        Ok(Admitted { claim, moved_to })
    }
}
