//! A tool's rules about approvals: how many people, how soon, of which arguments, and how often.

use std::time::Duration;

use everturn_core::{Context, Error, Principal, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{GivenAnswer, Tool, interrupt};
use crate::approval::{Questions, answer_digest, call_digest};
use crate::{Approval, ApprovalAnswer, ApprovalForm, Declined, Part, Repeat, ToolRequest, metadata, reason};

/// A tool's rules about approvals.
#[derive(Clone, Copy, Default)]
pub(super) struct Approving {
    /// How long a question may be answered.
    within: Option<Duration>,
    /// The number of different people who must give the same answer; zero counts as one.
    needed: u32,
    by_another: bool,
    /// Whether arguments may be edited; the conditions of the context decide if not set.
    pub(super) editable: Option<bool>,
    repeat: Repeat,
}

impl Tool {
    /// Sets how long a question about a call may be answered; without an end by default. A later answer is
    /// rejected with `FAILED_PRECONDITION`, [`reason::QUESTION_EXPIRED`], and changes nothing. A late
    /// question can still be declined, and a message that is sent instead of an answer closes it.
    #[must_use]
    pub fn answered_within(self, time: Duration) -> Self {
        self.edit(|inner| inner.approving.within = Some(time))
    }

    /// Sets how many different people must give the same answer before it counts; one by default. Until then
    /// the turn stays interrupted, and the question lists the missing answers. One person who declines is
    /// enough.
    ///
    /// People are identified by the ids of their [`Principal`], so unidentified callers cannot answer.
    ///
    /// ```
    /// use everturn_ai::{Tool, ToolContext};
    ///
    /// let wire = Tool::new("wire", "Moves money.", |sum: u32, cx: ToolContext| async move {
    ///     match cx.answer_value() {
    ///         None => Err(cx.interrupt("Move it?").into()),
    ///         Some(_) => Ok(format!("{sum} moved")),
    ///     }
    /// })
    /// .with_approvals(2)
    /// // The customer who talks to the agent is none of the two.
    /// .with_second_person();
    /// # let _ = wire;
    /// ```
    #[must_use]
    pub fn with_approvals(self, people: u32) -> Self {
        self.edit(|inner| inner.approving.needed = people)
    }

    /// Excludes answers of the person in whose turn the tool asked. That person may still decline.
    ///
    /// Unidentified callers cannot answer.
    #[must_use]
    pub fn with_second_person(self) -> Self {
        self.edit(|inner| inner.approving.by_another = true)
    }

    /// Sets whether people who approve a call may edit its arguments. By default the agent decides, and
    /// agents allow no edits by default, because permission to approve does not imply permission to edit.
    #[must_use]
    pub fn with_editable_input(self, is_editable: bool) -> Self {
        self.edit(|inner| inner.approving.editable = Some(is_editable))
    }

    /// Sets the treatment of an approved call that another resumption of the conversation has already made;
    /// its recorded outcome is the answer by default. It is for tools that are
    /// [`Replay::Once`](crate::Replay::Once).
    #[must_use]
    pub fn with_repeat(self, repeat: Repeat) -> Self {
        self.edit(|inner| inner.approving.repeat = repeat)
    }

    /// Returns whether an answer to a call counts only under rules that a conversation has to prove.
    pub(super) fn needs_proof(&self) -> bool {
        let rules = &self.0.approving;
        rules.within.is_some() || rules.needed > 1 || rules.by_another
    }

    /// Returns the treatment of an approved call that another resumption has already made.
    pub fn repeat(&self) -> Repeat {
        self.0.approving.repeat
    }

    /// Returns whether approvers may edit the arguments of calls; `None` if the tool leaves it to its agent.
    pub fn editable_input(&self) -> Option<bool> {
        self.0.approving.editable
    }

    /// Returns the question about a call that interrupts with `data`; `None` if it need not be recorded. Code
    /// with its own questions stores it as the entry `approval` of the tool request's metadata.
    pub fn question(&self, call: &ToolRequest, data: &Value, context: &Context) -> Option<Approval> {
        let rules = &self.0.approving;
        let data_until = data.get(metadata::ANSWER_UNTIL).and_then(Value::as_str);
        let has_rules =
            rules.within.is_some() || rules.needed > 1 || rules.by_another || data_until.is_some();
        // A generation outside an agent writes only Genkit's metadata unless a rule needs more.
        if !has_rules && Questions::in_context(context).is_none() {
            return None;
        }
        // The client's own program answers for a tool of the client.
        if data.get(metadata::CLIENT_TOOL) == Some(&Value::Bool(true)) {
            return None;
        }
        let circumstances = Questions::of(context);
        let now = circumstances.now();
        // Determining an unknown outcome has no time limit.
        let is_outcome = metadata::is_outcome_unknown(data);
        let by_tool = rules.within.filter(|_| !is_outcome).map(|time| later(now, time));
        let by_data = data_until.and_then(|until| until.parse().ok());
        let mut approval = Approval {
            asked_at: Some(now),
            asked_by: Principal::of(context).map(|caller| caller.id().to_owned()),
            session: circumstances.session().map(str::to_owned),
            until: by_tool.into_iter().chain(by_data).min(),
            needed: rules.needed.max(1),
            by_another: rules.by_another,
            answered_by: self.answerer(call, is_outcome, context),
            ..Approval::about(call)
        };
        approval.describe();
        Some(approval)
    }

    /// Checks an answer as [`Tool::check_answer`] does, and returns the question with the answer added: who
    /// gave it, when, and whether the arguments were edited. If the question is not
    /// [answered](Approval::is_answered) then, more people must give the same answer before the tool may run.
    ///
    /// # Errors
    /// As [`Tool::check_answer`].
    pub fn answered(&self, asked: &Part, given: GivenAnswer<'_>, caller: &Context) -> Result<Approval> {
        self.check_answer(asked, given, caller)?;
        let call = asked
            .as_tool_request()
            .ok_or_else(|| interrupt::not_a_call(self.name()))?;
        let mut approval = self.open_question(asked, call)?;
        // An output for an unknown outcome reports a fact and approves nothing.
        if asked.is_outcome_unknown() && matches!(given, GivenAnswer::Response(_)) {
            (approval.needed, approval.by_another) = (1, false);
        }
        approval.add(answer_of(call, given, caller));
        Ok(approval)
    }

    /// Returns the question about an interrupted call; one that was not recorded gets the current rules.
    fn open_question(&self, asked: &Part, call: &ToolRequest) -> Result<Approval> {
        let rules = &self.0.approving;
        Ok(Approval::read(asked)?.unwrap_or_else(|| Approval {
            needed: rules.needed.max(1),
            by_another: rules.by_another,
            ..Approval::about(call)
        }))
    }

    /// Checks that an answer is for exactly this call, in time, and of people who count.
    pub(super) fn check_bound(&self, asked: &Part, given: GivenAnswer<'_>, caller: &Context) -> Result<()> {
        let call = asked
            .as_tool_request()
            .ok_or_else(|| interrupt::not_a_call(self.name()))?;
        let approval = self.open_question(asked, call)?;
        if approval.call != call_digest(call) {
            let message = format!("the tool request '{call}' has changed since it was asked about");
            return Err(Error::failed_precondition(message).with_public());
        }
        let circumstances = Questions::of(caller);
        if let GivenAnswer::Restart { call: again, .. } = given
            && call_digest(again) != approval.call
            && !self.editable_input().unwrap_or(circumstances.allows_edits())
        {
            return Err(Error::invalid_argument(format!(
                "the restart of '{again}' has modified inputs; only the recorded input may run again"
            ))
            .with_public());
        }
        // Declining is always possible, because otherwise a question could stay open forever.
        if matches!(given, GivenAnswer::Response(output) if Declined::of(output).is_some()) {
            return Ok(());
        }
        if approval.is_expired(circumstances.now()) {
            let until = approval.until.unwrap_or_default();
            return Err(Error::failed_precondition(format!(
                "the tool request '{call}' could be answered until {until}: decline it, or send a message to go on without it"
            ))
            .with_reason(reason::QUESTION_EXPIRED)
            .with_details(json!({ "reason": "question-expired", "until": until }))
            .with_public());
        }
        let reports_outcome = asked.is_outcome_unknown() && matches!(given, GivenAnswer::Response(_));
        if reports_outcome || (approval.needed <= 1 && !approval.by_another) {
            return Ok(());
        }
        let Some(person) = Principal::of(caller) else {
            return Err(refuse_person(
                call,
                "more than one person answers it, and you were not identified",
            ));
        };
        if approval.by_another && approval.asked_at.is_none() {
            return Err(refuse_person(
                call,
                "another person answers it, and it is not known who asked",
            ));
        }
        if approval.by_another && approval.asked_by.as_deref() == Some(person.id()) {
            return Err(refuse_person(
                call,
                "it was asked in your own turn, and another person answers it",
            ));
        }
        Ok(())
    }
}

fn refuse_person(call: &ToolRequest, why: &str) -> Error {
    Error::permission_denied(format!("you may not answer the tool request '{call}': {why}")).with_public()
}

fn later(now: Timestamp, time: Duration) -> Timestamp {
    now.checked_add(time).unwrap_or(Timestamp::MAX)
}

/// Returns the record of an answer to a call.
pub(crate) fn answer_of(call: &ToolRequest, given: GivenAnswer<'_>, caller: &Context) -> ApprovalAnswer {
    let (form, runs, value) = match given {
        GivenAnswer::Response(output) if Declined::of(output).is_some() => {
            (ApprovalForm::Decline, call, output)
        }
        GivenAnswer::Response(output) => (ApprovalForm::Respond, call, output),
        GivenAnswer::Restart {
            call: again,
            decision,
        } => (ApprovalForm::Restart, again, decision),
    };
    let is_edited = call_digest(runs) != call_digest(call);
    ApprovalAnswer {
        by: Principal::of(caller).map(|person| person.id().to_owned()),
        at: Questions::of(caller).now(),
        form,
        answer: answer_digest(form, runs, value),
        refuses: form == ApprovalForm::Restart && refuses(value),
        edited_input: is_edited.then(|| runs.input.clone().unwrap_or_default()),
    }
}

/// Returns whether a decision rejects a call, in the forms that clients use.
fn refuses(decision: &Value) -> bool {
    let is_no = |value: Option<&Value>| value == Some(&Value::Bool(false));
    is_no(Some(decision)) || is_no(decision.get("approved"))
}
