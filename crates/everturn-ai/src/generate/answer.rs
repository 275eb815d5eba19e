//! What a model answered, before anybody acts on it.

use everturn_core::Result;
use uuid::Uuid;

use super::call::Call;
use super::unusable::{blocked, no_message};
use crate::{FinishReason, Message, ModelResponse, Part, PartKind};

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
