//! Matches the conversation that a client sends with the stored history, as a pure function.
//!
//! Messages that equal the history are recognised. Client-supplied content of the agent's messages is
//! ignored, but a difference is detected, so that the client receives the stored messages.

use everturn_ai::{History, Message, Part, Role, ToolRequest};
use everturn_server::MessagePosition;
use serde_json::Value;

use crate::encoder::is_result;
use crate::ids::parse;
use crate::ids::{given_id, holds_run, place_of};
use crate::input::{ClientCall, ClientContent, ClientMessage};

/// The client's messages, matched with the stored history.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    /// The position of each of the client's messages in the history; `None` for an unknown message.
    positions: Vec<Option<usize>>,
    /// Whether the client's conversation contains an agent's message that the history does not.
    contradicts: bool,
    /// Whether the history contains a message from this run.
    pub(crate) is_repeated: bool,
}

/// The last of the client's messages that the history contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastMatch {
    /// Its index among the client's messages.
    pub(crate) index: usize,
    /// Its position in the history.
    pub(crate) place: usize,
    /// Whether it is a user's message.
    pub(crate) is_users: bool,
}

impl Matching {
    /// Matches the client's messages with a history. The agent's messages are only matched up to
    /// `named_until`: the index of the last message whose id names a snapshot of this history.
    pub(crate) fn new(
        sent: &[ClientMessage],
        record: &History,
        named_until: Option<usize>,
        run: &str,
    ) -> Self {
        let mut matching = Self {
            is_repeated: holds_run(record, run),
            ..Self::default()
        };
        let is_named = |index: usize| named_until.is_some_and(|until| index <= until);
        for (index, message) in sent.iter().enumerate() {
            let found = match &message.content {
                ClientContent::User(parts) => user(record, &message.id, parts).map(|place| (place, true)),
                ClientContent::Assistant { text, calls } if is_named(index) => {
                    assistant(record, &message.id, text, calls)
                }
                ClientContent::Tool { call, content } if is_named(index) => result(record, call, content),
                _ => None,
            };
            matching.contradicts |= found.is_some_and(|(_, is_equal)| !is_equal);
            matching.positions.push(found.map(|(place, _)| place));
        }
        matching
    }

    /// Returns the last matched message.
    pub(crate) fn last_match(&self, sent: &[ClientMessage]) -> Option<LastMatch> {
        let known = |index: usize| self.positions.get(index).copied().flatten();
        let index = (0..sent.len()).rev().find(|index| known(*index).is_some())?;
        let mut place = known(index)?;
        if matches!(sent[index].content, ClientContent::Tool { .. }) {
            // Some clients merge a turn into one message of the agent, before its results.
            let mut before = (0..index).rev();
            let answer = before.find(|index| matches!(sent[*index].content, ClientContent::Assistant { .. }));
            place = place.max(answer.and_then(known).unwrap_or_default());
        }
        Some(LastMatch {
            index,
            place,
            is_users: matches!(sent[index].content, ClientContent::User(_)),
        })
    }

    /// Returns whether the client's conversation contains a message that is neither stored nor new.
    /// `is_answer` returns whether a call waits for an answer.
    pub(crate) fn is_contradicted(
        &self,
        sent: &[ClientMessage],
        last_match: Option<LastMatch>,
        is_answer: impl Fn(&str) -> bool,
    ) -> bool {
        let is_before = |index: usize| last_match.is_some_and(|last_match| index < last_match.index);
        let is_foreign = |(index, message): (usize, &ClientMessage)| {
            self.positions[index].is_none()
                && match &message.content {
                    ClientContent::Assistant { .. } => true,
                    ClientContent::Tool { call, .. } => !is_answer(call),
                    ClientContent::User(_) => is_before(index),
                    ClientContent::Reasoning | ClientContent::Other => false,
                }
        };
        self.contradicts || sent.iter().enumerate().any(is_foreign)
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

/// Finds a message of the agent, and whether the client's copy equals it.
fn assistant(record: &History, id: &str, text: &str, calls: &[ClientCall]) -> Option<(usize, bool)> {
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
    let stored = message.text();
    // Clients split the text of a message around its calls.
    let is_piece = message.tool_request_parts().next().is_some() && !text.is_empty() && stored.contains(text);
    if stored == text || is_piece {
        return Some((place.message, are_calls_known));
    }
    match merged(record, place.message, text) {
        Some(end) => Some((end, are_calls_known)),
        None => Some((place.message, false)),
    }
}

/// Returns whether the client's copy of a call equals the stored one.
fn is_call(shown: &ClientCall, request: &ToolRequest) -> bool {
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

/// Returns the last message of the turn whose texts, from this position on, together equal the client's text.
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

/// Finds the stored result of a call, and whether the client's copy equals it.
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

/// Returns the call at a position.
pub(crate) fn request_at(record: &History, place: MessagePosition) -> Option<&Part> {
    record.get(place.message)?.tool_request_parts().nth(place.number)
}

/// Returns whether no visible message follows this position.
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
