//! The resources that a model call used, and totals of several calls.

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{MessageStats, Money, number};

/// Tokens, characters and media in the request and response of a model call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "GenerationUsage")]
pub struct Usage {
    /// Tokens of the request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub input_tokens: Option<u64>,
    /// Tokens of the answer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub output_tokens: Option<u64>,
    /// Tokens of both, as the provider counts them.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub total_tokens: Option<u64>,
    /// Characters of the request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub input_characters: Option<u64>,
    /// Characters of the answer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub output_characters: Option<u64>,
    /// Images in the request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub input_images: Option<u64>,
    /// Images in the answer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub output_images: Option<u64>,
    /// Videos in the request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub input_videos: Option<u64>,
    /// Videos in the answer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub output_videos: Option<u64>,
    /// Audio files in the request.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub input_audio_files: Option<u64>,
    /// Audio files in the answer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub output_audio_files: Option<u64>,
    /// Tokens that the model spent on reasoning.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub thoughts_tokens: Option<u64>,
    /// Tokens that the provider took from its cache.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub cached_content_tokens: Option<u64>,
    /// Other numbers that the provider reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<BTreeMap<String, serde_json::Number>>,
}

impl Usage {
    /// Fills in the characters and media that the provider did not count itself.
    pub fn fill_counts(&mut self, input: MessageStats, output: MessageStats) {
        self.input_characters.get_or_insert(input.characters);
        self.input_images.get_or_insert(input.images.into());
        self.input_videos.get_or_insert(input.videos.into());
        self.input_audio_files.get_or_insert(input.audio_files.into());
        self.output_characters.get_or_insert(output.characters);
        self.output_images.get_or_insert(output.images.into());
        self.output_videos.get_or_insert(output.videos.into());
        self.output_audio_files.get_or_insert(output.audio_files.into());
    }
}

/// The tokens and the time that models and tools used, added up over many calls.
///
/// Replies that a journal replays are not counted, because they were counted before.
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
    /// Cached tokens of the requests.
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
    /// The number of rounds: model calls with the tool calls that they request.
    #[serde(skip_serializing_if = "is_none")]
    pub rounds: u64,
    /// The cost of the model calls whose model has a [price](crate::Prices).
    #[serde(skip_serializing_if = "Money::is_zero")]
    pub cost: Money,
    /// The total time of model calls.
    #[serde(
        rename = "modelMs",
        skip_serializing_if = "Duration::is_zero",
        serialize_with = "write_millis",
        deserialize_with = "read_millis"
    )]
    #[schemars(with = "f64")]
    pub model_time: Duration,
    /// The total time of tool calls. Model calls inside a tool are in both times.
    #[serde(
        rename = "toolMs",
        skip_serializing_if = "Duration::is_zero",
        serialize_with = "write_millis",
        deserialize_with = "read_millis"
    )]
    #[schemars(with = "f64")]
    pub tool_time: Duration,
    /// The total wall-clock time of turns.
    #[serde(
        rename = "turnMs",
        skip_serializing_if = "Duration::is_zero",
        serialize_with = "write_millis",
        deserialize_with = "read_millis"
    )]
    #[schemars(with = "f64")]
    pub turn_time: Duration,
}

impl UsageTotal {
    /// Returns whether nothing was used.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the tokens of requests and answers together.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Returns the greater of each amount.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        self.combined(other, u64::max, Duration::max)
    }

    pub(crate) fn add_tokens(&mut self, usage: &Usage) {
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
        let nanos = count(self.cost.as_nanos(), other.cost.as_nanos());
        Self {
            input_tokens: count(self.input_tokens, other.input_tokens),
            output_tokens: count(self.output_tokens, other.output_tokens),
            cached_content_tokens: count(self.cached_content_tokens, other.cached_content_tokens),
            thoughts_tokens: count(self.thoughts_tokens, other.thoughts_tokens),
            model_calls: count(self.model_calls, other.model_calls),
            tool_calls: count(self.tool_calls, other.tool_calls),
            rounds: count(self.rounds, other.rounds),
            cost: Money::from_nanos(nanos),
            model_time: time(self.model_time, other.model_time),
            tool_time: time(self.tool_time, other.tool_time),
            turn_time: time(self.turn_time, other.turn_time),
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

fn write_millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // Microseconds are precise enough.
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
