//! Simulating a system prompt for a model without a system role.

use crate::{Feature, Message, ModelRequest, Part};

/// The words around a simulated system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemPromptWording {
    /// The beginning of the user message with the instructions.
    pub preface: String,
    /// The model's acknowledgement.
    pub acknowledgement: String,
}

impl Default for SystemPromptWording {
    fn default() -> Self {
        Self {
            preface: "SYSTEM INSTRUCTIONS:\n".to_owned(),
            acknowledgement: "Understood.".to_owned(),
        }
    }
}

/// Turns the first system message into a user message and a model message that acknowledges it.
pub fn simulate_system_prompt(request: ModelRequest) -> ModelRequest {
    simulate_system_prompt_with(request, &SystemPromptWording::default())
}

/// Like [`simulate_system_prompt`], with another wording.
pub fn simulate_system_prompt_with(mut request: ModelRequest, wording: &SystemPromptWording) -> ModelRequest {
    let Some(index) = request.messages.next_with(Feature::System, 0) else {
        return request;
    };
    let instructions = request
        .messages
        .get(index)
        .map(Message::content)
        .unwrap_or_default();
    let preface = Part::text(&wording.preface);
    let instructions = Message::user(
        std::iter::once(preface)
            .chain(instructions.iter().cloned())
            .collect::<Vec<_>>(),
    );
    let understood = Message::model(wording.acknowledgement.as_str());
    request
        .messages
        .splice(index..index + 1, [instructions, understood]);
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn only_the_first_system_message_is_replaced_and_only_in_the_copy() {
        let original = ModelRequest::new([Message::system("a"), Message::user("hi"), Message::system("b")]);

        let simulated = simulate_system_prompt(original.clone());

        let roles: Vec<_> = simulated.messages.iter().map(Message::role).collect();
        assert_eq!(roles, [Role::User, Role::Model, Role::User, Role::System]);
        assert_eq!(
            simulated.messages.first().unwrap().text(),
            "SYSTEM INSTRUCTIONS:\na"
        );
        assert_eq!(original.messages.first().unwrap().role(), Role::System);
    }
}
