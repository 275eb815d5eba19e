//! Capabilities of Claude models, by rules over their names.
//!
//! The rules only avoid requests that the API would reject. An unknown name is treated as a current model of
//! a server with this protocol.

use everturn_ai::{ConstrainedSupport, ModelSupports};

/// The generation of a model, from its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    is_claude: bool,
    is_opus: bool,
    /// Major and minor version; `None` if the name has none.
    version: Option<(u32, u32)>,
}

impl Family {
    /// Reads the family from a model name such as `claude-opus-4-7` or `claude-3-5-haiku-20241022`.
    pub(super) fn of(model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        // A platform may put its own prefix before the name: `us.anthropic.claude-…`.
        let claude = model.find("claude").map(|at| &model[at..]);
        let words = || claude.unwrap_or_default().split(['-', '@', ':', '.']);
        // A longer number is a date.
        let mut numbers = words()
            .skip_while(|word| word.parse::<u32>().is_err())
            .take_while(|word| word.len() < 3)
            .map_while(|word| word.parse::<u32>().ok());
        Self {
            is_claude: claude.is_some(),
            is_opus: words().any(|word| word == "opus"),
            version: numbers
                .next()
                .map(|major| (major, numbers.next().unwrap_or_default())),
        }
    }

    fn is_before(self, version: (u32, u32)) -> bool {
        self.version.is_some_and(|own| own < version)
    }

    /// Returns the limit on the answer's tokens for a caller who sets none. The API requires one.
    pub(super) fn default_max_tokens(self) -> u64 {
        if self.is_before((4, 0)) { 4_096 } else { 16_384 }
    }

    /// Returns the most tokens of a request; `None` for a model of another maker.
    pub(super) fn max_input_tokens(self) -> Option<u64> {
        self.is_claude.then_some(200_000)
    }

    /// Returns whether the model accepts system messages in the middle of a conversation, after a user
    /// message.
    pub(super) fn has_system_messages(self) -> bool {
        let first = if self.is_opus { (4, 8) } else { (5, 0) };
        self.is_claude && !self.is_before(first)
    }

    /// Returns the capabilities of the model.
    pub(super) fn supports(self) -> ModelSupports {
        let constrained = if self.is_before((4, 5)) {
            ConstrainedSupport::None
        } else {
            ConstrainedSupport::All
        };
        ModelSupports {
            multiturn: Some(true),
            media: Some(true),
            tools: Some(true),
            system_role: Some(true),
            tool_choice: Some(true),
            output: Some(vec!["text".to_owned(), "json".to_owned()]),
            constrained: Some(constrained),
            ..ModelSupports::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_every_form_of_name() {
        let version = |model| Family::of(model).version;

        assert_eq!(version("claude-3-5-haiku-20241022"), Some((3, 5)));
        assert_eq!(version("claude-sonnet-4-20250514"), Some((4, 0)));
        assert_eq!(version("claude-opus-4-7"), Some((4, 7)));
        assert_eq!(version("claude-sonnet-5"), Some((5, 0)));
        assert_eq!(
            version("us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
            Some((4, 5))
        );
        assert_eq!(version("claude-mythos"), None);
        assert_eq!(version("smollm2-135m"), None);
    }

    #[test]
    fn older_models_are_spared_what_they_refuse() {
        let constrained = |model| Family::of(model).supports().constrained;

        assert_eq!(
            constrained("claude-3-haiku-20240307"),
            Some(ConstrainedSupport::None)
        );
        assert_eq!(constrained("claude-opus-4-1"), Some(ConstrainedSupport::None));
        assert_eq!(constrained("claude-haiku-4-5"), Some(ConstrainedSupport::All));
        assert_eq!(constrained("anything"), Some(ConstrainedSupport::All));
        assert_eq!(Family::of("claude-3-haiku").default_max_tokens(), 4_096);
        assert_eq!(Family::of("claude-3-haiku").max_input_tokens(), Some(200_000));
        assert_eq!(Family::of("smollm2").max_input_tokens(), None);
        assert_eq!(Family::of("claude-sonnet-5").default_max_tokens(), 16_384);
    }

    #[test]
    fn later_models_take_system_messages() {
        let takes = |model| Family::of(model).has_system_messages();

        assert!(takes("claude-opus-4-8") && takes("claude-sonnet-5-1") && takes("claude-fable"));
        assert!(!takes("claude-opus-4-7") && !takes("claude-sonnet-4-8") && !takes("smollm2"));
    }
}
