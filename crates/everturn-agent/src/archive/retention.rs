//! Deleting snapshots and sessions permanently, one by one and by rules of retention.

use std::time::Duration;

use everturn_core::stream_log::StreamSubject;
use everturn_core::{Result, Status};
use jiff::{SignedDuration, Timestamp};

use super::look_up::all_of;
use super::{Archive, SnapshotTree, named_session, named_snapshot, tenants};
use crate::store::{Deletion, Detail, SessionQuery};
use crate::{SessionId, Snapshot, SnapshotId};

/// Rules that select the snapshots to delete. Without rules, nothing is deleted.
///
/// A snapshot is deleted if it is too old, or if its session has enough newer ones. Three kinds stay
/// regardless of the rules: snapshots with a label, unless [`Retention::even_labelled`]; those of unfinished
/// background runs; and the tip of a session, unless the whole session is too old.
///
/// ```
/// use std::time::Duration;
/// use everturn_agent::archive::Retention;
///
/// let a_month_and_no_more_than_fifty = Retention::default().no_older_than(Duration::from_hours(30 * 24)).newest(50);
/// # let _ = a_month_and_no_more_than_fifty;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "rules do nothing until they are applied"]
pub struct Retention {
    age: Option<Duration>,
    count: Option<usize>,
    even_labelled: bool,
}

impl Retention {
    everturn_core::setters! {
        /// Deletes snapshots that were created longer ago than this.
        pub fn no_older_than(mut self, age: Duration) { self.age = Some(age) }

        /// Keeps only this many of the newest snapshots of each session. Superseded snapshots are counted
        /// separately.
        pub fn newest(mut self, count: usize) { self.count = Some(count) }

        /// Deletes labelled snapshots like all others.
        pub fn even_labelled(mut self) { self.even_labelled = true }
    }
}

/// The outcome of applying rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RetentionReport {
    /// The number of sessions that the rules were applied to.
    pub sessions: u64,
    /// The number of snapshots that were deleted.
    pub snapshots: u64,
    /// The sessions of which snapshots were deleted.
    pub trimmed: Vec<TrimmedSession>,
}

/// A session of which snapshots were deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrimmedSession {
    /// The session's id.
    pub session_id: SessionId,
    /// The number of snapshots that were deleted.
    pub snapshots: u64,
    /// Whether no snapshot of the session is left.
    pub gone: bool,
}

impl Archive {
    /// Applies rules to all sessions of the tenant, page by page.
    ///
    /// A snapshot is judged as it was read and deleted a moment later: a label that is added in between comes
    /// too late. A session that continues meanwhile is not harmed, because new snapshots are never touched. A
    /// session with superseded snapshots only is not listed; [`Archive::retain_in`] reaches it by its id.
    ///
    /// # Errors
    /// The store's own errors; snapshots deleted until then stay deleted.
    pub async fn retain(&self, rules: &Retention) -> Result<RetentionReport> {
        let mut report = RetentionReport::default();
        let mut query = SessionQuery::default();
        loop {
            let page = self.tenant.sessions(&query).await?;
            for summary in page.items {
                report.sessions += 1;
                let trimmed = self.retain_in(summary.session_id, rules).await?;
                report.snapshots += trimmed.snapshots;
                report
                    .trimmed
                    .extend(Some(trimmed).filter(|trimmed| trimmed.snapshots > 0));
            }
            let Some(next) = page.next else {
                return Ok(report);
            };
            query.after = Some(next);
        }
    }

    /// Applies rules to one session.
    ///
    /// # Errors
    /// As [`Archive::retain`]; `INVALID_ARGUMENT` for an empty id.
    pub async fn retain_in(
        &self,
        session: impl Into<SessionId>,
        rules: &Retention,
    ) -> Result<TrimmedSession> {
        let session = named_session(session)?;
        let tip = self.session(&session).tip(Detail::Metadata).await?;
        let mut judge = Judge::new(rules, self.clock.now(), tip.map(|tip| tip.snapshot_id));
        let mut trimmed = TrimmedSession {
            session_id: session.clone(),
            snapshots: 0,
            gone: false,
        };
        let mut kept = 0_usize;
        let mut query = all_of(&session);
        loop {
            let page = self.tenant.list(&query).await?;
            let snapshots = page.items.len();
            let expendable: Vec<SnapshotId> = page
                .items
                .iter()
                .filter(|snapshot| judge.lets_go(snapshot))
                .map(|snapshot| snapshot.snapshot_id.clone())
                .collect();
            kept += snapshots - expendable.len();
            if !expendable.is_empty() {
                let deletion = Deletion::Snapshots(expendable);
                trimmed.snapshots += self.tenant.delete(&deletion).await?;
            }
            let Some(next) = page.next else {
                break;
            };
            query.after = Some(next);
        }
        trimmed.gone = kept == 0 && trimmed.snapshots > 0;
        if trimmed.gone {
            self.erase_streams(&StreamSubject::session(self.scope().as_str(), session.as_str()))
                .await?;
        }
        Ok(trimmed)
    }
}

/// Returns the creation time before which snapshots are too old, if there is a rule about age.
pub(super) fn horizon(rules: &Retention, now: Timestamp) -> Option<Timestamp> {
    let age = SignedDuration::try_from(rules.age?).unwrap_or(SignedDuration::MAX);
    // An age beyond the calendar deletes nothing.
    Some(now.checked_sub(age).unwrap_or(Timestamp::MIN))
}

/// Decides about the snapshots of one session, newest first.
struct Judge<'a> {
    rules: &'a Retention,
    /// The creation time before which snapshots are too old.
    horizon: Option<Timestamp>,
    /// The snapshot at which the session is resumed.
    tip: Option<SnapshotId>,
    /// Whether the whole session is too old, once the newest snapshot is known.
    over: Option<bool>,
    live: usize,
    orphaned: usize,
}

impl<'a> Judge<'a> {
    fn new(rules: &'a Retention, now: Timestamp, tip: Option<SnapshotId>) -> Self {
        Self {
            rules,
            horizon: horizon(rules, now),
            tip,
            over: None,
            live: 0,
            orphaned: 0,
        }
    }

    fn lets_go(&mut self, snapshot: &Snapshot) -> bool {
        let old = self.horizon.is_some_and(|horizon| snapshot.created_at < horizon);
        // The first snapshot is the newest: if it is too old, all are.
        let over = *self.over.get_or_insert(old);
        let newer = if snapshot.orphaned {
            &mut self.orphaned
        } else {
            &mut self.live
        };
        let superfluous = self.rules.count.is_some_and(|count| *newer >= count);
        *newer += 1;
        let spared = !snapshot.status.is_final()
            || (!self.rules.even_labelled && !snapshot.labels.is_empty())
            || (!over && self.tip.as_ref() == Some(&snapshot.snapshot_id));
        (old || superfluous) && !spared
    }
}

impl Archive {
    /// Deletes a snapshot permanently and returns whether it existed.
    ///
    /// Its children keep their own states and can be resumed; they only lose their parent. A background run
    /// whose snapshot is deleted has no result.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id.
    pub async fn delete_snapshot(&self, id: impl Into<SnapshotId>) -> Result<bool> {
        let deletion = Deletion::Snapshots(vec![named_snapshot(id)?]);
        Ok(self.tenant.delete(&deletion).await? > 0)
    }

    /// Deletes a snapshot and all its descendants in its session permanently, and returns their number.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id.
    pub async fn delete_branch(&self, id: impl Into<SnapshotId>) -> Result<u64> {
        let id = named_snapshot(id)?;
        let snapshot = self.tenant.get(&id, Detail::Metadata).await?;
        let Some(session) = snapshot.and_then(|snapshot| snapshot.session_id) else {
            return Ok(u64::from(self.delete_snapshot(id).await?));
        };
        let snapshots = self.stored_snapshots(&session).await?;
        let tree = SnapshotTree::of(session, snapshots);
        let branch = tree.find(&id).map(|node| node.branch()).unwrap_or_default();
        let ids = branch
            .into_iter()
            .map(|snapshot| snapshot.snapshot_id.clone())
            .collect();
        self.tenant.delete(&Deletion::Snapshots(ids)).await
    }

    /// Deletes a session permanently, with all its snapshots, journals and kept streams, and returns the
    /// number of its snapshots.
    ///
    /// Forks and copies are separate sessions and stay. A turn in progress fails when it commits, and leaves
    /// nothing.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id; the errors of the store and of the stream logs. A failed deletion
    /// can be repeated; already deleted data stays deleted.
    pub async fn delete_session(&self, session: impl Into<SessionId>) -> Result<u64> {
        let session = named_session(session)?;
        let deleted = self.tenant.delete(&Deletion::Session(session.clone())).await?;
        self.erase_streams(&StreamSubject::session(self.scope().as_str(), session.as_str()))
            .await?;
        Ok(deleted)
    }

    /// Deletes everything of the tenant permanently: all sessions with their snapshots, their journals and
    /// the kept streams. Returns the number of snapshots.
    ///
    /// ```
    /// use everturn_agent::archive::Archive;
    /// use everturn_agent::store::MemoryStore;
    /// use everturn_core::{Principal, Result, Status};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// let archive = Archive::of(MemoryStore::new(), Principal::new("alice").scope());
    ///
    /// assert_eq!(archive.delete_all().await.unwrap_err().status(), Status::NotFound);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `NOT_FOUND` if the tenant has nothing in the store; the errors of the store and of the stream logs. A
    /// failed deletion can be repeated; already deleted data stays deleted.
    pub async fn delete_all(&self) -> Result<u64> {
        match tenants::find(&**self.tenant.store(), self.scope()).await {
            // A store that cannot list its tenants.
            Err(error) if error.status() == Status::Unimplemented => {}
            Err(error) if error.status() == Status::NotFound => {
                // Agents that store no sessions may have kept streams.
                self.erase_all_streams().await?;
                return Err(error);
            }
            found => drop(found?),
        }
        self.erase().await
    }

    /// Deletes everything of the tenant, if there is anything.
    pub(super) async fn erase(&self) -> Result<u64> {
        let deleted = self.tenant.delete(&Deletion::Tenant).await?;
        self.erase_all_streams().await?;
        Ok(deleted)
    }

    async fn erase_all_streams(&self) -> Result<()> {
        self.erase_streams(&StreamSubject::tenant(self.scope().as_str()))
            .await
    }

    /// Erases the kept streams of the tenant or of one of its sessions.
    pub(super) async fn erase_streams(&self, subject: &StreamSubject) -> Result<()> {
        for log in &self.streams {
            log.erase(subject).await?;
        }
        Ok(())
    }
}
