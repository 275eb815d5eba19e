//! The policy of keeping journals.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Clock;
use crate::store::Journal;

/// The shortest time between two sweeps of one agent.
const SWEEP_EVERY: Duration = Duration::from_hours(1);

/// Whether an agent journals the effects of its turns, so that none is paid for or done twice.
///
/// It makes a difference only to agents whose store can keep journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Journaling {
    /// Nothing is recorded: a turn that runs again starts over.
    Off,
    /// Effects are recorded, and the journal of a failed turn is kept for this long.
    Keep(Duration),
}

impl Default for Journaling {
    /// Keeps journals for seven days.
    fn default() -> Self {
        Self::Keep(Duration::from_hours(7 * 24))
    }
}

/// Drops the journals of turns that were never retried.
#[derive(Debug)]
pub(crate) struct Retention {
    keep: Duration,
    clock: Clock,
    swept: Mutex<Option<Instant>>,
}

impl Retention {
    /// Creates the retention of a policy; `None` if nothing is recorded.
    pub(crate) fn of(policy: Journaling, clock: Clock) -> Option<Self> {
        match policy {
            Journaling::Off => None,
            Journaling::Keep(keep) => Some(Self {
                keep,
                clock,
                swept: Mutex::default(),
            }),
        }
    }

    /// Sweeps old journals, if the last sweep was long enough ago.
    pub(super) async fn sweep(&self, journal: &dyn Journal) {
        if !self.is_due() {
            return;
        }
        let keep = SignedDuration::try_from(self.keep).unwrap_or(SignedDuration::MAX);
        let before = self.clock.now().checked_sub(keep).unwrap_or(Timestamp::MIN);
        // The current turn does not depend on the sweep, and the next sweep finds what this one missed.
        match journal.sweep(before).await {
            Ok(0) => {}
            Ok(count) => tracing::debug!(
                count,
                "journals of turns that were never tried again were dropped"
            ),
            Err(error) => tracing::debug!(%error, "old journals could not be dropped"),
        }
    }

    fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut swept = self.swept.lock();
        let due = swept.is_none_or(|last| now.duration_since(last) >= SWEEP_EVERY);
        if due {
            *swept = Some(now);
        }
        due
    }
}
