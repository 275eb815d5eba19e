//! Checking a model's response before it is used. An unusable response becomes an error that contains it.

use std::fmt;

use everturn_core::{Error, Reason, Result};
use serde_json::json;
use uuid::Uuid;

use super::call::Call;
use crate::{FinishReason, Message, ModelResponse, Part, PartKind, reason};

impl Call {
    /// Prepares a response: gives every tool request a reference and validates a finished output.
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

/// Returns whether the message is a finished answer, which must match the output's schema.
fn is_finished(message: &Message, finish: Option<FinishReason>) -> bool {
    use FinishReason::{Aborted, Blocked, Interrupted, Other};
    // `Length` is missing on purpose: a truncated output does not match its schema, and the caller must get
    // an error.
    let is_cut_short = matches!(finish, Some(Blocked | Aborted | Interrupted | Other));
    !is_cut_short && message.tool_requests().next().is_none()
}

/// Adds references to tool requests without one, because responses and restarts refer to calls by them.
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

/// The response in the source chain of an error.
#[derive(Debug)]
struct UnusableResponse(ModelResponse);

impl fmt::Display for UnusableResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the model's response cannot be used")
    }
}

impl std::error::Error for UnusableResponse {}

/// Returns the response that an error of [`Generate`](crate::Generate) is about: a blocked one, or one
/// without a message.
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
    // The request is omitted from the error: the caller has it, and it may be long.
    let reported = ModelResponse {
        request: None,
        ..response.clone()
    };
    Error::failed_precondition(message)
        .with_details(json!({ "response": reported }))
        .with_reason(reason)
        .with_source(UnusableResponse(response))
}
