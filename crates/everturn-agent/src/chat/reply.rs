//! The reply of a turn, and the tool requests in it that wait for answers.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;

use everturn_ai::format::builtin_formats;
use everturn_ai::{Approval, Message, Part, ToolRequest, UsageTotal, extract_json, metadata};
use everturn_core::{Error, Reason, Result, RuntimeError, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::storage::session_state::decode_custom;
use crate::storage::snapshot::RUN_OUTPUT;
use crate::{
    AgentFinishReason, AgentOutput, Artifact, CustomState, SessionId, SessionState, Snapshot, SnapshotId,
};

/// The reply of an agent to one turn.
pub struct AgentReply<S = Value, O = Value> {
    output: AgentOutput,
    types: PhantomData<fn() -> (S, O)>,
}

impl<S, O> AgentReply<S, O> {
    fn new(output: AgentOutput) -> Self {
        Self {
            output,
            types: PhantomData,
        }
    }

    /// Returns the reply in an output.
    ///
    /// # Errors
    /// If the output is `failed` or `aborted`: its error, in which [`AgentReply::of`] finds the reply.
    pub fn from_output(output: AgentOutput) -> Result<Self> {
        if !output.is_failure() {
            return Ok(Self::new(output));
        }
        let error = output.error.clone().unwrap_or_else(|| RuntimeError {
            status: Some(Status::Unknown),
            message: "the turn failed and did not say why".to_owned(),
            details: None,
        });
        Err(Error::from(error).with_source(TurnFailed(output)))
    }

    /// Returns the reply in the snapshot of a background run that has ended.
    ///
    /// # Errors
    /// The run's error; `ABORTED` if it was aborted, `UNAVAILABLE` if its worker went silent.
    pub(crate) fn from_snapshot(snapshot: Snapshot) -> Result<Self> {
        use crate::SnapshotStatus::{Aborted, Expired, Failed};
        let id = snapshot.snapshot_id.clone();
        let why = match snapshot.status {
            Failed => None,
            // A run that a limit stopped has an error with the reason.
            Aborted if snapshot.error.is_some() => None,
            Aborted => Some(Error::aborted(format!("run '{id}' was aborted"))),
            Expired => Some(Error::unavailable(format!(
                "the worker of run '{id}' went silent"
            ))),
            _ => return Ok(Self::new(output_of(snapshot))),
        };
        let error = snapshot.error.clone().map(Error::from);
        let error = why
            .or(error)
            .unwrap_or_else(|| Error::unknown(format!("run '{id}' failed")));
        Err(error.with_source(TurnFailed(output_of(snapshot))))
    }

    /// Returns the reply of a failed turn from the turn's error: the snapshot to resume from, and the last
    /// good state.
    pub fn of(error: &Error) -> Option<Self> {
        error
            .find_source::<TurnFailed>()
            .map(|failed| Self::new(failed.0.clone()))
    }

    /// Returns the text of the answer.
    pub fn text(&self) -> Cow<'_, str> {
        self.output
            .message
            .as_ref()
            .map(Message::text)
            .unwrap_or_default()
    }

    /// Returns the message of the answer.
    pub fn message(&self) -> Option<&Message> {
        self.output.message.as_ref()
    }

    /// Returns the tool requests that wait for an answer.
    pub fn interrupts(&self) -> Vec<Interrupt> {
        self.message()
            .into_iter()
            .flat_map(Message::interrupts)
            .filter_map(Interrupt::of)
            .collect()
    }

    /// Returns the tool requests in the answer.
    pub fn tool_requests(&self) -> impl Iterator<Item = &Part> {
        self.message().into_iter().flat_map(Message::tool_request_parts)
    }

    /// Returns how the turn ended; `unknown` if the agent gave none.
    pub fn finish_reason(&self) -> AgentFinishReason {
        self.output.finish_reason.unwrap_or(AgentFinishReason::Unknown)
    }

    /// Returns the id of the session; `None` if an agent on another server did not name it.
    pub fn session_id(&self) -> Option<&SessionId> {
        self.output.session_id.as_ref()
    }

    /// Returns the id of the snapshot to resume from; `None` if the agent does not keep the conversation.
    pub fn snapshot_id(&self) -> Option<&SnapshotId> {
        self.output.snapshot_id.as_ref()
    }

    /// Returns every snapshot the turn's invocation took, in order; empty unless the agent has a
    /// [policy](crate::AgentBuilder::snapshots) other than the default.
    pub fn snapshot_ids(&self) -> &[SnapshotId] {
        self.output.snapshot_ids.as_deref().unwrap_or_default()
    }

    /// Returns the state to resume from, if the client keeps the conversation.
    pub fn state(&self) -> Option<&SessionState> {
        self.output.state.as_ref()
    }

    /// Returns the artifacts of the reply.
    pub fn artifacts(&self) -> &[Artifact] {
        self.output.artifacts.as_deref().unwrap_or_default()
    }

    /// Returns what the models and tools of the turn used: tokens, and time. It is zero if the turn called
    /// none, and if the server of a remote agent does not send it; servers send it to clients that request
    /// added fields.
    pub fn usage(&self) -> UsageTotal {
        self.output.usage.unwrap_or_default()
    }

    /// Returns the output as it is on the wire.
    pub fn output(&self) -> &AgentOutput {
        &self.output
    }

    /// Returns the output as it is on the wire.
    pub fn into_output(self) -> AgentOutput {
        self.output
    }
}

impl<S, O: DeserializeOwned> AgentReply<S, O> {
    /// Returns the value that the agent's function returned in addition to its answer; see
    /// [`AgentResult::with_output`](crate::AgentResult::with_output).
    ///
    /// # Errors
    /// `INTERNAL` with [`Reason::INVALID_OUTPUT`] if the value is not an `O`.
    pub fn value(&self) -> Result<Option<O>> {
        let decode = |value: &Value| {
            O::deserialize(value).map_err(|error| {
                Error::internal(format!("the agent's output cannot be read: {error}"))
                    .with_reason(Reason::INVALID_OUTPUT)
            })
        };
        self.output.output.as_ref().map(decode).transpose()
    }
}

impl<S: CustomState, O> AgentReply<S, O> {
    /// Returns the custom state; `None` unless the client keeps the conversation.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the custom state that the agent shows is not an `S`.
    pub fn custom(&self) -> Result<Option<S>> {
        self.state()
            .map(|state| decode_custom(state.custom.as_deref()))
            .transpose()
    }
}

/// Returns the output in the snapshot of a run that has ended, with its state.
pub(crate) fn output_of(snapshot: Snapshot) -> AgentOutput {
    let message = snapshot
        .state
        .as_ref()
        .and_then(|state| state.messages.last().cloned());
    let artifacts = snapshot
        .state
        .as_ref()
        .map(|state| state.artifacts.to_vec())
        .filter(|all| !all.is_empty());
    AgentOutput {
        // The snapshot has the sum over the whole conversation, which is another number.
        usage: None,
        session_id: snapshot.session_id,
        snapshot_id: Some(snapshot.snapshot_id),
        snapshot_ids: None,
        state: snapshot.state,
        message,
        artifacts,
        finish_reason: snapshot.finish_reason,
        error: snapshot.error,
        output: snapshot.extra.get(RUN_OUTPUT).cloned(),
    }
}

/// The output of a failed turn, behind the error that reports it.
#[derive(Debug)]
struct TurnFailed(AgentOutput);

impl fmt::Display for TurnFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            self.0
                .error
                .as_ref()
                .map_or("the turn failed", |error| &error.message),
        )
    }
}

impl StdError for TurnFailed {}

impl<S, O> Clone for AgentReply<S, O> {
    fn clone(&self) -> Self {
        Self::new(self.output.clone())
    }
}

everturn_core::opaque_debug!(AgentReply<S, O>, output);

impl<S, O> AgentReply<S, O> {
    /// Parses the answer as data: of the type that the agent [declares as its
    /// output](crate::AgentBuilder::output), or any JSON that the answer holds.
    ///
    /// ```
    /// # use everturn_agent::agent;
    /// # use everturn_ai::{ModelInfo, ModelResponse, define_model};
    /// # use everturn_core::{Registry, Result};
    /// # use schemars::JsonSchema;
    /// # use serde::Deserialize;
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Recipe {
    ///     dish: String,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// # define_model(&registry, "cook", ModelInfo::default(), |_request, _emitter, _context| async {
    /// #     Ok(ModelResponse::text_of(r#"{"dish": "leek soup"}"#))
    /// # })?;
    /// let chef = agent(&registry, "chef").model("cook").output::<Recipe>().define()?;
    ///
    /// let recipe: Recipe = chef.run_text("Something with leeks?").await?.data()?;
    ///
    /// assert_eq!(recipe.dish, "leek soup");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `INTERNAL` with [`Reason::INVALID_OUTPUT`] if there is no data in the answer, or it is not a `T`.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T> {
        let data = self
            .message()
            .and_then(data_of)
            .ok_or_else(|| invalid("the answer holds no data"))?;
        serde_json::from_value(data).map_err(|error| invalid(&format!("the answer cannot be read: {error}")))
    }
}

/// Returns the data in a message: parsed by the requested format, else from a data part, else from JSON in
/// the text.
fn data_of(message: &Message) -> Option<Value> {
    let asked = message
        .metadata_entry(metadata::GENERATE)
        .and_then(|note| note.pointer("/output/format")?.as_str());
    let format = builtin_formats()
        .into_iter()
        .find(|format| Some(format.name()) == asked);
    let handler = format.and_then(|format| format.handler(None).ok());
    let read = handler.and_then(|handler| handler.parse_message(message).ok().flatten());
    read.or_else(|| message.data().cloned())
        .or_else(|| extract_json(&message.text()))
}

fn invalid(message: &str) -> Error {
    Error::internal(message).with_reason(Reason::INVALID_OUTPUT)
}

/// An interrupted tool request: the agent waits for a person, or a program, to answer it.
#[derive(Debug, Clone, PartialEq)]
pub struct Interrupt(Part);

impl Interrupt {
    /// Returns the interrupt in a part, if it is one.
    pub fn of(part: &Part) -> Option<Self> {
        part.interrupt().map(|_| Self(part.clone()))
    }

    fn request(&self) -> Option<&ToolRequest> {
        self.0.as_tool_request()
    }

    /// Returns the tool's name.
    pub fn name(&self) -> &str {
        self.request().map_or("", |request| request.name.as_str())
    }

    /// Returns the reference that distinguishes the calls of one message, if the model gives one.
    pub fn reference(&self) -> Option<&str> {
        self.request()?.reference.as_deref()
    }

    /// Returns the input with which the model calls the tool.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the input is not a `T`.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T> {
        let input = self
            .request()
            .and_then(|request| request.input.clone())
            .unwrap_or_default();
        decode(input)
    }

    /// Returns the data that the tool interrupted with, such as its question.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the data is not a `T`.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T> {
        decode(self.0.interrupt().cloned().unwrap_or_default())
    }

    /// Returns whether the tool began in a process that died, so that it is unknown whether it took effect.
    ///
    /// [Respond](Interrupt::respond) with the tool's output if it did, [restart](Interrupt::restart) the tool
    /// if it did not.
    pub fn is_outcome_unknown(&self) -> bool {
        let data = self.0.interrupt();
        data.is_some_and(metadata::is_outcome_unknown)
    }

    /// Returns the question: until when it may be answered, who is still needed, and who has answered. `None`
    /// for a tool of the client, and in sessions from before questions were kept.
    pub fn approval(&self) -> Option<Approval> {
        self.0.approval()
    }

    /// Returns the tool request as a part.
    pub fn part(&self) -> &Part {
        &self.0
    }

    /// Returns the answer that takes the place of the tool's output.
    ///
    /// # Errors
    /// `INTERNAL` if the output cannot be written as JSON.
    pub fn respond(&self, output: impl Serialize) -> Result<Part> {
        let output = serde_json::to_value(output)?;
        self.0.respond(output, None).ok_or_else(not_a_request)
    }

    /// Returns the answer that runs the tool again, which finds `answer` with
    /// [`ToolContext::answer`](everturn_ai::ToolContext::answer).
    ///
    /// # Errors
    /// `INTERNAL` if `answer` cannot be written as JSON.
    pub fn restart(&self, answer: impl Serialize) -> Result<Part> {
        let answer = Some(serde_json::to_value(answer)?).filter(|answer| !answer.is_null());
        self.0.restart(answer, None).ok_or_else(not_a_request)
    }

    /// Like [`Interrupt::restart`], with other arguments than the model's. The tool must let its approvers
    /// edit them ([`Tool::with_editable_input`](everturn_ai::Tool::with_editable_input)), or the agent
    /// ([`AgentBuilder::allow_edited_inputs`](crate::AgentBuilder::allow_edited_inputs)).
    ///
    /// # Errors
    /// `INTERNAL` if `answer` or `input` cannot be written as JSON.
    pub fn restart_with(&self, answer: impl Serialize, input: impl Serialize) -> Result<Part> {
        let answer = Some(serde_json::to_value(answer)?).filter(|answer| !answer.is_null());
        let input = serde_json::to_value(input)?;
        self.0.restart(answer, Some(input)).ok_or_else(not_a_request)
    }
}

fn decode<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| Error::invalid_argument(error.to_string()))
}

fn not_a_request() -> Error {
    Error::internal("an interrupt is always a tool request")
}
