//! A stream log whose time a test can move. The tests of both SQL logs include this file.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use everturn_agent::Clock;
use everturn_core::stream_log::StreamLog;
use everturn_testkit::certify::streams::LogUnderTest;
use jiff::{SignedDuration, Timestamp};

pub(crate) const KEEP_FOR: Duration = Duration::from_mins(1);
pub(crate) const MAX_STREAM_BYTES: usize = 100_000;

/// Time that is made to pass must not make a living process look dead.
pub(crate) const LEASE: Duration = Duration::from_hours(24);

/// How far a clock is ahead, in milliseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ahead(Arc<AtomicI64>);

impl Ahead {
    pub(crate) fn clock(&self) -> Clock {
        let Self(ahead) = self.clone();
        let ahead = move || SignedDuration::from_millis(ahead.load(Ordering::SeqCst));
        Clock::new(move || Timestamp::now() + ahead())
    }

    /// The log of two handles whose options have this clock and the constants above.
    pub(crate) fn log(self, here: impl StreamLog, elsewhere: impl StreamLog) -> LogUnderTest {
        LogUnderTest::new(here)
            .elsewhere(elsewhere)
            .keeping_for(KEEP_FOR, move |time| {
                let milliseconds = i64::try_from(time.as_millis()).unwrap();
                self.0.fetch_add(milliseconds, Ordering::SeqCst);
                Box::pin(std::future::ready(()))
            })
            .bounded_by(MAX_STREAM_BYTES)
    }
}
