//! Refusing requests for abilities that a model does not have.

use everturn_core::{Error, Result};

use crate::{ConstrainedSupport, Feature, ModelRequest, ModelSupports, ToolChoice, reason};

/// Checks a request against what a model declares.
///
/// Only what is declared unsupported is refused; what is not declared is assumed to work.
///
/// # Errors
/// `INVALID_ARGUMENT` with [`reason::UNSUPPORTED_BY_MODEL`] that names the first thing the model cannot do.
pub fn validate_support(request: &ModelRequest, model: &str, supports: &ModelSupports) -> Result<()> {
    let is_chosen = request
        .tool_choice
        .is_some_and(|choice| choice != ToolChoice::Auto);
    let is_constrained = request
        .output
        .as_ref()
        .is_some_and(|output| output.constrained == Some(true));
    let is_unconstrained = supports.constrained == Some(ConstrainedSupport::None);
    let needs = [
        (
            supports.media == Some(false) && request.messages.any_with(Feature::Media),
            "media",
        ),
        (
            supports.tools == Some(false) && !request.tools().is_empty(),
            "tools",
        ),
        (
            supports.multiturn == Some(false) && request.messages.len() > 1,
            "more than one message",
        ),
        (supports.tool_choice == Some(false) && is_chosen, "a tool choice"),
        (
            supports.system_role == Some(false) && request.messages.any_with(Feature::System),
            "a system message",
        ),
        (is_unconstrained && is_constrained, "an enforced output schema"),
    ];
    match needs.iter().find(|(is_missing, _)| *is_missing) {
        None => Ok(()),
        Some((_, need)) => Err(Error::invalid_argument(format!(
            "model '{model}' does not support {need}, which the request has"
        ))
        .with_reason(reason::UNSUPPORTED_BY_MODEL)
        .with_public()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Part};

    #[test]
    fn undeclared_abilities_are_allowed_and_those_declared_false_are_refused() {
        let request = ModelRequest::new([
            Message::user("a"),
            Message::user(Part::media("https://x.test/cat.png")),
        ]);
        let refusal = |supports: ModelSupports| validate_support(&request, "m", &supports).err();

        assert!(refusal(ModelSupports::default()).is_none());
        assert!(
            refusal(ModelSupports {
                media: Some(true),
                ..ModelSupports::default()
            })
            .is_none()
        );

        let error = refusal(ModelSupports {
            media: Some(false),
            ..ModelSupports::default()
        })
        .unwrap();
        assert!(error.is(reason::UNSUPPORTED_BY_MODEL));
        assert!(error.message().contains("media"), "{error}");
        let error = refusal(ModelSupports {
            multiturn: Some(false),
            ..ModelSupports::default()
        })
        .unwrap();
        assert!(error.message().contains("more than one message"), "{error}");
    }
}
