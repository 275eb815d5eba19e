//! Interrupts: a tool, or a middleware around it, pauses the generation to ask.
//!
//! An interrupt travels as an error, so that `?` carries it out of any depth, and is told from failures by its reason.

use everturn_core::Error;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{EffectId, metadata, reason};

const DATA: &str = "interrupt";

/// The error that interrupts a tool call, with data for whoever is to answer; `()` stands for no data.
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

/// The interrupt of a call that began and of which nobody knows whether it took effect.
pub fn outcome_unknown(effect: &EffectId) -> Error {
    interrupt(json!({
        metadata::OUTCOME_UNKNOWN: true,
        "effectId": effect,
        "message": "The call was begun and it is not known whether it took effect. \
                    Respond with its output if it did, restart it if it did not.",
    }))
}

/// The data of an interrupt, `true` if there is none; `None` if the error is a failure.
pub fn interrupt_data(error: &Error) -> Option<&Value> {
    if !error.is(reason::TOOL_INTERRUPT) {
        return None;
    }
    error.details()?.get(DATA)
}
