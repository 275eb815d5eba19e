//! Whether journals are kept, and for how long.

use std::sync::Mutex;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::Clock;
use crate::lock::lock;
use crate::store::Journal;

/// The shortest time between two sweeps of one agent.
const SWEEP_EVERY: Duration = Duration::from_hours(1);

/// Whether an agent writes down what happens in its turns, so that none is paid for or done twice.
///
/// It makes a difference only to agents whose store can keep journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Journaling {
    /// Nothing is written down: a turn that is taken up again begins from nothing.
    Off,
    /// It does, and the journal of a turn that failed is kept for this long.
    Keep(Duration),
}

impl Default for Journaling {
    /// On; seven days.
    fn default() -> Self {
        Self::Keep(Duration::from_hours(7 * 24))
    }
}

/// Drops journals that nobody came back for.
#[derive(Debug)]
pub(crate) struct Retention {
    keep: Duration,
    clock: Clock,
    swept: Mutex<Option<Instant>>,
}

impl Retention {
    /// The retention that a policy asks for; `None` if nothing is to be written.
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
        // The turn at hand does not depend on it, and the next sweep finds what this one did not.
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
        let mut swept = lock(&self.swept);
        let due = swept.is_none_or(|last| now.duration_since(last) >= SWEEP_EVERY);
        if due {
            *swept = Some(now);
        }
        due
    }
}
