//! Interrupts: a tool, or a middleware around it, pauses the generation to ask, and is answered or restarted.
//!
//! An interrupt is returned as an error, so that `?` propagates it from any depth. Its reason distinguishes
//! it from failures.

use everturn_core::{Error, Exposure, Result};
use serde::Serialize;
use serde_json::{Value, json};

use super::Tool;
use crate::{EffectId, Part, metadata, reason};

const DATA: &str = "interrupt";

/// Creates the error that interrupts a tool call, with data for the person or program that answers; `()`
/// means no data.
pub fn interrupt(data: impl Serialize) -> Error {
    let data = match serde_json::to_value(data) {
        Ok(Value::Null) => Value::Bool(true),
        Ok(data) => data,
        Err(error) => return Error::internal(format!("the data of an interrupt is not JSON: {error}")),
    };
    Error::failed_precondition("the tool call was interrupted")
        .with_details(json!({ DATA: data }))
        .with_reason(reason::TOOL_INTERRUPT)
}

/// Creates the interrupt of a call that was started and whose outcome is unknown.
pub fn outcome_unknown(effect: &EffectId) -> Error {
    interrupt(unknown_outcome(effect, None))
}

/// Returns the data of the interrupt of a call whose outcome is unknown. `error` is the error with which it
/// ended; its public part is shown.
pub(crate) fn unknown_outcome(effect: &EffectId, error: Option<&Error>) -> Value {
    let mut data = json!({
        metadata::OUTCOME_UNKNOWN: true,
        "effectId": effect,
        "message": "The call was begun and it is not known whether it took effect. \
                    Respond with its output if it did, restart it if it did not.",
    });
    if let Some(error) = error {
        let shown = error.to_wire(Exposure::Public);
        data["error"] = json!({ "status": shown.status, "message": shown.message });
    }
    data
}

/// Returns the data of an interrupt, or `true` if it has none; `None` if the error is a failure.
pub fn interrupt_data(error: &Error) -> Option<&Value> {
    if !error.is(reason::TOOL_INTERRUPT) {
        return None;
    }
    error.details()?.get(DATA)
}

impl Tool {
    /// Returns the part that answers an interrupted call of this tool; pass it to
    /// [`Generate::respond`](crate::Generate::respond).
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `request` is not a call of this tool, or `output` does not match its output
    /// schema.
    pub fn respond(&self, request: &Part, output: impl Serialize) -> Result<Part> {
        self.check_request(request)?;
        let output = serde_json::to_value(output)?;
        self.check_response(&output)?;
        request
            .respond(output, None)
            .ok_or_else(|| not_a_call(self.name()))
    }

    /// Returns the part that restarts an interrupted call of this tool with `answer`; pass it to
    /// [`Generate::restart`](crate::Generate::restart).
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `request` is not a call of this tool, the tool can only be answered, or `answer`
    /// is not the decision that it [takes](Tool::with_decision).
    pub fn restart(&self, request: &Part, answer: impl Serialize) -> Result<Part> {
        self.check_restart(request)?;
        let answer = serde_json::to_value(answer)?;
        self.check_decision(&answer)?;
        request
            .restart(some(answer), None)
            .ok_or_else(|| not_a_call(self.name()))
    }

    /// Like [`Tool::restart`], with an input that replaces the model's.
    ///
    /// # Errors
    /// As [`Tool::restart`]; also if `input` does not match the input schema.
    pub fn restart_with_input(
        &self,
        request: &Part,
        answer: impl Serialize,
        input: impl Serialize,
    ) -> Result<Part> {
        self.check_restart(request)?;
        let input = serde_json::to_value(input)?;
        super::body::check_input(self, &input)?;
        let answer = serde_json::to_value(answer)?;
        self.check_decision(&answer)?;
        request
            .restart(some(answer), Some(input))
            .ok_or_else(|| not_a_call(self.name()))
    }

    pub(super) fn check_response(&self, output: &Value) -> Result<()> {
        let Some(schema) = self.output_schema() else {
            return Ok(());
        };
        schema.validate(output).map_err(|error| {
            error
                .context(format_args!("invalid answer for tool '{}'", self.name()))
                .with_public()
        })
    }

    fn check_restart(&self, request: &Part) -> Result<()> {
        self.check_request(request)?;
        if self.is_restartable() {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "tool '{}' cannot be restarted, only answered",
            self.name()
        ))
        .with_public())
    }

    fn check_request(&self, request: &Part) -> Result<()> {
        let call = request.as_tool_request().ok_or_else(|| not_a_call(self.name()))?;
        if call.name == self.short_name() || call.name == self.name() {
            return Ok(());
        }
        Err(not_a_call(self.name()))
    }
}

/// Returns `None` for `()`, which means no data.
fn some(value: Value) -> Option<Value> {
    (!value.is_null()).then_some(value)
}

pub(super) fn not_a_call(name: &str) -> Error {
    Error::invalid_argument(format!("the part is not a request to tool '{name}'")).with_public()
}
