//! A tool request that waits for an answer.

use everturn_ai::{Approval, Part, ToolRequest, metadata};
use everturn_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

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
        data.and_then(|data| data.get(metadata::OUTCOME_UNKNOWN)) == Some(&Value::Bool(true))
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
