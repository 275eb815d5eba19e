//! An estimate of the database's clock in this process.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// The database's time at a moment of this process.
///
/// From then on the time follows the monotonic clock of this machine, so the wall clocks of machines need not
/// agree and may jump. Answers of the database update it.
pub(crate) struct DatabaseTime(Mutex<(Timestamp, Instant)>);

impl DatabaseTime {
    /// Begins with the time of this machine, until the first answer of the database.
    pub(crate) fn unknown() -> Self {
        Self(Mutex::new((Timestamp::now(), Instant::now())))
    }

    /// Records the database's time, in nanoseconds since 1970, as it has just reported it.
    pub(crate) fn learn(&self, nanos: i64) {
        if let Ok(time) = Timestamp::from_nanosecond(nanos.into()) {
            *self.0.lock() = (time, Instant::now());
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let (time, at) = *self.0.lock();
        let since = SignedDuration::try_from(at.elapsed()).unwrap_or(SignedDuration::MAX);
        time.saturating_add(since).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_the_databases_and_goes_on() {
        let time = DatabaseTime::unknown();
        time.learn(1_000_000_000);

        let (first, second) = (time.now(), time.now());

        assert!(first >= Timestamp::from_second(1).unwrap() && second >= first);
        assert!(second < Timestamp::from_second(100).unwrap(), "{second}");
    }
}
