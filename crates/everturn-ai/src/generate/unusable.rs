//! Responses that a caller cannot use, as errors that carry them.

use std::fmt;

use everturn_core::{Error, Reason};
use serde_json::json;

use crate::{ModelResponse, reason};

/// The response in an error's source chain.
#[derive(Debug)]
struct UnusableResponse(ModelResponse);

impl fmt::Display for UnusableResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the model's response cannot be used")
    }
}

impl std::error::Error for UnusableResponse {}

/// The response that an error of [`Generate`](crate::Generate) is about: a blocked one, or one without a message.
pub fn unusable_response(error: &Error) -> Option<&ModelResponse> {
    error
        .find_source::<UnusableResponse>()
        .map(|unusable| &unusable.0)
}

pub(super) fn blocked(response: ModelResponse) -> Error {
    let why = response
        .finish_message
        .as_deref()
        .unwrap_or("the provider gave no reason");
    unusable(
        format!("generation blocked: {why}"),
        reason::GENERATION_BLOCKED,
        response,
    )
}

pub(super) fn no_message(response: ModelResponse) -> Error {
    let finish = response
        .finish_reason
        .map(|finish| format!("; it finished with {}", json!(finish)));
    let why = response.finish_message.as_deref().map(|why| format!(": {why}"));
    let message = format!(
        "the model returned no message{}{}",
        finish.unwrap_or_default(),
        why.unwrap_or_default()
    );
    unusable(message, reason::NO_MESSAGE, response)
}

fn unusable(message: String, reason: Reason, response: ModelResponse) -> Error {
    // The request stays out of what may travel: it is the caller's own, and may be long.
    let told = ModelResponse {
        request: None,
        ..response.clone()
    };
    Error::failed_precondition(message)
        .with_details(json!({ "response": told }))
        .with_reason(reason)
        .with_source(UnusableResponse(response))
}
