//! The retry policy.

use std::time::Duration;

/// How often and with which delays a request is retried.
///
/// A turn that may have started is never repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// The number of retries before giving up. For a stream, every event resets the count.
    pub attempts: u32,
    /// The wait before the first retry; doubled for each further one.
    pub first_delay: Duration,
    /// The longest wait.
    pub longest_delay: Duration,
}

impl Retries {
    /// No retries.
    pub const NONE: Self = Self {
        attempts: 0,
        first_delay: Duration::ZERO,
        longest_delay: Duration::ZERO,
    };

    /// Returns how long to wait after this many failures; `None` to give up.
    ///
    /// Half of the delay is random, so that clients that lost their server together do not reconnect
    /// together.
    pub(crate) fn delay(&self, failures: u32) -> Option<Duration> {
        if failures >= self.attempts {
            return None;
        }
        let doubled = 2_u32.saturating_pow(failures);
        let longest = self.first_delay.saturating_mul(doubled).min(self.longest_delay);
        Some(longest.mul_f64(0.5 + fastrand::f64() / 2.0))
    }
}

impl Default for Retries {
    /// Five retries within about ten seconds.
    fn default() -> Self {
        Self {
            attempts: 5,
            first_delay: Duration::from_millis(250),
            longest_delay: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_limit_and_attempts_end() {
        let retries = Retries {
            attempts: 40,
            first_delay: Duration::from_millis(100),
            longest_delay: Duration::from_secs(1),
        };

        for failures in 0..40 {
            let longest = Duration::from_millis(100 << failures.min(10)).min(Duration::from_secs(1));
            let delay = retries.delay(failures).unwrap();
            assert!(longest / 2 <= delay && delay <= longest, "{failures}: {delay:?}");
        }
        assert_eq!(retries.delay(40), None);
        assert_eq!(Retries::NONE.delay(0), None);
    }
}
