//! How long a request may take, and how often it is repeated if it fails before its response starts.

use std::time::Duration;

/// The longest pause that grows by doubling.
const LONGEST_BACKOFF: Duration = Duration::from_secs(8);
/// The pause before the first retry.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// The largest random reduction of a pause, so that clients that failed together do not retry together.
const JITTER: f64 = 0.25;

/// The number and the pauses of retries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retries {
    /// The number of retries.
    pub(crate) most: u32,
    /// The longest pause that a provider may request. A longer one ends the retries.
    pub(crate) longest_wish: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            most: 2,
            longest_wish: Duration::from_mins(1),
        }
    }
}

impl Retries {
    /// Returns the pause before the next attempt after `failures` failed ones, or `None` to give up. `wish`
    /// is the pause that the provider requests; `random` is a number from 0 to 1.
    pub(crate) fn pause(&self, failures: u32, wish: Option<Duration>, random: f64) -> Option<Duration> {
        if failures > self.most || wish.is_some_and(|wish| wish > self.longest_wish) {
            return None;
        }
        let doublings = failures.saturating_sub(1).min(16);
        let backoff = FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF);
        Some(wish.unwrap_or_else(|| backoff.mul_f64(1.0 - JITTER * random)))
    }
}

/// The timeouts. A whole call is limited only by the deadline of its context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// Until there is a connection.
    pub(crate) connect: Duration,
    /// From the request to the first byte of the response. Reasoning models may be silent for minutes.
    pub(crate) first_byte: Duration,
    /// Between two bytes of the answer. Keep-alive comments count.
    pub(crate) between_bytes: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(5),
            between_bytes: Duration::from_mins(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(random: f64) -> Vec<Option<Duration>> {
        let retries = Retries {
            most: 6,
            ..Retries::default()
        };
        (1..=7)
            .map(|failures| retries.pause(failures, None, random))
            .collect()
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_end() {
        let expected = [500, 1000, 2000, 4000, 8000, 8000].map(|pause| Some(Duration::from_millis(pause)));

        assert_eq!(pauses(0.0), [expected.as_slice(), &[None]].concat());
        assert_eq!(pauses(1.0)[0], Some(Duration::from_millis(375)));
    }

    #[test]
    fn a_wish_is_taken_as_it_is_unless_it_is_too_long() {
        let retries = Retries::default();

        let soon = Duration::from_millis(3);
        assert_eq!(retries.pause(1, Some(soon), 1.0), Some(soon));
        assert_eq!(retries.pause(1, Some(Duration::from_mins(2)), 0.0), None);
    }
}
