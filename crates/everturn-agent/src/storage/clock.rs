//! The clock that gives snapshots their times.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The time without a heartbeat after which a worker counts as lost, unless the agent sets another.
pub(crate) const HEARTBEAT_EXPIRY: Duration = Duration::from_mins(1);

/// A source of the times in snapshots. Cloning is cheap.
///
/// Snapshots carry wall-clock times because other processes read them; tests inject a clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Returns the system's clock.
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// Creates a clock that calls `now`.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// Returns the moment that long ago; a time that is too long for the calendar has not passed.
    pub(crate) fn before(&self, time: Duration) -> Timestamp {
        let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        self.now().checked_sub(time).unwrap_or(Timestamp::MIN)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

everturn_core::opaque_debug!(Clock);
