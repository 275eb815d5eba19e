//! Adding up what the models and tools of an invocation use.

use std::ops::{Add, AddAssign, Sub};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everturn_core::{Context, SpanRecorder};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{ModelResponse, Usage};

/// The tokens and the time that models and tools used, added up over many calls.
///
/// Replies that a journal replays are not counted: they were paid for before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct UsageTotal {
    /// Tokens of the requests.
    #[serde(skip_serializing_if = "is_none")]
    pub input_tokens: u64,
    /// Tokens of the answers.
    #[serde(skip_serializing_if = "is_none")]
    pub output_tokens: u64,
    /// Tokens of the requests that providers took from their caches.
    #[serde(skip_serializing_if = "is_none")]
    pub cached_content_tokens: u64,
    /// Tokens that models spent on reasoning.
    #[serde(skip_serializing_if = "is_none")]
    pub thoughts_tokens: u64,
    /// The number of model calls, failed ones included.
    #[serde(skip_serializing_if = "is_none")]
    pub model_calls: u64,
    /// The number of tool calls, failed ones included.
    #[serde(skip_serializing_if = "is_none")]
    pub tool_calls: u64,
    /// The time that model calls took, added up.
    #[serde(
        rename = "modelMs",
        skip_serializing_if = "Duration::is_zero",
        serialize_with = "write_millis",
        deserialize_with = "read_millis"
    )]
    #[schemars(with = "f64")]
    pub model_time: Duration,
    /// The time that tool calls took, added up. Models that a tool asks are in both times.
    #[serde(
        rename = "toolMs",
        skip_serializing_if = "Duration::is_zero",
        serialize_with = "write_millis",
        deserialize_with = "read_millis"
    )]
    #[schemars(with = "f64")]
    pub tool_time: Duration,
}

impl UsageTotal {
    /// Returns whether nothing was used.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    fn add_tokens(&mut self, usage: &Usage) {
        let counts = [
            (&mut self.input_tokens, usage.input_tokens),
            (&mut self.output_tokens, usage.output_tokens),
            (&mut self.cached_content_tokens, usage.cached_content_tokens),
            (&mut self.thoughts_tokens, usage.thoughts_tokens),
        ];
        for (total, count) in counts {
            *total = total.saturating_add(count.unwrap_or_default());
        }
    }

    fn combined(
        self,
        other: Self,
        count: fn(u64, u64) -> u64,
        time: fn(Duration, Duration) -> Duration,
    ) -> Self {
        Self {
            input_tokens: count(self.input_tokens, other.input_tokens),
            output_tokens: count(self.output_tokens, other.output_tokens),
            cached_content_tokens: count(self.cached_content_tokens, other.cached_content_tokens),
            thoughts_tokens: count(self.thoughts_tokens, other.thoughts_tokens),
            model_calls: count(self.model_calls, other.model_calls),
            tool_calls: count(self.tool_calls, other.tool_calls),
            model_time: time(self.model_time, other.model_time),
            tool_time: time(self.tool_time, other.tool_time),
        }
    }
}

impl Add for UsageTotal {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combined(other, u64::saturating_add, Duration::saturating_add)
    }
}

impl AddAssign for UsageTotal {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for UsageTotal {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.combined(other, u64::saturating_sub, Duration::saturating_sub)
    }
}

/// Adds up what the models and tools of an invocation use; an extension of the context. Calls inside find the innermost one.
#[derive(Debug, Default)]
pub struct UsageMeter(Mutex<UsageTotal>);

impl UsageMeter {
    /// Creates a meter at zero.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns what was used so far.
    pub fn total(&self) -> UsageTotal {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(context: &Context, change: impl FnOnce(&mut UsageTotal)) {
        if let Some(meter) = context.extension::<Self>() {
            change(&mut meter.0.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Counts a model call that took this time and used this much, if it says so.
    pub(crate) fn model_called(context: &Context, took: Duration, usage: Option<&Usage>) {
        Self::count(context, |total| {
            total.model_calls += 1;
            total.model_time += took;
            if let Some(usage) = usage {
                total.add_tokens(usage);
            }
        });
    }

    /// Counts a tool call that took this time.
    pub(crate) fn tool_called(context: &Context, took: Duration) {
        Self::count(context, |total| {
            total.tool_calls += 1;
            total.tool_time += took;
        });
    }
}

/// Records what a model's answer cost on the span of its call, under OpenTelemetry's names.
pub(crate) fn record_usage(recorder: &SpanRecorder, response: &ModelResponse) {
    if let Some(usage) = &response.usage {
        let counts = [
            ("gen_ai.usage.input_tokens", usage.input_tokens),
            ("gen_ai.usage.output_tokens", usage.output_tokens),
            (
                "gen_ai.usage.cache_read.input_tokens",
                usage.cached_content_tokens,
            ),
            ("gen_ai.usage.reasoning.output_tokens", usage.thoughts_tokens),
        ];
        for (name, count) in counts {
            if let Some(count) = count {
                recorder.attribute(name, count);
            }
        }
    }
    if let Some(reason) = response.finish_reason {
        let reason = serde_json::to_value(reason).unwrap_or_default();
        recorder.attribute("gen_ai.response.finish_reasons", vec![reason]);
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

fn write_millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // Microseconds are as exact as anybody reads them.
    serializer.serialize_f64((time.as_secs_f64() * 1e6).round() / 1e3)
}

fn read_millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let millis = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(millis / 1e3).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds_in_json_and_survive_it() {
        let total = UsageTotal {
            input_tokens: 7,
            model_time: Duration::from_micros(1_500),
            ..UsageTotal::default()
        };

        let json = serde_json::to_value(total).unwrap();

        assert_eq!(json["modelMs"], 1.5);
        assert_eq!(serde_json::from_value::<UsageTotal>(json).unwrap(), total);
    }
}
