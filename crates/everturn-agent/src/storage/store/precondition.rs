//! Preconditions of writing a snapshot.

use everturn_core::{Error, Reason, Result};

use super::LockPlace;
use crate::{SessionId, SnapshotId, SnapshotStatus};

/// The reason of a commit that failed because another snapshot follows the one that the turn continues.
pub const TIP_MOVED: Reason = Reason::new("session-tip-moved");

/// The reason of a commit of which it is unknown whether it was carried out, because the store did not
/// answer.
pub const SAVE_UNKNOWN: Reason = Reason::new("save-outcome-unknown");

/// Creates the error of a commit that was sent to a store and not answered, for the reason `why`: the
/// snapshot may have been saved, or still be.
pub fn save_unknown(snapshot: &SnapshotId, why: Error) -> Error {
    Error::unavailable(format!(
        "whether snapshot '{snapshot}' was saved is not known: {}; once the store answers, resend the request with the same \
         request id, or read the snapshot",
        why.message()
    ))
    .with_source(why)
    .with_reason(SAVE_UNKNOWN)
}

/// A condition that a store checks in the same step as it writes. It applies to new and to rewritten
/// snapshots. If it does not hold, the commit fails with `ABORTED` and [`TIP_MOVED`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Precondition {
    /// No condition: a branch may begin at any snapshot, whatever follows it. A turn that continues a
    /// snapshot with a successor is a branch.
    #[default]
    None,
    /// The snapshot that a turn continues still has no successor. Snapshots elsewhere in the session do not
    /// matter, so a branch that is committed meanwhile does not fail the turn.
    ///
    /// | `snapshot` | the condition holds if |
    /// |---|---|
    /// | `Some(id)` | the session has this snapshot, it is not superseded, and it has no successor |
    /// | `None`, the turn begins the session | no snapshot of the session counts as a successor |
    ///
    /// A **successor** is another snapshot of the session that names `id` as its parent and
    ///
    /// - is not superseded,
    /// - is completed, pending, failed or aborted: a failed turn is kept with its finished rounds, and the
    ///   session continues there,
    /// - comes later than the snapshot in the order of [`latest`](super::SessionStore::latest), so that a
    ///   session's latest snapshot never has one,
    /// - is not the snapshot that the commit writes, and is not named in `beside`.
    Unfollowed {
        /// The snapshot that the turn continues; `None` if it begins the session.
        snapshot: Option<SnapshotId>,
        /// Successors that do not count, because they existed when the turn started: it passed over an
        /// unfinished run.
        beside: Vec<SnapshotId>,
    },
    /// The [latest](super::SessionStore::latest) snapshot of the session has this id; `None` means that the
    /// session has no snapshot. Turns on a [linear timeline](crate::Timeline::Linear) and imports need it:
    /// the session must not have changed at all.
    Tip(Option<SnapshotId>),
    /// The turn holds its [lock](super::TurnLocks) at the place of another condition, and that condition
    /// holds. If the turn lost its lock, the commit fails with `ABORTED` and
    /// [`TURN_LOCK_LOST`](super::TURN_LOCK_LOST).
    ///
    /// Only stores that keep locks are given this condition.
    Held {
        /// The turn that holds the lock.
        turn: SnapshotId,
        /// Whether the commit releases the lock.
        releases: bool,
        /// The other condition.
        and: Box<Precondition>,
    },
}

impl Precondition {
    /// Creates the condition of a turn that continues this snapshot, or begins the session.
    pub fn unfollowed(snapshot: Option<SnapshotId>) -> Self {
        Self::Unfollowed {
            snapshot,
            beside: Vec::new(),
        }
    }

    /// Returns the condition on the session's snapshots alone: that of [`Held`](Self::Held) without the lock,
    /// else itself.
    pub fn on_snapshots(&self) -> &Self {
        match self {
            Self::Held { and, .. } => and.on_snapshots(),
            condition => condition,
        }
    }

    /// Returns the place of the lock that a turn of this condition takes; `None` if it needs none, because it
    /// begins a branch.
    pub fn lock_place(&self) -> Option<LockPlace> {
        match self.on_snapshots() {
            Self::Unfollowed { snapshot, .. } => Some(LockPlace::Branch(snapshot.clone())),
            Self::Tip(_) => Some(LockPlace::Session),
            Self::None | Self::Held { .. } => None,
        }
    }

    /// Returns whether a snapshot with this id and status can be a successor. The store itself selects the
    /// snapshots of the session that are not superseded and have the right parent and position.
    pub fn counts(&self, id: &SnapshotId, status: SnapshotStatus) -> bool {
        let Self::Unfollowed { beside, .. } = self.on_snapshots() else {
            return false;
        };
        (status.is_final() || status == SnapshotStatus::Pending) && !beside.contains(id)
    }

    /// Checks the condition against the snapshot that the store found, for a store that is locked meanwhile.
    ///
    /// | condition | `found` |
    /// |---|---|
    /// | [`None`](Self::None) | anything |
    /// | [`Unfollowed`](Self::Unfollowed) | a successor of the snapshot; without one, the snapshot itself |
    /// | `Unfollowed` with `snapshot: None` | any snapshot that counts; `None` if there is none |
    /// | [`Tip`](Self::Tip) | the session's latest snapshot |
    /// | [`Held`](Self::Held) | by its inner condition; the store checks the lock |
    ///
    /// For `Unfollowed`, `found` is `None` if the snapshot is superseded or not in the session.
    ///
    /// # Errors
    /// `ABORTED` with [`TIP_MOVED`] if the condition does not hold.
    pub fn check(&self, session: &SessionId, found: Option<&SnapshotId>) -> Result<()> {
        match self.on_snapshots() {
            Self::Unfollowed {
                snapshot: expected, ..
            }
            | Self::Tip(expected)
                if expected.as_ref() != found =>
            {
                Err(tip_moved(session, expected.as_ref(), found))
            }
            _ => Ok(()),
        }
    }
}

/// Creates the error of a precondition that does not hold.
pub(crate) fn tip_moved(
    session: &SessionId,
    expected: Option<&SnapshotId>,
    found: Option<&SnapshotId>,
) -> Error {
    let start = expected.map_or_else(|| "its beginning".to_owned(), |id| format!("'{id}'"));
    let advice = match found {
        Some(found) => format!("and is followed by '{found}' now; resume from there and retry"),
        None => "which is not there any more; resume from another snapshot".to_owned(),
    };
    Error::aborted(format!(
        "session '{session}' has moved on: this turn started at {start}, {advice}"
    ))
    .with_reason(TIP_MOVED)
    .with_public()
}
