//! Asking before a tool is run.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use everturn_core::HandlerResult;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Middleware, MultipartToolResponse, NextTool, Part, Questions, ToolCall, interrupt, metadata};

/// Interrupts before every tool that is not on a list, so that a person can approve the call.
///
/// The interrupt's data is `{message}`, which names the tool. To allow the call, restart it with the part
/// that [`ToolApproval::approve`] returns; to reject it, respond to it instead. A restart without that mark
/// is interrupted again, so that an answer to another question approves nothing.
///
/// ```
/// use everturn_ai::builtin_middleware::ToolApproval;
/// use everturn_ai::{Part, ToolRequest};
/// use serde_json::json;
///
/// let careful = ToolApproval::new(["read_file", "list_files"]);
///
/// let interrupted = Part::from(ToolRequest::new("write_file", json!({ "filePath": "a.txt" })));
/// let restart = ToolApproval::approve(&interrupted).expect("it is a tool request");
/// assert_eq!(restart.metadata_entry("resumed"), Some(&json!({ "toolApproved": true })));
/// ```
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ToolApproval {
    /// The tools that run without asking.
    approved: BTreeSet<String>,
    /// An alias of `approved`; both lists count.
    allowed_tools: BTreeSet<String>,
    /// The number of seconds in which a question may be answered; unlimited if not set.
    expires_after_seconds: Option<u64>,
}

const TOOL_APPROVED: &str = "toolApproved";

impl ToolApproval {
    /// Creates middleware that lets these tools run without asking, by short or full name, and no others.
    pub fn new(approved: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            approved: approved.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    everturn_core::setters! {
        /// Sets how long a question may be answered. Its data then has the time as `answerUntil`, and a later
        /// answer is rejected with [`reason::QUESTION_EXPIRED`](crate::reason::QUESTION_EXPIRED).
        #[must_use]
        pub fn answered_within(mut self, time: Duration) { self.expires_after_seconds = Some(time.as_secs()) }
    }

    /// Returns the part that restarts an interrupted call with approval, or `None` if `interrupted` is not a
    /// tool request.
    pub fn approve(interrupted: &Part) -> Option<Part> {
        interrupted.restart(Some(json!({ TOOL_APPROVED: true })), None)
    }

    fn allows(&self, call: &ToolCall) -> bool {
        let is_listed = |name: &str| self.approved.contains(name) || self.allowed_tools.contains(name);
        let was_approved =
            || call.answer().and_then(|answer| answer.get(TOOL_APPROVED)) == Some(&Value::Bool(true));
        is_listed(call.tool.name()) || is_listed(call.tool.short_name()) || was_approved()
    }
}

#[async_trait]
impl Middleware for ToolApproval {
    async fn tool(&self, call: ToolCall, next: NextTool) -> HandlerResult<MultipartToolResponse> {
        if self.allows(&call) {
            return Ok(next.run(call).await?);
        }
        let message = format!(
            "The tool '{}' may only be run with approval.",
            call.tool.short_name()
        );
        let mut question = json!({ "message": message });
        if let Some(seconds) = self.expires_after_seconds {
            let until = Questions::of(&call.context)
                .now()
                .checked_add(Duration::from_secs(seconds));
            question[metadata::ANSWER_UNTIL] = json!(until.unwrap_or(Timestamp::MAX));
        }
        Err(interrupt(question).into())
    }
}
