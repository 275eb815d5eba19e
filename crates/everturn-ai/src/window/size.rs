//! The token limit of a window.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::Value;

use crate::{MessageStats, ModelRequest};

/// The approximate number of bytes of JSON per token.
const BYTES_PER_TOKEN: u64 = 4;

/// The fixed part of a request counts in steps of this part of the model's size, so that a longer instruction
/// does not move the window.
const STEPS: u64 = 16;

/// The smallest part of a model's size that is left to the conversation.
const LEAST_SHARE: u64 = 8;

/// The smallest request from which the ratio of real to estimated tokens is measured.
const TELLING: u64 = 1_000;

/// The ratio of real to estimated tokens is rounded to powers of this factor.
const FACTOR_STEP: f64 = 1.25;

/// The configured size of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size {
    /// The most tokens of the conversation; only the model's size counts if not given.
    pub(super) tokens: Option<u64>,
    /// The part of the model's size that is left free for the answer and for estimation errors.
    pub(super) margin: f64,
}

/// Measurements of earlier requests to a model.
#[derive(Debug, Clone, Copy, Default)]
struct Learnt {
    /// Real tokens for each estimated one.
    factor: Option<f64>,
    /// A number of tokens with which a request was not too long, after one that was.
    ceiling: Option<u64>,
}

/// The measurements of each model, by its name.
#[derive(Debug, Default)]
pub(super) struct Experience(Mutex<HashMap<String, Learnt>>);

impl Size {
    /// Returns how many estimated tokens of the conversation a request may have; `None` if there is no limit.
    pub(super) fn room(
        self,
        declared: Option<u64>,
        fixed: u64,
        experience: &Experience,
        model: &str,
    ) -> Option<u64> {
        let learnt = experience.of(model);
        let factor = learnt.factor.unwrap_or(1.0);
        let of_model = declared.map(|size| {
            let unit = (size / STEPS).max(1);
            let fixed = scaled(fixed, factor).div_ceil(unit) * unit;
            let free = scaled(size, 1.0 - self.margin);
            free.saturating_sub(fixed).max(size / LEAST_SHARE)
        });
        let limits = [self.tokens, of_model].into_iter().flatten();
        let estimated = limits.map(|tokens| scaled(tokens, 1.0 / factor));
        estimated.chain(learnt.ceiling).min()
    }
}

impl Experience {
    fn with<T>(&self, model: &str, access: impl FnOnce(&mut Learnt) -> T) -> T {
        let mut all = self.0.lock();
        access(all.entry(model.to_owned()).or_default())
    }

    fn of(&self, model: &str) -> Learnt {
        let all = self.0.lock();
        all.get(model).copied().unwrap_or_default()
    }

    /// Updates the ratio from the tokens that a provider counted in a request.
    pub(super) fn counted(&self, model: &str, estimated: u64, real: Option<u64>) {
        let Some(real) = real.filter(|real| *real > 0 && estimated >= TELLING) else {
            return;
        };
        #[expect(clippy::cast_precision_loss, reason = "a relation need not be exact")]
        let seen = (real as f64 / estimated as f64).clamp(0.5, 4.0);
        // Rounded, and after the first request only increased, because each change moves the windows of all
        // conversations.
        let rounded = FACTOR_STEP.powf((seen.ln() / FACTOR_STEP.ln()).round());
        self.with(model, |learnt| {
            learnt.factor = Some(learnt.factor.map_or(rounded, |known| known.max(rounded)));
        });
    }

    /// Records that a request whose conversation had this many estimated tokens was too long.
    pub(super) fn too_long(&self, model: &str, estimated: u64) {
        let ceiling = estimated / 2;
        self.with(model, |learnt| {
            learnt.ceiling = Some(learnt.ceiling.map_or(ceiling, |known| known.min(ceiling)));
        });
    }
}

/// Returns the tokens that a request keeps for the answer.
pub(super) fn answer_tokens(request: &ModelRequest) -> u64 {
    let most = request.config_entry("maxOutputTokens").and_then(Value::as_u64);
    most.unwrap_or(0)
}

/// Returns the estimated tokens of a request besides its messages.
pub(super) fn fixed_tokens(request: &ModelRequest) -> u64 {
    let bytes_of = |value: &Option<Value>| value.as_ref().map_or(0, MessageStats::bytes_of_json);
    let tools: u64 = request
        .tools()
        .iter()
        .map(|tool| tool.name.len() as u64 + tool.description.len() as u64 + bytes_of(&tool.input_schema))
        .sum();
    let docs: u64 = request
        .docs()
        .iter()
        .map(|doc| MessageStats::of_content(&doc.content).bytes)
        .sum();
    let schema = request
        .output
        .as_ref()
        .map_or(0, |output| bytes_of(&output.schema));
    (tools + docs + schema) / BYTES_PER_TOKEN
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "an estimate, and never negative"
)]
fn scaled(tokens: u64, factor: f64) -> u64 {
    (tokens as f64 * factor) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_MODEL: Size = Size {
        tokens: None,
        margin: 0.25,
    };

    #[test]
    fn a_model_of_unknown_size_gives_no_limit_until_a_request_was_too_long() {
        let experience = Experience::default();

        assert_eq!(OF_MODEL.room(None, 0, &experience, "m"), None);
        experience.too_long("m", 5_000);
        assert_eq!(OF_MODEL.room(None, 0, &experience, "m"), Some(2_500));
        assert_eq!(OF_MODEL.room(None, 0, &experience, "other"), None);
    }

    #[test]
    fn the_fixed_part_counts_in_steps_and_leaves_something_to_the_conversation() {
        let experience = Experience::default();
        let room = |fixed| OF_MODEL.room(Some(16_000), fixed, &experience, "m");

        assert_eq!(room(0), Some(12_000));
        assert_eq!(room(10), Some(11_000));
        assert_eq!(room(1_000), Some(11_000));
        assert_eq!(room(1_001), Some(10_000));
        assert_eq!(room(90_000), Some(2_000));
    }

    #[test]
    fn a_provider_that_counts_more_tokens_makes_the_window_smaller() {
        let size = Size {
            tokens: Some(10_000),
            margin: 0.0,
        };
        let experience = Experience::default();
        let room = || size.room(None, 0, &experience, "m");

        experience.counted("m", 10, Some(40));
        assert_eq!(room(), Some(10_000), "a short request is no measurement");
        experience.counted("m", 8_000, Some(10_000));
        assert_eq!(room(), Some(8_000));
        experience.counted("m", 8_000, Some(8_000));
        assert_eq!(room(), Some(8_000), "later it only shrinks");
    }
}
