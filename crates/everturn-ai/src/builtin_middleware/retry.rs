//! Retrying model calls after transient failures.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use everturn_core::{Context, Emitter, Error, HandlerResult, Result, Status};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Middleware, ModelCall, ModelResponse, ModelResponseChunk, NextModel, interrupt_data};

/// Calls the model again after a transient failure, with exponential backoff.
///
/// A classified error is retried if its status is listed; an unclassified one always. Cancellation,
/// interrupts and errors with `retryable: false` in their details are never retried. The pause is the larger
/// of the current delay and the delay that the provider requests (`details.retryAfterMs` of the error), plus
/// jitter of up to one second that doubles with each retry. If the invocation is cancelled during a pause, or
/// its deadline is before the end of the pause, the last error is returned at once.
///
/// A failed attempt may already have streamed chunks. They stay in the stream and the next attempt streams
/// from its beginning, at the same message index, so a reader of the stream sees the text again. The final
/// response contains only the output of the successful attempt. Each retry is logged as a warning with the
/// number of chunks already streamed.
///
/// ```
/// use everturn_ai::builtin_middleware::Retry;
///
/// let patient = Retry::default().max_retries(5).no_jitter();
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Retry {
    /// The number of retries.
    max_retries: u32,
    /// The statuses that are retried.
    statuses: Statuses,
    /// The pause before the first retry, in milliseconds.
    #[serde(rename = "initialDelayMs", with = "milliseconds")]
    #[schemars(with = "f64", range(min = 0))]
    initial_delay: Duration,
    /// The longest pause, in milliseconds.
    #[serde(rename = "maxDelayMs", with = "milliseconds")]
    #[schemars(with = "f64", range(min = 0))]
    max_delay: Duration,
    /// The factor by which the pause grows with each retry.
    #[serde(deserialize_with = "factor")]
    #[schemars(range(min = 0))]
    backoff_factor: f64,
    /// Whether pauses have no jitter.
    no_jitter: bool,
    #[serde(skip)]
    random: Random,
}

impl Default for Retry {
    /// Three retries of transient failures, after 1, 2 and 4 seconds and jitter.
    fn default() -> Self {
        Self {
            max_retries: 3,
            statuses: Statuses::transient(),
            initial_delay: Duration::from_secs(1),
            max_delay: Duration::from_mins(1),
            backoff_factor: 2.0,
            no_jitter: false,
            random: Random::default(),
        }
    }
}

impl Retry {
    everturn_core::setters! {
        /// Sets the number of retries.
        pub fn max_retries(mut self, max_retries: u32) { self.max_retries = max_retries }

        /// Sets the statuses that are retried, instead of the default ones.
        pub fn statuses(mut self, statuses: impl IntoIterator<Item = Status>) {
            self.statuses = statuses.into_iter().collect();
        }

        /// Sets the pause before the first retry.
        pub fn initial_delay(mut self, initial_delay: Duration) { self.initial_delay = initial_delay }

        /// Sets the longest pause.
        pub fn max_delay(mut self, max_delay: Duration) { self.max_delay = max_delay }

        /// Sets the factor by which the pause grows with each retry.
        pub fn backoff_factor(mut self, backoff_factor: f64) { self.backoff_factor = backoff_factor }

        /// Disables jitter.
        pub fn no_jitter(mut self) { self.no_jitter = true }

        /// Takes jitter from `source`, a function that returns numbers from 0 up to, not including, 1.
        pub fn random(mut self, source: impl Fn() -> f64 + Send + Sync + 'static) {
            self.random = Random::new(source);
        }
    }

    fn backoff(&self) -> Backoff {
        let random = (!self.no_jitter).then(|| self.random.clone());
        Backoff::new(self.initial_delay, self.max_delay, self.backoff_factor, random)
    }

    fn is_worth_retrying(&self, error: &Error) -> bool {
        let is_final = error.status() == Status::Cancelled || interrupt_data(error).is_some();
        !is_final && !is_hopeless(error) && (!error.is_classified() || self.statuses.contains(error.status()))
    }
}

#[async_trait]
impl Middleware for Retry {
    async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        let mut backoff = self.backoff();
        let streamed = Arc::new(AtomicU64::new(0));
        let call = ModelCall {
            emitter: counted(&call.emitter, &streamed),
            ..call
        };
        // The last attempt is made after the loop, and its error is returned unchanged.
        for retry in 1..=self.max_retries {
            let error = match next.run(call.clone()).await {
                Err(error) if self.is_worth_retrying(&error) => error,
                result => return Ok(result?),
            };
            let delay = backoff.next_delay(wished_delay(&error));
            // The model's own error is more informative than an expired deadline.
            if !pause(&call.context, delay).await {
                return Err(error.into());
            }
            let streamed_chunks = streamed.load(Ordering::Relaxed);
            tracing::warn!(model = call.model, %error, retry, ?delay, streamed_chunks, "calling the model again");
        }
        Ok(next.run(call).await?)
    }
}

/// Returns an emitter that passes chunks to `emitter` and counts them; a silent one if `emitter` is silent.
fn counted(emitter: &Emitter<ModelResponseChunk>, count: &Arc<AtomicU64>) -> Emitter<ModelResponseChunk> {
    let count = Arc::clone(count);
    emitter.map_from(move |chunk| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(chunk)
    })
}

/// Returns whether the provider states that a retry cannot succeed, whatever the status, as for an exhausted
/// quota.
fn is_hopeless(error: &Error) -> bool {
    let retryable = error.details().and_then(|details| details.get("retryable"));
    retryable == Some(&false.into())
}

/// Returns the delay that the provider requests.
fn wished_delay(error: &Error) -> Option<Duration> {
    let milliseconds = error.details()?.get("retryAfterMs")?.as_f64()?;
    Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
}

/// Waits, and returns whether the invocation is still running afterwards. Returns at once if the pause would
/// outlast the deadline.
async fn pause(context: &Context, delay: Duration) -> bool {
    let outlasts = |deadline: tokio::time::Instant| {
        deadline.saturating_duration_since(tokio::time::Instant::now()) <= delay
    };
    if context.is_cancelled() || context.deadline().is_some_and(outlasts) {
        return false;
    }
    tokio::select! {
        // With a pause of zero both may be ready, and a cancelled call must not be repeated.
        biased;
        _ = context.ended() => false,
        () = tokio::time::sleep(delay) => true,
    }
}

fn factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let factor = f64::deserialize(deserializer)?;
    if factor >= 0.0 {
        Ok(factor)
    } else {
        Err(D::Error::custom("a factor must not be negative"))
    }
}

/// Durations in milliseconds, as in configurations.
mod milliseconds {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64() * 1000.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let milliseconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(milliseconds / 1000.0)
            .map_err(|_| D::Error::custom(format!("{milliseconds} is not a valid number of milliseconds")))
    }
}

/// A set of statuses, parsed strictly. Elsewhere an unknown name is read as `UNKNOWN`; here it is a spelling
/// mistake that would disable a retry or fallback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Statuses(Vec<Status>);

/// The statuses of transient failures.
pub(super) const TRANSIENT: [Status; 5] = [
    Status::Unavailable,
    Status::DeadlineExceeded,
    Status::ResourceExhausted,
    Status::Aborted,
    Status::Internal,
];

impl Statuses {
    pub(super) fn transient() -> Self {
        TRANSIENT.into_iter().collect()
    }

    pub(super) fn contains(&self, status: Status) -> bool {
        self.0.contains(&status)
    }
}

impl FromIterator<Status> for Statuses {
    fn from_iter<I: IntoIterator<Item = Status>>(statuses: I) -> Self {
        Self(statuses.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<String>::deserialize(deserializer)?
            .iter()
            .map(|name| name.parse().map_err(D::Error::custom))
            .collect()
    }
}

impl JsonSchema for Statuses {
    fn schema_name() -> Cow<'static, str> {
        "Statuses".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Status::all().map(Status::name).collect();
        json_schema!({ "type": "array", "items": { "type": "string", "enum": names } })
    }
}

/// The maximum jitter before the first retry; it doubles with each further one.
const FIRST_JITTER: Duration = Duration::from_secs(1);

/// The source of jitter: numbers from 0 up to, not including, 1.
#[derive(Clone)]
struct Random(Arc<dyn Fn() -> f64 + Send + Sync>);

impl Random {
    fn new(source: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
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
struct Backoff {
    current: Duration,
    max: Duration,
    factor: f64,
    jitter: Option<(Duration, Random)>,
}

impl Backoff {
    fn new(initial: Duration, max: Duration, factor: f64, random: Option<Random>) -> Self {
        Self {
            current: initial,
            max,
            factor,
            jitter: random.map(|random| (FIRST_JITTER, random)),
        }
    }

    /// Returns the next delay, at least as long as the provider requested.
    fn next_delay(&mut self, asked_for: Option<Duration>) -> Duration {
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
