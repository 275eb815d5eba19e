//! Answers to interrupts: tool calls that wait for a person.

use everturn_agent::Interrupt;
use everturn_ai::Part;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::lines::{is_no, is_yes};
use crate::output::{BOLD, DIM, clean, excerpt};
use crate::transcript::approval;

/// Formats the question as a line.
pub(crate) fn question(interrupt: &Interrupt) -> String {
    let data: Value = interrupt.data().unwrap_or_default();
    let question = [&data, &data["question"], &data["message"]]
        .into_iter()
        .find_map(Value::as_str);
    let input: Value = interrupt.input().unwrap_or_default();
    let mut call = format!("{} {}", clean(interrupt.name()), excerpt(&input.to_string(), 200));
    for line in interrupt.approval().iter().flat_map(approval) {
        call = format!("{call}; {line}");
    }
    match question {
        Some(question) => format!("{BOLD}{}{BOLD:#} {DIM}[{call}]{DIM:#}", clean(question)),
        None if interrupt.is_outcome_unknown() => {
            format!(
                "{BOLD}It is unknown whether this took effect. Call it again?{BOLD:#} {DIM}[{call}]{DIM:#}"
            )
        }
        None => format!("{BOLD}May this be called?{BOLD:#} {DIM}[{call}]{DIM:#}"),
    }
}

/// Parses an answer: `y` runs the tool again with an approval, `n` rejects the call, and any JSON replaces
/// the tool's output.
pub(crate) fn answer(interrupt: &Interrupt, typed: &str) -> Outcome<Part> {
    let decided = |is_approved: bool| {
        // The field names that tools and the approval middleware read.
        interrupt.restart(json!({ "approved": is_approved, "toolApproved": is_approved }))
    };
    if is_yes(typed) {
        return Ok(decided(true)?);
    }
    if is_no(typed) {
        return Ok(decided(false)?);
    }
    let output: Value = serde_json::from_str(typed.trim()).map_err(|_| {
        Failure::wrong(format!("'{}' is neither y, n nor JSON", excerpt(typed, 80)))
            .or_next("answer y, n, or with the tool's output as JSON")
    })?;
    Ok(interrupt.respond(output)?)
}
