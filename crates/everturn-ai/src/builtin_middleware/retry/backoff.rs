//! The delay before each retry.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The maximum jitter before the first retry; it doubles with each further one.
const FIRST_JITTER: Duration = Duration::from_secs(1);

/// The source of jitter: numbers from 0 up to, not including, 1.
#[derive(Clone)]
pub(super) struct Random(Arc<dyn Fn() -> f64 + Send + Sync>);

impl Random {
    pub(super) fn new(source: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new(fastrand::f64)
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Random")
    }
}

/// The delays of one call: each is the previous one times a factor, up to a maximum, plus jitter.
///
/// Neither the first delay nor one that the provider requests is cut to the maximum.
pub(super) struct Backoff {
    current: Duration,
    max: Duration,
    factor: f64,
    jitter: Option<(Duration, Random)>,
}

impl Backoff {
    pub(super) fn new(initial: Duration, max: Duration, factor: f64, random: Option<Random>) -> Self {
        Self {
            current: initial,
            max,
            factor,
            jitter: random.map(|random| (FIRST_JITTER, random)),
        }
    }

    /// Returns the next delay, at least as long as the provider requested.
    pub(super) fn next_delay(&mut self, asked_for: Option<Duration>) -> Duration {
        let delay = self.current.max(asked_for.unwrap_or_default());
        self.current = scaled(self.current, self.factor).min(self.max);
        delay.saturating_add(self.next_jitter())
    }

    fn next_jitter(&mut self) -> Duration {
        let Some((most, random)) = &mut self.jitter else {
            return Duration::ZERO;
        };
        let jitter = scaled(*most, (random.0)());
        *most = most.saturating_mul(2);
        jitter
    }
}

/// Multiplies a duration without panicking: an invalid factor counts as 0, and a product out of range as the
/// longest duration.
fn scaled(duration: Duration, factor: f64) -> Duration {
    let seconds = duration.as_secs_f64() * factor.max(0.0);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn delays(mut backoff: Backoff, count: usize) -> Vec<Duration> {
        (0..count).map(|_| backoff.next_delay(None)).collect()
    }

    #[test]
    fn delays_grow_by_the_factor_up_to_the_maximum() {
        let backoff = Backoff::new(SECOND, 5 * SECOND, 2.0, None);

        assert_eq!(delays(backoff, 5), [1, 2, 4, 5, 5].map(Duration::from_secs));
    }

    #[test]
    fn jitter_is_a_share_of_a_second_that_doubles() {
        let half = Random::new(|| 0.5);
        let backoff = Backoff::new(SECOND, SECOND, 1.0, Some(half));

        assert_eq!(delays(backoff, 3), [1500, 2000, 3000].map(Duration::from_millis));
    }

    #[test]
    fn a_provider_s_wish_is_a_lower_bound_for_one_delay_only() {
        let mut backoff = Backoff::new(SECOND, 60 * SECOND, 2.0, None);

        let wished = backoff.next_delay(Some(90 * SECOND));
        let ignored = backoff.next_delay(Some(SECOND));

        assert_eq!(wished, 90 * SECOND);
        assert_eq!(ignored, 2 * SECOND);
    }

    proptest! {
        #[test]
        fn no_configuration_breaks_the_arithmetic(
            initial in any::<Duration>(),
            max in any::<Duration>(),
            factor in any::<f64>(),
            random in any::<f64>(),
            asked_for in any::<Option<Duration>>(),
        ) {
            let mut backoff = Backoff::new(initial, max, factor, Some(Random::new(move || random)));

            for _ in 0..100 {
                prop_assert!(backoff.next_delay(asked_for) >= asked_for.unwrap_or_default());
            }
        }
    }
}
