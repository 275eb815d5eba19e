//! A tool's rules about who may answer its interrupted calls, and how.

use std::fmt;
use std::sync::Arc;

use everturn_core::{Context, Error, Principal, Result, Schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Tool, body, interrupt};
use crate::{Answerer, Declined, OPERATOR, Part, Questions, Replay, ToolRequest};

/// The forms in which an interrupted call of a tool may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AnswerForm {
    /// By a response, which replaces the tool's output, or by a restart, which runs the tool with a decision.
    #[default]
    Any,
    /// By a restart only: the caller decides, and only the tool produces its output.
    Restart,
    /// By a response only.
    Respond,
}

/// The callers who may answer interrupted calls of a tool.
///
/// ```
/// use everturn_ai::{AnsweredBy, ToolRequest};
/// use everturn_core::Principal;
///
/// // Callers with a role, which their principal or the value `auth` of their context has:
/// let staff = AnsweredBy::role("staff");
/// // Callers for whom a function of the principal and the call returns true:
/// let not_themselves = AnsweredBy::when(|caller: Option<&Principal>, call: &ToolRequest| {
///     let customer = call.input.as_ref().and_then(|input| input["customer"].as_str());
///     caller.is_some_and(|caller| Some(caller.id()) != customer)
/// });
/// # let _ = (staff, not_themselves);
/// ```
#[derive(Clone, Default)]
pub struct AnsweredBy(Rule);

#[derive(Clone, Default)]
enum Rule {
    #[default]
    Anyone,
    Role(Arc<str>),
    When(Arc<Decide>),
}

type Decide = dyn Fn(Option<&Principal>, &ToolRequest) -> bool + Send + Sync;

impl AnsweredBy {
    /// Allows everyone who may use the session.
    pub fn anyone() -> Self {
        Self(Rule::Anyone)
    }

    /// Allows callers with a role; see [`Context::has_role`].
    pub fn role(role: impl Into<Arc<str>>) -> Self {
        Self(Rule::Role(role.into()))
    }

    /// Allows callers for whom `decide` returns true. It gets the caller with its roles, if it was
    /// identified, and the interrupted call.
    pub fn when(decide: impl Fn(Option<&Principal>, &ToolRequest) -> bool + Send + Sync + 'static) -> Self {
        Self(Rule::When(Arc::new(decide)))
    }

    fn allows(&self, context: &Context, call: &ToolRequest) -> bool {
        match &self.0 {
            Rule::Anyone => true,
            Rule::Role(role) => context.has_role(role),
            Rule::When(decide) => decide(Principal::of(context).as_ref(), call),
        }
    }

    /// Returns the role that is needed, if the rule is a role.
    pub(super) fn needed_role(&self) -> Option<&str> {
        match &self.0 {
            Rule::Role(role) => Some(role),
            Rule::Anyone | Rule::When(_) => None,
        }
    }
}

impl fmt::Debug for AnsweredBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Rule::Anyone => f.write_str("Anyone"),
            Rule::Role(role) => write!(f, "Role({role:?})"),
            Rule::When(_) => f.write_str("When(..)"),
        }
    }
}

/// A tool's rules about answers.
#[derive(Clone, Default)]
pub(super) struct Answering {
    pub(super) form: AnswerForm,
    /// The schema of the decision with which a call is restarted.
    pub(super) decision: Option<Schema>,
    pub(super) by: AnsweredBy,
    /// The callers who resolve a call whose outcome is unknown; an operator by default.
    pub(super) outcome_by: Option<AnsweredBy>,
}

/// An answer of a caller to an interrupted call.
#[derive(Debug, Clone, Copy)]
pub enum GivenAnswer<'a> {
    /// The output that replaces the tool's. Every tool accepts one that [declines](Declined) the call.
    Response(&'a Value),
    /// The call that is to run in place of the interrupted one, and the decision with which it runs.
    Restart {
        /// The call, whose input the caller may have edited.
        call: &'a ToolRequest,
        /// The decision.
        decision: &'a Value,
    },
}

impl Tool {
    /// Sets the forms in which an interrupted call may be answered; both by default.
    ///
    /// ```
    /// use everturn_ai::{AnswerForm, AnsweredBy, Tool, ToolContext};
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Approval {
    ///     approved: bool,
    /// }
    ///
    /// let refund = Tool::new("refund", "Pays money back.", |amount: u32, cx: ToolContext| async move {
    ///     match cx.answer::<Approval>()? {
    ///         None => Err(cx.interrupt("May it be paid back?").into()),
    ///         Some(Approval { approved: true }) => Ok(format!("{amount} paid back")),
    ///         Some(Approval { approved: false }) => Ok("refused".to_owned()),
    ///     }
    /// })
    /// // Nobody can claim that the money was paid back, and only the staff decides.
    /// .with_answer_form(AnswerForm::Restart)
    /// .with_decision::<Approval>()
    /// .answered_by(AnsweredBy::role("staff"));
    /// # let _ = refund;
    /// ```
    #[must_use]
    pub fn with_answer_form(self, form: AnswerForm) -> Self {
        self.edit(|inner| inner.answering.form = form)
    }

    /// Sets the type of the decision with which an interrupted call is restarted. A restart with any other
    /// value is rejected with `INVALID_ARGUMENT` before the tool runs.
    ///
    /// It also declares that the tool asks. Clients that keep the conversation themselves, because the agent
    /// has no store, can restart only tools that declare it, here or with [`AnswerForm::Restart`], because
    /// such a client may have forged the call and decides about its arguments. Tools that are answered by
    /// certain people, by several or within a time, and those that declare
    /// [`Replay::Once`](crate::Replay::Once), cannot be restarted from such a conversation at all.
    #[must_use]
    pub fn with_decision<T: JsonSchema>(self) -> Self {
        self.edit(|inner| inner.answering.decision = Some(Schema::of::<T>()))
    }

    /// Sets who may answer an interrupted call; everyone who may use the session by default. Others are
    /// rejected with `PERMISSION_DENIED`. The rule also applies to questions that middleware asks before the
    /// tool runs, such as [`ToolApproval`](crate::builtin_middleware::ToolApproval).
    #[must_use]
    pub fn answered_by(self, by: AnsweredBy) -> Self {
        self.edit(|inner| inner.answering.by = by)
    }

    /// Sets who may resolve a call whose process died, so that its outcome is unknown, if the tool has no
    /// [reconcile function](Tool::with_reconcile). With [`AnsweredBy::anyone`], everyone who may use the
    /// session may resolve it.
    ///
    /// By default operators resolve it: identified callers need the role `operator`. The program itself, and
    /// clients of a server without identification, count as operators. An operator may respond with the
    /// output if the call took effect, even if the tool's answer form is [`AnswerForm::Restart`], or restart
    /// it if it did not.
    #[must_use]
    pub fn outcome_by(self, by: AnsweredBy) -> Self {
        self.edit(|inner| inner.answering.outcome_by = Some(by))
    }

    /// Returns the forms in which an interrupted call may be answered.
    pub fn answer_form(&self) -> AnswerForm {
        self.0.answering.form
    }

    /// Returns the schema of the decision with which an interrupted call is restarted, if the tool declares
    /// one.
    pub fn decision_schema(&self) -> Option<&Schema> {
        self.0.answering.decision.as_ref()
    }

    /// Checks an answer to an interrupted call: whether this caller may answer it, and whether the tool
    /// accepts this form of answer. `asked` is the interrupted call in the conversation.
    ///
    /// Generations do this for each answer before anything runs. Code that runs an interrupted tool again by
    /// itself must do it first, too.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` if the caller may not answer, `INVALID_ARGUMENT` if the tool does not accept this
    /// answer, `FAILED_PRECONDITION` if the call is not the one in question, and, with
    /// [`reason::QUESTION_EXPIRED`](crate::reason::QUESTION_EXPIRED), if the question has expired.
    pub fn check_answer(&self, asked: &Part, given: GivenAnswer<'_>, caller: &Context) -> Result<()> {
        let call = asked
            .as_tool_request()
            .ok_or_else(|| interrupt::not_a_call(self.name()))?;
        let is_outcome = asked.is_outcome_unknown();
        let is_unproven =
            Questions::in_context(caller).is_some_and(|questions| questions.is_kept_by_client());
        if is_unproven && matches!(given, GivenAnswer::Restart { .. }) {
            self.check_unproven_restart(call)?;
        }
        self.check_caller(call, is_outcome, caller)?;
        if let GivenAnswer::Restart { call: again, .. } = given {
            // A rule may depend on the input, which the caller may have edited.
            self.check_caller(again, is_outcome, caller)?;
        }
        self.check_bound(asked, given, caller)?;
        match given {
            GivenAnswer::Response(output) if Declined::of(output).is_some() => Ok(()),
            GivenAnswer::Response(output) => {
                if self.answer_form() == AnswerForm::Restart && !is_outcome {
                    return Err(self.refuse_form("restarted with a decision: its output is its own"));
                }
                self.check_response(output)
            }
            GivenAnswer::Restart { .. } if !self.is_restartable() => {
                Err(self.refuse_form("answered with an output, not restarted"))
            }
            GivenAnswer::Restart {
                call: again,
                decision,
            } => {
                self.check_decision(decision)?;
                if again.input == call.input {
                    return Ok(());
                }
                // An invalid edit must not consume the question.
                let input = body::completed(again.input.clone(), self.input_schema());
                body::check_input(self, &input).map_err(Error::with_public)
            }
        }
    }

    /// Returns the callers who may answer a question about a call, for the record of the question; `None` for
    /// everyone who may use the session.
    pub(super) fn answerer(&self, call: &ToolRequest, is_outcome: bool, asker: &Context) -> Option<Answerer> {
        let answering = &self.0.answering;
        let by = match (is_outcome, &answering.outcome_by) {
            (false, _) => &answering.by,
            (true, Some(by)) => by,
            (true, None) => &AnsweredBy::role(OPERATOR),
        };
        match &by.0 {
            Rule::Anyone => None,
            Rule::Role(role) => Some(Answerer::Role(role.to_string())),
            Rule::When(decide) if decide(Principal::of(asker).as_ref(), call) => Some(Answerer::Asker),
            Rule::When(_) => Some(Answerer::Others),
        }
    }

    /// Checks whether a call may be restarted that only the client's own record of the conversation contains.
    ///
    /// The client may have forged the call. A tool that never asks must not run with its arguments, and it is
    /// unknown whether the call was approved, or made before.
    fn check_unproven_restart(&self, call: &ToolRequest) -> Result<()> {
        let declares_question = self.decision_schema().is_some() || self.answer_form() == AnswerForm::Restart;
        let is_guarded = self.needs_proof()
            || !matches!(self.0.answering.by, AnsweredBy(Rule::Anyone))
            || self.0.replay == Some(Replay::Once);
        let why = match (declares_question, is_guarded) {
            (true, false) => return Ok(()),
            (_, true) => "an approval of this tool cannot be verified there",
            (false, false) => "the tool does not declare that it asks (`Tool::with_decision`)",
        };
        Err(Error::failed_precondition(format!(
            "the tool request '{call}' cannot be restarted: the client keeps the conversation, and {why}; give the agent a \
             store, or respond to the request"
        ))
        .with_public())
    }

    /// Checks whether a caller may answer a call.
    fn check_caller(&self, call: &ToolRequest, is_outcome: bool, caller: &Context) -> Result<()> {
        let answering = &self.0.answering;
        let (by, what) = match (is_outcome, &answering.outcome_by) {
            (false, _) => (&answering.by, "it"),
            (true, Some(by)) => (by, "its unknown outcome"),
            (true, None) if !caller.is_for_client() => return Ok(()),
            (true, None) => (&AnsweredBy::role(OPERATOR), "its unknown outcome"),
        };
        if by.allows(caller, call) {
            return Ok(());
        }
        let reason = match by.needed_role() {
            Some(role) => format!("{what} is settled by callers with the role '{role}'"),
            None => format!("{what} is settled by other callers"),
        };
        let message = format!("you may not answer the tool request '{call}': {reason}");
        Err(Error::permission_denied(message).with_public())
    }

    fn refuse_form(&self, way: &str) -> Error {
        Error::invalid_argument(format!("tool '{}' can only be {way}", self.name())).with_public()
    }

    /// Checks the decision with which a call is restarted.
    pub(super) fn check_decision(&self, decision: &Value) -> Result<()> {
        let Some(schema) = self.decision_schema() else {
            return Ok(());
        };
        schema.validate(decision).map_err(|error| {
            error
                .context(format_args!("invalid decision for tool '{}'", self.name()))
                .with_public()
        })
    }
}
