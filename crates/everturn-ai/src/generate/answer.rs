//! What a model answered, before anybody acts on it; answers that a caller cannot use become errors that carry them.

use std::fmt;

use everturn_core::{Error, Reason, Result};
use serde_json::json;
use uuid::Uuid;

use super::call::Call;
use crate::{FinishReason, Message, ModelResponse, Part, PartKind, reason};

impl Call {
    /// The response made ready for use: every tool request can be referred to, and a finished output is valid.
    pub(super) fn examined(&self, mut response: ModelResponse) -> Result<ModelResponse> {
        let is_blocked = response.finish_reason == Some(FinishReason::Blocked);
        if is_blocked && !self.allows_blocked {
            return Err(blocked(response));
        }
        let Some(message) = response.message.take() else {
            return if is_blocked || response.operation.is_some() {
                Ok(response)
            } else {
                Err(no_message(response))
            };
        };
        let message = self.output.noted(with_references(message));
        if is_finished(&message, response.finish_reason) {
            self.output.check(&message)?;
        }
        response.message = Some(message);
        Ok(response)
    }
}

/// Whether the message is an answer to be held to the output's schema, and not one on its way or cut short.
fn is_finished(message: &Message, finish: Option<FinishReason>) -> bool {
    use FinishReason::{Aborted, Blocked, Interrupted, Other};
    let is_cut_short = matches!(finish, Some(Blocked | Aborted | Interrupted | Other));
    !is_cut_short && message.tool_requests().next().is_none()
}

/// Some providers do not tell calls apart; responses and restarts have to.
fn with_references(message: Message) -> Message {
    if message.tool_requests().all(|request| request.reference.is_some()) {
        return message;
    }
    let content: Vec<Part> = message.content().iter().cloned().map(with_reference).collect();
    message.with_content(content)
}

fn with_reference(part: Part) -> Part {
    match part.as_tool_request() {
        Some(request) if request.reference.is_none() => {
            let request = request.clone().with_reference(Uuid::new_v4().to_string());
            part.with_kind(PartKind::ToolRequest(Box::new(request)))
        }
        _ => part,
    }
}

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
