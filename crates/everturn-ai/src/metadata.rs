//! The metadata keys that the wire protocol reserves on parts and messages.

use serde_json::Value;

/// On a tool request: `true`, or the data of the interrupt that paused the call.
pub const INTERRUPT: &str = "interrupt";
/// In the data of an [`INTERRUPT`]: `true` for a call of a tool that the client brought and runs itself.
pub const CLIENT_TOOL: &str = "clientTool";
/// Marks the answer of a tool that reports a failure.
pub const IS_ERROR: &str = "isError";
/// In the data of an [`INTERRUPT`]: `true` for a call that was started and may have taken effect.
pub const OUTCOME_UNKNOWN: &str = "outcomeUnknown";
/// On a tool request: the value of [`INTERRUPT`] before the call was answered.
pub const RESOLVED_INTERRUPT: &str = "resolvedInterrupt";
/// On a tool request: the output of a call that finished while a sibling was interrupted.
pub const PENDING_OUTPUT: &str = "pendingOutput";
/// On a tool request: the content of the call whose output is [`PENDING_OUTPUT`], if it had any.
pub const PENDING_CONTENT: &str = "pendingContent";
/// On a restarted tool request: `true`, or the object passed to the tool. On a tool message: `true` if it was
/// built from answers to interrupts.
pub const RESUMED: &str = "resumed";
/// On a restarted tool request: the input before it was replaced.
pub const REPLACED_INPUT: &str = "replacedInput";
/// On a tool response that answers an interrupt: `true`, or an object.
pub const INTERRUPT_RESPONSE: &str = "interruptResponse";
/// On a tool response: its origin, for instance [`SOURCE_PENDING`].
pub const SOURCE: &str = "source";
/// The value of [`SOURCE`] for a response taken from [`PENDING_OUTPUT`].
pub const SOURCE_PENDING: &str = "pending";
/// On a tool response that is streamed progress, and never part of a history.
pub const PARTIAL: &str = "partial";
/// On any part: its purpose, for instance [`PURPOSE_OUTPUT`] or [`PURPOSE_CONTEXT`].
pub const PURPOSE: &str = "purpose";
/// The purpose of a part with output format instructions.
pub const PURPOSE_OUTPUT: &str = "output";
/// The purpose of a part with the text of context documents.
pub const PURPOSE_CONTEXT: &str = "context";
/// The purpose of a part with the summary of messages that the window leaves out.
pub const PURPOSE_SUMMARY: &str = "summary";
/// On a part with a purpose: `true` for a placeholder that marks where the content is to go.
pub const PENDING: &str = "pending";
/// On a part: the provider's signature over its reasoning, to be sent back unchanged.
pub const THOUGHT_SIGNATURE: &str = "thoughtSignature";
/// An alias of [`THOUGHT_SIGNATURE`] that some runtimes write; read, never written.
pub const SIGNATURE: &str = "signature";
/// On a part that came from a resource: `{uri, template?, parent?}`.
pub const RESOURCE: &str = "resource";
/// On a model message: the requested output format and content type.
pub const GENERATE: &str = "generate";
/// On a message of a request: `true` if the message is the prompt's and not the conversation's. It is never
/// stored.
pub const PROMPT: &str = "_everturn_prompt";
/// On a model message: the [summary](crate::window::Summary) of earlier messages that was ready when the
/// message was written.
pub const SUMMARY: &str = "summary";
/// On a tool message, and on the parts in it that replace missing answers: `true`. The answers were added so
/// that the conversation could continue; see [`history::repaired`](crate::history::repaired).
pub const MENDED: &str = "mended";
/// On a user's message: `true` if it was sent while an interrupt was open and waits for the interrupt's
/// answer, which the model reads first.
pub const WAITING: &str = "waiting";
/// On a tool request that was interrupted: the [question and its answers](crate::Approval).
pub const APPROVAL: &str = "approval";
/// In the data of an [`INTERRUPT`]: the time, in RFC 3339, until which it may be answered.
pub const ANSWER_UNTIL: &str = "answerUntil";

/// Returns whether the data of an interrupt marks the outcome of the call as unknown.
pub fn is_outcome_unknown(data: &Value) -> bool {
    data.get(OUTCOME_UNKNOWN) == Some(&Value::Bool(true))
}
