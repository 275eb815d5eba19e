//! Rejecting requests that a model does not support.

use everturn_core::{Error, Result};

use crate::{ConstrainedSupport, Feature, ModelRequest, ModelSupports, Part, ToolChoice, reason};

/// Drops media from requests to models without support for media, instead of rejecting the request; an
/// extension of the context.
///
/// For callers whose protocol never rejects a message because of a part of it. Stored messages keep their
/// media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalMedia;

/// Removes the media from a request.
pub(super) fn without_media(mut request: ModelRequest) -> ModelRequest {
    let mut start = 0;
    while let Some(index) = request.messages.next_with(Feature::Media, start) {
        if let Some(message) = request.messages.get(index) {
            let rest = message.content().iter().filter(|part| part.as_media().is_none());
            let mut rest: Vec<Part> = rest.cloned().collect();
            if rest.is_empty() {
                // Providers reject a message without content.
                rest.push(Part::text("(media left out)"));
            }
            let message = message.clone().with_content(rest);
            request.messages.replace(index, message);
        }
        start = index + 1;
    }
    request
}

/// Checks a request against a model's declaration.
///
/// Only requests for declared-unsupported features are rejected; undeclared features are assumed to work.
///
/// # Errors
/// `INVALID_ARGUMENT` with [`reason::UNSUPPORTED_BY_MODEL`] that names the first unsupported feature.
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
    use crate::Message;

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

    #[test]
    fn media_can_be_left_out() {
        let cat = || Part::media("https://x.test/cat.png");
        let request = ModelRequest::new([
            Message::user(vec![Part::text("Look: "), cat()]),
            Message::model("Nice."),
            Message::user(cat()),
        ]);

        let left = without_media(request);

        let texts: Vec<_> = left.messages.iter().map(Message::text).collect();
        assert_eq!(texts, ["Look: ", "Nice.", "(media left out)"]);
        assert!(!left.messages.any_with(Feature::Media));
    }
}
