//! Turn locks with defects.

use std::time::Duration;

use async_trait::async_trait;
use everturn_agent::store::{
    Detail, LockGrant, LockRequest, Recalled, ResumeAt, Scope, SessionStore, TIP_MOVED, TurnLocks,
};
use everturn_agent::{SessionId, SnapshotId};
use everturn_core::Result;

use super::{Defect, DefectiveStore};

#[async_trait]
impl TurnLocks for DefectiveStore {
    async fn take(&self, scope: &Scope, request: &LockRequest) -> Result<LockGrant> {
        let mut request = request.clone();
        match self.defect {
            Defect::EternalLock => request.lease = Duration::from_hours(1),
            Defect::ForgottenQueue => request.waits = false,
            _ => {}
        }
        let granted = self.store.take(&self.scope(scope), &request).await;
        match (self.defect, granted) {
            (Defect::SharedLock, Ok(_)) => Ok(LockGrant::Held),
            (Defect::LateGrant, Err(error)) if error.is(TIP_MOVED) => Ok(LockGrant::Held),
            (_, granted) => granted,
        }
    }

    async fn renew(
        &self,
        scope: &Scope,
        session: &SessionId,
        turn: &SnapshotId,
        lease: Duration,
    ) -> Result<bool> {
        let lease = match self.defect {
            Defect::EternalLock => Duration::from_hours(1),
            _ => lease,
        };
        self.store.renew(&self.scope(scope), session, turn, lease).await
    }

    async fn release(&self, scope: &Scope, session: &SessionId, turn: &SnapshotId) -> Result<()> {
        self.store.release(&self.scope(scope), session, turn).await
    }

    async fn freed(&self, scope: &Scope, session: &SessionId, at_most: Duration) {
        self.store.freed(&self.scope(scope), session, at_most).await;
    }

    fn is_default(&self) -> bool {
        false
    }

    async fn recall(&self, scope: &Scope, at: &ResumeAt) -> Option<Recalled> {
        let ResumeAt::Tip(session) = at else {
            return None;
        };
        if self.defect != Defect::StaleRecall {
            return None;
        }
        let latest = self
            .store
            .latest(&self.scope(scope), session, Detail::Whole)
            .await;
        Some(Recalled {
            snapshot: latest.ok()??,
            version: 0,
        })
    }
}
