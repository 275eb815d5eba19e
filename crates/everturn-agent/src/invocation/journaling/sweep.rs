//! The policy of keeping journals.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::Journal;
use crate::{Clock, Heartbeat};

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
    /// Effects are recorded, and the journal of a failed turn is kept for this long. While it holds a
    /// `Once` call whose outcome is unknown, it is kept until a turn determines the outcome.
    Keep(Duration),
}

impl Default for Journaling {
    /// Keeps journals for seven days.
    fn default() -> Self {
        Self::Keep(Duration::from_hours(7 * 24))
    }
}

/// Drops the journals of turns that were never retried, and distinguishes those of turns in progress.
#[derive(Debug)]
pub(crate) struct Retention {
    keep: Duration,
    pub(super) clock: Clock,
    pub(super) heartbeat: Heartbeat,
    /// The name of the agent.
    pub(super) agent: String,
    swept: Mutex<Option<Instant>>,
    /// The moment up to which calls with an unknown outcome were found; see [`Recovery`](crate::Recovery).
    pub(crate) found_until: Mutex<Option<Timestamp>>,
}

impl Retention {
    /// Creates the retention of a policy; `None` if nothing is recorded.
    pub(crate) fn of(
        policy: Journaling,
        clock: Clock,
        heartbeat: Heartbeat,
        agent: &str,
    ) -> Option<Arc<Self>> {
        let Journaling::Keep(keep) = policy else {
            return None;
        };
        Some(Arc::new(Self {
            keep,
            clock,
            heartbeat,
            agent: agent.to_owned(),
            swept: Mutex::default(),
            found_until: Mutex::default(),
        }))
    }

    /// Returns the moment since which every turn in progress that began a call that must not be made twice
    /// has added to its journal.
    pub(super) fn silent_since(&self) -> Timestamp {
        self.clock.before(self.heartbeat.expiry)
    }

    /// Sweeps old journals, if the last sweep was long enough ago.
    pub(super) async fn sweep(&self, journal: &dyn Journal) {
        if !self.is_due() {
            return;
        }
        let before = self.clock.before(self.keep);
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
