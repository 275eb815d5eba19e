//! Capabilities of Gemini models, by rules over their names.
//!
//! The rules only avoid requests that the API would reject. An unknown name is treated as a current model.

use everturn_ai::{ConstrainedSupport, ModelSupports};

/// The first generation of Gemma with a role for system messages.
const GEMMA_WITH_SYSTEM: u32 = 4;
/// Names of models whose output is not a conversation.
const OTHER_KINDS: [&str; 8] = [
    "-tts",
    "-image",
    "imagen",
    "veo",
    "lyria",
    "-embedding",
    "-live",
    "deep-research",
];

/// The generation of a model, from its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Gemini 1 and 2, where signatures are optional and a schema excludes tools.
    Early,
    /// Gemini 3 and later.
    Current,
    /// An open model of that generation.
    Gemma(u32),
}

impl Family {
    /// Reads the family from a model name such as `gemini-2.5-flash`.
    pub(super) fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
        let generation = |prefix: &str| {
            let digits: String = name
                .strip_prefix(prefix)?
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            digits.parse::<u32>().ok()
        };
        if name.starts_with("gemma") {
            return Self::Gemma(generation("gemma-").unwrap_or(1));
        }
        match generation("gemini-") {
            Some(1 | 2) => Self::Early,
            _ => Self::Current,
        }
    }

    /// Returns whether the first call of a step must have a signature.
    pub(super) fn needs_signatures(self) -> bool {
        self == Self::Current
    }

    /// Returns whether thoughts are sent back to the model.
    pub(super) fn takes_thoughts(self) -> bool {
        !matches!(self, Self::Gemma(_))
    }

    /// Returns whether JSON output can be combined with tools.
    pub(super) fn has_json_with_tools(self) -> bool {
        self == Self::Current
    }

    /// Returns the most tokens of a request. Models differ, so this is the limit of all models of the family.
    pub(super) fn max_input_tokens(self) -> u64 {
        match self {
            Self::Early | Self::Current => 1_048_576,
            Self::Gemma(generation) if generation < 3 => 8_192,
            Self::Gemma(_) => 32_768,
        }
    }

    /// Returns the capabilities of the model.
    pub(super) fn supports(self) -> ModelSupports {
        let has_system = !matches!(self, Self::Gemma(generation) if generation < GEMMA_WITH_SYSTEM);
        let constrained = if self.has_json_with_tools() {
            ConstrainedSupport::All
        } else {
            ConstrainedSupport::NoTools
        };
        ModelSupports {
            multiturn: Some(true),
            media: Some(true),
            tools: Some(true),
            system_role: Some(has_system),
            tool_choice: Some(true),
            output: Some(vec!["text".to_owned(), "json".to_owned()]),
            constrained: Some(constrained),
            ..ModelSupports::default()
        }
    }
}

/// Returns whether a model of that name is a chat model.
pub(super) fn is_conversational(name: &str) -> bool {
    !OTHER_KINDS.iter().any(|kind| name.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_is_read_from_the_name() {
        assert_eq!(Family::of("gemini-2.5-flash"), Family::Early);
        assert_eq!(Family::of("models/gemini-1.5-pro-002"), Family::Early);
        assert_eq!(Family::of("gemini-3-pro-preview"), Family::Current);
        assert_eq!(Family::of("gemini-10-flash"), Family::Current);
        assert_eq!(Family::of("gemini-flash-latest"), Family::Current);
        assert_eq!(Family::of("gemma-3-27b-it"), Family::Gemma(3));
    }

    #[test]
    fn early_models_are_spared_what_they_refuse() {
        let supports = |model| Family::of(model).supports();

        assert_eq!(
            supports("gemini-2.5-pro").constrained,
            Some(ConstrainedSupport::NoTools)
        );
        assert_eq!(
            supports("gemini-3-flash").constrained,
            Some(ConstrainedSupport::All)
        );
        assert_eq!(supports("gemma-3-4b-it").system_role, Some(false));
        assert_eq!(supports("gemma-4-9b-it").system_role, Some(true));
    }

    #[test]
    fn other_kinds_are_recognised() {
        assert!(is_conversational("gemini-3-pro"));
        assert!(!is_conversational("gemini-2.5-flash-preview-tts"));
        assert!(!is_conversational("imagen-4.0-generate-001"));
    }
}
