//! Rules for how long snapshots are kept.

use std::time::Duration;

use everturn_core::Result;
use everturn_core::stream_log::StreamSubject;
use jiff::{SignedDuration, Timestamp};

use super::look_up::all_of;
use super::{Archive, named_session};
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
