//! The clock that gives snapshots their times.

use std::sync::Arc;

use jiff::Timestamp;

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
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

everturn_core::opaque_debug!(Clock);
