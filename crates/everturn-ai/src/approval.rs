//! Approvals: the question about one tool call, and the people who answered it.
//!
//! A question is bound to its call by a digest of the tool's name and arguments. It is an entry of the tool
//! request's metadata, so it is stored, branched and exported with the conversation. Each answer records who
//! gave it, and when.
//!
//! The entry does not record whether the approved call was made, because other branches must find that too.
//! The session's journals record it.

mod digest;
mod questions;

use std::fmt::Write as _;

use everturn_core::{Context, Error, Principal, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

pub(crate) use self::digest::{answer_digest, call_digest};
pub use self::questions::{Questions, with_questions};
use crate::{Message, Part, ToolRequest, metadata};

/// The role of callers who may resolve a call whose outcome is unknown.
pub const OPERATOR: &str = "operator";

/// A question about one call of a tool, with the answers to it. On the wire it is the entry `approval` of the
/// tool request's metadata.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Approval {
    /// The id of the question. A second question about a call has a new one.
    pub id: String,
    /// The digest of the call that the question is about: the SHA-256 of the tool's name and its arguments.
    pub call: String,
    /// The time of the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
    /// The id of the principal in whose turn the tool asked, if it was identified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<String>,
    /// The session in which the tool asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The time until which the question may be answered; without a limit if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The number of different people who must give the same answer.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub needed: u32,
    /// Whether the answer of the principal in whose turn the tool asked does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_another: bool,
    /// The callers who may answer, as the tool declared them when it asked; everyone who may use the session
    /// if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<Answerer>,
    /// Whether another resumption of the conversation has already made the call. It runs again only if a
    /// person confirms it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub already_made: bool,
    /// A sentence about the missing answers, while the question is open and needs more than one person, or
    /// another person than the one who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still_needed: Option<String>,
    /// The answers that count, in the order in which they were given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<ApprovalAnswer>,
}

/// The callers who may answer a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Answerer {
    /// Callers with this role.
    Role(String),
    /// Callers whom a function of the tool accepts, such as the one in whose turn the tool asked.
    Asker,
    /// Callers whom a function of the tool accepts; it does not accept the one in whose turn the tool asked.
    Others,
}

/// One person's answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ApprovalAnswer {
    /// The id of the principal who answered, if it was identified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The time of the answer.
    pub at: Timestamp,
    /// The form of the answer.
    pub form: ApprovalForm,
    /// The digest of the answer: its form, the call, and the decision or output.
    pub answer: String,
    /// Whether the decision rejects the call: it is `false`, or has `approved: false`. The tool still runs
    /// with it, to report the rejection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuses: bool,
    /// The arguments that this person wrote in place of the model's; `None` if the call was not edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_input: Option<Value>,
}

impl ApprovalAnswer {
    /// Returns whether the person changed the arguments of the call.
    pub fn is_edited(&self) -> bool {
        self.edited_input.is_some()
    }
}

/// The form of an answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ApprovalForm {
    /// The tool runs, with a decision.
    Restart,
    /// An output replaces the tool's.
    Respond,
    /// The call was denied or cancelled.
    Decline,
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Approval {
    /// Creates a question about a call that one person answers at any time.
    pub(crate) fn about(call: &ToolRequest) -> Self {
        Self {
            id: Uuid::new_v4().simple().to_string(),
            call: call_digest(call),
            asked_at: None,
            asked_by: None,
            session: None,
            until: None,
            needed: 1,
            by_another: false,
            answered_by: None,
            already_made: false,
            still_needed: None,
            answers: Vec::new(),
        }
    }

    /// Reads the question in the metadata of a tool request.
    ///
    /// # Errors
    /// `DATA_LOSS` if the entry cannot be read, because it must not count as a question without rules.
    pub(crate) fn read(part: &Part) -> Result<Option<Self>> {
        let read = |entry: &Value| Self::deserialize(entry);
        part.metadata_entry(metadata::APPROVAL)
            .map(read)
            .transpose()
            .map_err(|error| {
                Error::data_loss(format!("the approval of a tool request cannot be read: {error}"))
            })
    }

    /// Returns whether enough people have answered.
    pub fn is_answered(&self) -> bool {
        let declines = |answer: &ApprovalAnswer| answer.form == ApprovalForm::Decline;
        self.answers.iter().any(declines) || self.answers.len() >= self.needed.max(1) as usize
    }

    /// Returns whether a caller may answer, according to the recorded question. The tool itself decides when
    /// the answer arrives.
    fn is_for(&self, caller: &Context) -> bool {
        let is_asker = || Principal::of(caller).map(|person| person.id().to_owned()) == self.asked_by;
        let is_chosen = match &self.answered_by {
            None => true,
            Some(Answerer::Role(role)) => caller.has_role(role),
            Some(Answerer::Asker) => is_asker(),
            Some(Answerer::Others) => false,
        };
        is_chosen && !(self.by_another && is_asker())
    }

    /// Returns whether the question can no longer be answered.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now > until)
    }

    /// Adds an answer. An answer that differs from the earlier ones, or a different answer of the same
    /// person, restarts the count, because all people must agree.
    pub(crate) fn add(&mut self, answer: ApprovalAnswer) {
        self.answers
            .retain(|known| known.answer == answer.answer && known.by != answer.by);
        self.answers.push(answer);
        self.describe();
    }

    /// Updates the sentence about the missing answers.
    pub(crate) fn describe(&mut self) {
        let has_rule = self.needed > 1 || self.by_another;
        self.still_needed = (has_rule && !self.is_answered()).then(|| {
            let missing = self.needed.max(1) as usize - self.answers.len();
            let people = if missing == 1 { "person" } else { "people" };
            let mut text = format!("{missing} more {people} must answer");
            let asker = self.asked_by.iter().filter(|_| self.by_another);
            let given = self.answers.iter().filter_map(|answer| answer.by.as_ref());
            let others: Vec<String> = asker.chain(given).map(|id| format!("'{id}'")).collect();
            if !others.is_empty() {
                let _ = write!(text, ", other than {}", others.join(", "));
            }
            text
        });
    }

    /// Returns the entry of the tool request's metadata.
    pub(crate) fn entry(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl Part {
    /// Returns the question about this tool request, with the answers to it; `None` if there is none.
    pub fn approval(&self) -> Option<Approval> {
        self.as_tool_request()?;
        Approval::read(self).ok().flatten()
    }

    /// Returns whether this tool request waits for an answer that is reserved for others, so that a message
    /// of this caller does not close it. No message closes an unknown outcome that the tool reserves for a
    /// role, not even one of a caller with that role, because the outcome must be determined.
    pub fn is_reserved(&self, caller: &Context) -> bool {
        if self.interrupt().is_none() {
            return false;
        }
        let is_outcome = self.is_outcome_unknown();
        match self.approval() {
            Some(question) => {
                let is_role = matches!(question.answered_by, Some(Answerer::Role(_)));
                (is_outcome && is_role) || !question.is_for(caller)
            }
            // Sessions of earlier versions, and agents with their own questions, do not record who may
            // answer.
            None => is_outcome,
        }
    }

    pub(crate) fn with_approval(self, approval: Option<&Approval>) -> Self {
        match approval {
            Some(approval) => self.with_metadata_entry(metadata::APPROVAL, approval.entry()),
            None => self,
        }
    }
}

impl Message {
    /// Returns the calls of this message with a question, each with its [`Approval`].
    pub fn approvals(&self) -> impl Iterator<Item = (&ToolRequest, Approval)> {
        self.content()
            .iter()
            .filter_map(|part| Some((part.as_tool_request()?, part.approval()?)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(needed: u32) -> Approval {
        Approval {
            needed,
            asked_by: Some("ann".to_owned()),
            ..Approval::about(&ToolRequest::new("pay", json!({"sum": 5})))
        }
    }

    fn answer(by: &str, answer: &str) -> ApprovalAnswer {
        ApprovalAnswer {
            by: Some(by.to_owned()),
            at: Timestamp::UNIX_EPOCH,
            form: ApprovalForm::Restart,
            answer: answer.to_owned(),
            refuses: false,
            edited_input: None,
        }
    }

    #[test]
    fn people_count_once_and_must_agree() {
        let mut approval = question(2);

        approval.add(answer("bob", "yes"));
        approval.add(answer("bob", "yes"));
        assert!(!approval.is_answered(), "one person twice");
        approval.add(answer("carl", "no"));
        assert!(!approval.is_answered(), "two people who disagree");
        approval.add(answer("bob", "no"));
        assert!(approval.is_answered());
    }

    #[test]
    fn the_question_names_who_must_still_answer() {
        let mut approval = question(2);
        approval.by_another = true;
        approval.describe();
        assert_eq!(
            approval.still_needed.as_deref(),
            Some("2 more people must answer, other than 'ann'")
        );

        approval.add(answer("bob", "yes"));
        let needed = approval.still_needed.as_deref();
        assert_eq!(needed, Some("1 more person must answer, other than 'ann', 'bob'"));

        approval.add(answer("carl", "yes"));
        assert_eq!(approval.still_needed, None);
    }

    #[test]
    fn an_approval_is_read_as_it_was_written() {
        let mut approval = question(1);
        approval.add(answer("bob", "yes"));
        let part = Part::from(ToolRequest::new("pay", json!({}))).with_approval(Some(&approval));

        assert_eq!(part.approval(), Some(approval));
        assert!(Approval::read(&part.with_metadata_entry(metadata::APPROVAL, 7)).is_err());
    }
}
