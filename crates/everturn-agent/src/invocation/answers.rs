//! Validating answers to interrupts against the pending requests.
//!
//! References of tool calls are unique only within one model message, so only the most recent model message
//! counts. Accepting older ones would let a client replay a settled call with a forged input.

use std::collections::HashMap;
use std::fmt;

use everturn_ai::metadata::REPLACED_INPUT;
use everturn_ai::{Answers, History, Message, Part, Role, ToolRequest};
use everturn_core::{Error, Result};
use serde_json::Value;

use crate::patch::same_value;

/// Checks answers to interrupts against the conversation: every entry must name a tool request of the most
/// recent model message, and a restart must repeat that request's input (except for the order of members and
/// the spelling of numbers).
///
/// Every agent does this before a turn, so a handler need not. An entry
/// that is neither a tool request nor a tool response is left for the generate loop to reject.
///
/// # Errors
/// `INVALID_ARGUMENT` for a request that was never made, one that is no longer pending, and a restart whose
/// input was changed.
pub fn validate_answers(history: &History, answers: &Answers) -> Result<()> {
    RestartInputs::Recorded.validate(history, answers)
}

/// Like [`validate_answers`], but lets a restart have another input than the recorded one if this is
/// declared: its metadata `replacedInput` repeats the recorded input, as [`Part::restart`] writes it.
///
/// A client then decides what the tool does, so this is for agents whose clients may.
///
/// # Errors
/// As [`validate_answers`]; `INVALID_ARGUMENT` for a changed input whose `replacedInput` is not the recorded
/// one.
pub fn validate_edited_answers(history: &History, answers: &Answers) -> Result<()> {
    RestartInputs::Edited.validate(history, answers)
}

/// The inputs with which an interrupted call may run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RestartInputs {
    /// The recorded input only.
    #[default]
    Recorded,
    /// Another input too, if the answer declares that it replaces the recorded one.
    Edited,
}

impl RestartInputs {
    pub(crate) fn validate(self, history: &History, answers: &Answers) -> Result<()> {
        validate(history, answers, self == Self::Edited)
    }
}

fn validate(history: &History, answers: &Answers, may_edit: bool) -> Result<()> {
    let latest = history
        .iter()
        .rev()
        .position(|message| message.role() == Role::Model);
    let asked = latest.and_then(|back| history.get(history.len() - 1 - back));
    // Of equal calls the newest is pending. Found by a table: a client decides how many entries and requests
    // there are.
    let requests = asked.into_iter().flat_map(Message::tool_requests);
    let pending: HashMap<Call<'_>, &ToolRequest> =
        requests.map(|request| (Call::of(request), request)).collect();
    let find = |name: &str, reference: Option<&str>| {
        let call = Call::new(name, reference);
        pending
            .get(&call)
            .copied()
            .ok_or_else(|| not_pending(history, call))
    };
    let restarts = answers.restart.iter();
    for (part, restart) in restarts.filter_map(|part| Some((part, part.as_tool_request()?))) {
        let recorded = find(&restart.name, restart.reference.as_deref())?;
        let replaced = part.metadata_entry(REPLACED_INPUT);
        let is_edited = may_edit && replaced.is_some() && same_json(recorded.input.as_ref(), replaced);
        if !is_edited && !same_json(recorded.input.as_ref(), restart.input.as_ref()) {
            return Err(Error::invalid_argument(format!(
                "the restart of '{restart}' has modified inputs; only the recorded input may run again"
            ))
            .with_public());
        }
    }
    for response in answers.respond.iter().filter_map(Part::as_tool_response) {
        find(&response.name, response.reference.as_deref())?;
    }
    Ok(())
}

/// A tool call by its name and reference; a missing reference is an empty one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Call<'a> {
    name: &'a str,
    reference: &'a str,
}

impl<'a> Call<'a> {
    fn new(name: &'a str, reference: Option<&'a str>) -> Self {
        Self {
            name,
            reference: reference.unwrap_or_default(),
        }
    }

    fn of(request: &'a ToolRequest) -> Self {
        Self::new(&request.name, request.reference.as_deref())
    }
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reference {
            "" => f.write_str(self.name),
            reference => write!(f, "{}#{reference}", self.name),
        }
    }
}

/// Returns the error for an answer to a call that is not pending.
fn not_pending(history: &History, call: Call<'_>) -> Error {
    let earlier = history
        .iter()
        .any(|message| message.tool_requests().any(|request| Call::of(request) == call));
    Error::invalid_argument(if earlier {
        format!("the tool request '{call}' is no longer pending: the conversation has continued since")
    } else {
        format!("the tool request '{call}' was not found in session history")
    })
    .with_public()
}

/// Compares JSON values without regard to the spelling of numbers; a missing input is null.
fn same_json(one: Option<&Value>, other: Option<&Value>) -> bool {
    same_value(one.unwrap_or(&Value::Null), other.unwrap_or(&Value::Null))
}

#[cfg(test)]
mod tests {
    use everturn_ai::ToolResponse;
    use everturn_core::Status;
    use serde_json::json;

    use super::*;

    fn request(reference: &str, input: Value) -> Part {
        Part::tool_request(ToolRequest::new("pay", input).with_reference(reference))
    }

    fn restart(part: Part) -> Answers {
        Answers {
            restart: vec![part],
            ..Answers::default()
        }
    }

    fn respond(name: &str, reference: &str) -> Answers {
        let request = ToolRequest::new(name, json!(null)).with_reference(reference);
        Answers {
            respond: vec![Part::tool_response(ToolResponse::to(&request, "ok"))],
            ..Answers::default()
        }
    }

    fn conversation() -> History {
        History::from_iter([
            Message::user("pay twice"),
            Message::model(vec![request("1", json!({"to": "ann", "sum": 5}))]),
            Message::tool(vec![Part::tool_response(ToolResponse::to(
                &ToolRequest::new("pay", json!({})),
                "done",
            ))]),
            Message::model(vec![request("2", json!({"to": "bob", "sum": 7}))]),
        ])
    }

    fn refusal(answers: &Answers) -> String {
        let error = validate_answers(&conversation(), answers).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        error.message().to_owned()
    }

    #[test]
    fn a_restart_may_spell_the_same_input_differently() {
        let spelt = restart(request("2", json!({"sum": 7.0, "to": "bob"})));

        assert!(validate_answers(&conversation(), &spelt).is_ok());
        assert!(validate_answers(&conversation(), &respond("pay", "2")).is_ok());
    }

    #[test]
    fn a_changed_input_is_refused() {
        let message = refusal(&restart(request("2", json!({"to": "bob", "sum": 700}))));

        assert!(message.contains("modified inputs"), "{message}");
    }

    #[test]
    fn an_input_that_is_edited_openly_is_accepted_where_it_may_be() {
        let edit = |replaced: Value| {
            let asked = request("2", replaced);
            restart(asked.restart(None, Some(json!({"to": "bob", "sum": 3}))).unwrap())
        };
        let open = edit(json!({"sum": 7.0, "to": "bob"}));
        let forged = edit(json!({"to": "bob", "sum": 3}));
        let silent = restart(request("2", json!({"to": "bob", "sum": 3})));

        assert!(validate_edited_answers(&conversation(), &open).is_ok());
        for refused in [&forged, &silent] {
            let error = validate_edited_answers(&conversation(), refused).unwrap_err();
            assert!(error.message().contains("modified inputs"), "{error}");
        }
        assert!(refusal(&open).contains("modified inputs"));
    }

    #[test]
    fn a_settled_call_is_no_longer_pending() {
        let message = refusal(&respond("pay", "1"));

        assert!(message.contains("no longer pending"), "{message}");
    }

    #[test]
    fn an_unknown_call_is_not_found() {
        let message = refusal(&respond("steal", "2"));

        assert!(message.contains("not found in session history"), "{message}");
    }

    #[test]
    fn as_many_answers_as_requests_are_checked_in_linear_time() {
        let many = 50_000;
        let requests = (0..many).map(|number| request(&number.to_string(), json!(number)));
        let history = History::from_iter([Message::model(requests.collect::<Vec<_>>())]);
        // The worst order for a search from the end.
        let answers: Answers = history.last().unwrap().content().iter().rev().cloned().collect();
        let begun = std::time::Instant::now();

        validate_answers(&history, &answers).unwrap();

        // A search for each would compare more than a billion calls.
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_missing_reference_is_an_empty_one_and_later_messages_do_not_hide_the_request() {
        let history = History::from_iter([
            Message::model(vec![Part::tool_request(ToolRequest::new("ask", json!(null)))]),
            Message::user("hello?"),
        ]);

        assert!(validate_answers(&history, &respond("ask", "")).is_ok());
    }
}
