//! The conversation as a client shows it, against the record: a pure function.
//!
//! What is equal to the record is recognised. What the client says that a known message of the agent contains is never
//! believed, but a difference is noticed, so that the client can be told what was said.

use everturn_ai::{History, Message, Part, Role, ToolRequest};
use serde_json::Value;

use crate::given_ids::{given_id, holds_run, place_of};
use crate::ids::{Place, parse};
use crate::input::{Shown, ShownCall, What};
use crate::teller::is_result;

/// The messages of the client that the record holds.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    /// The place of each message of the client in the record; `None` if it is not known.
    places: Vec<Option<usize>>,
    /// Whether the client shows something of the agent that the record does not hold.
    contradicts: bool,
    /// Whether a message of the record was said by this run already.
    pub(crate) is_repeated: bool,
}

/// The last message of the client that the record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// Its index among the client's messages.
    pub(crate) index: usize,
    /// Its place in the record.
    pub(crate) place: usize,
    /// Whether it is the user's.
    pub(crate) is_users: bool,
}

impl Matching {
    /// Matches the client's messages with a record. Of the agent's messages only those up to `named_until` can be known: the
    /// index of the last one whose id names a snapshot of this record.
    pub(crate) fn new(shown: &[Shown], record: &History, named_until: Option<usize>, run: &str) -> Self {
        let mut matching = Self {
            is_repeated: holds_run(record, run),
            ..Self::default()
        };
        let is_named = |index: usize| named_until.is_some_and(|until| index <= until);
        for (index, message) in shown.iter().enumerate() {
            let found = match &message.what {
                What::User(parts) => user(record, &message.id, parts).map(|place| (place, true)),
                What::Assistant { text, calls } if is_named(index) => {
                    assistant(record, &message.id, text, calls)
                }
                What::Tool { call, content } if is_named(index) => result(record, call, content),
                _ => None,
            };
            matching.contradicts |= found.is_some_and(|(_, is_equal)| !is_equal);
            matching.places.push(found.map(|(place, _)| place));
        }
        matching
    }

    /// Returns the last known message.
    pub(crate) fn anchor(&self, shown: &[Shown]) -> Option<Anchor> {
        let known = |index: usize| self.places.get(index).copied().flatten();
        let index = (0..shown.len()).rev().find(|index| known(*index).is_some())?;
        let mut place = known(index)?;
        if matches!(shown[index].what, What::Tool { .. }) {
            // Some clients show all of a turn as one message of the agent, before its results.
            let mut before = (0..index).rev();
            let said = before.find(|index| matches!(shown[*index].what, What::Assistant { .. }));
            place = place.max(said.and_then(known).unwrap_or_default());
        }
        Some(Anchor {
            index,
            place,
            is_users: matches!(shown[index].what, What::User(_)),
        })
    }

    /// Returns whether the client shows something that is neither on record nor new. `is_answer` tells of a call whether it
    /// waits for an answer.
    pub(crate) fn is_contradicted(
        &self,
        shown: &[Shown],
        anchor: Option<Anchor>,
        is_answer: impl Fn(&str) -> bool,
    ) -> bool {
        let is_before = |index: usize| anchor.is_some_and(|anchor| index < anchor.index);
        let is_foreign = |(index, message): (usize, &Shown)| {
            self.places[index].is_none()
                && match &message.what {
                    What::Assistant { .. } => true,
                    What::Tool { call, .. } => !is_answer(call),
                    What::User(_) => is_before(index),
                    What::Reasoning | What::Other => false,
                }
        };
        self.contradicts || shown.iter().enumerate().any(is_foreign)
    }
}

fn user(record: &History, id: &str, parts: &[Part]) -> Option<usize> {
    let place = place_of(record, id).or_else(|| {
        let (_, place) = parse(id)?;
        let is_unnamed = |message: &Message| message.role() == Role::User && given_id(message).is_none();
        record.get(place.message).filter(|message| is_unnamed(message))?;
        Some(place.message)
    })?;
    let message = record.get(place)?;
    (message.role() == Role::User && message.content() == parts).then_some(place)
}

/// Finds a message of the agent, and whether the client shows it as it is.
fn assistant(record: &History, id: &str, text: &str, calls: &[ShownCall]) -> Option<(usize, bool)> {
    let (_, place) = parse(id)?;
    let message = record
        .get(place.message)
        .filter(|message| message.role() == Role::Model)?;
    let are_calls_known = calls.iter().all(|call| {
        let request = parse(&call.id).and_then(|(_, place)| request_at(record, place));
        request
            .and_then(Part::as_tool_request)
            .is_some_and(|request| is_call(call, request))
    });
    let said = message.text();
    // The text of a message with calls in its middle is shown in pieces.
    let is_piece = message.tool_request_parts().next().is_some() && !text.is_empty() && said.contains(text);
    if said == text || is_piece {
        return Some((place.message, are_calls_known));
    }
    match merged(record, place.message, text) {
        Some(end) => Some((end, are_calls_known)),
        None => Some((place.message, false)),
    }
}

/// Returns whether the client shows a call as it is.
fn is_call(shown: &ShownCall, request: &ToolRequest) -> bool {
    let arguments = match shown.arguments.trim() {
        "" => "{}",
        arguments => arguments,
    };
    let is_equal = match &request.input {
        Some(input) => serde_json::from_str(arguments).is_ok_and(|shown: Value| shown == *input),
        None => arguments == "{}",
    };
    request.name == shown.name && is_equal
}

/// Returns the last message of the turn whose texts together, from this place on, are the client's text.
fn merged(record: &History, from: usize, text: &str) -> Option<usize> {
    let squashed = |text: &str| text.split_whitespace().collect::<String>();
    let shown = squashed(text);
    let mut rest = shown.as_str();
    for (place, message) in record.iter().enumerate().skip(from) {
        match message.role() {
            Role::Model => rest = rest.strip_prefix(squashed(&message.text()).as_str())?,
            Role::Tool => continue,
            _ => return None,
        }
        if rest.is_empty() {
            return Some(place);
        }
    }
    None
}

/// Finds the recorded result of a call, and whether the client shows it as it is.
fn result(record: &History, call: &str, content: &str) -> Option<(usize, bool)> {
    let (_, place) = parse(call)?;
    let request = request_at(record, place)?.as_tool_request()?;
    let answers = record
        .get(place.message + 1)
        .filter(|message| message.role() == Role::Tool)?;
    let response = answers
        .content()
        .iter()
        .filter_map(Part::as_tool_response)
        .find(|response| request.is_same_call(&response.name, response.reference.as_deref()))?;
    Some((place.message + 1, is_result(content, response)))
}

/// Returns the part of the call at a place.
pub(crate) fn request_at(record: &History, place: Place) -> Option<&Part> {
    record.get(place.message)?.tool_request_parts().nth(place.number)
}

/// Returns whether a client that has seen the message at this place has seen the whole conversation.
pub(crate) fn is_end(record: &History, place: usize) -> bool {
    let is_visible = |message: &Message| match message.role() {
        Role::Model => !message.text().is_empty() || message.tool_request_parts().next().is_some(),
        Role::User | Role::Tool => true,
        Role::System => false,
    };
    !record.since(place + 1).any(is_visible)
}

#[cfg(test)]
mod tests;
