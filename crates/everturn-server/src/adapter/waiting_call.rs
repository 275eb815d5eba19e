//! Calls that wait for an answer of the client, and its answers.

use everturn_agent::Snapshot;
use everturn_ai::history::awaiting;
use everturn_ai::{Answers, Declined, History, Message, Part, metadata};
use serde_json::{Value, json};

/// A call that waits for an answer, with its id in the protocol.
#[derive(Debug, Clone)]
pub struct WaitingCall {
    /// The call's id in the protocol.
    pub id: String,
    /// The call.
    pub part: Part,
    /// The kind of its answer.
    pub kind: WaitingKind,
}

/// The kind of answer that a [`WaitingCall`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitingKind {
    /// The output of a tool of the client.
    OfClient,
    /// The response to a tool without an implementation, which only accepts one.
    Question,
    /// A decision on a call that requires approval.
    Approval,
}

impl WaitingCall {
    /// Returns the waiting calls of a message. `is_question` returns whether a tool only accepts a response,
    /// and `id` returns the id of the call with this index in the message.
    pub fn of_message(
        message: &Message,
        is_question: impl Fn(&str) -> bool,
        id: impl Fn(usize) -> String,
    ) -> Vec<Self> {
        let requests = message.tool_request_parts().enumerate();
        requests
            .filter(|(_, part)| part.interrupt().is_some())
            .map(|(number, part)| {
                let tool = part.as_tool_request().map(|request| request.name.as_str());
                let kind = match tool {
                    _ if part.is_call_of_client() => WaitingKind::OfClient,
                    Some(tool) if is_question(tool) => WaitingKind::Question,
                    _ => WaitingKind::Approval,
                };
                Self {
                    id: id(number),
                    part: part.clone(),
                    kind,
                }
            })
            .collect()
    }

    /// Returns whether the call requires approval.
    pub fn is_approval(&self) -> bool {
        self.kind == WaitingKind::Approval
    }

    /// Returns the part that answers the call. `approved` and `reason` of the answer decide on an approval;
    /// every other answer is the call's output.
    pub fn answered(&self, answer: Value) -> Option<Part> {
        let approved = answer["approved"].as_bool().filter(|_| self.is_approval());
        match approved {
            Some(true) => self.part.restart(Some(answer), None),
            Some(false) => {
                let reason = answer["reason"].as_str().map(str::to_owned);
                self.part.respond(Declined::Denied { reason }.output(), None)
            }
            None => self.part.respond(answer, None),
        }
    }
}

/// The answers to the waiting calls of a conversation, which are given together.
#[derive(Debug)]
pub struct CallAnswers<'a> {
    calls: &'a [WaitingCall],
    parts: Vec<Option<Part>>,
}

impl<'a> CallAnswers<'a> {
    /// Creates the answers to these calls.
    pub fn to(calls: &'a [WaitingCall]) -> Self {
        let parts = vec![None; calls.len()];
        Self { calls, parts }
    }

    /// Returns the call with an id, and the place of its answer.
    pub fn find(&mut self, id: &str) -> Option<(&'a WaitingCall, &mut Option<Part>)> {
        let index = self.calls.iter().position(|call| call.id == id)?;
        Some((&self.calls[index], &mut self.parts[index]))
    }

    /// Returns whether no call has an answer.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(Option::is_none)
    }

    /// Returns the answers.
    ///
    /// # Errors
    /// The calls without an answer.
    pub fn finish(self) -> Result<Answers, Vec<&'a WaitingCall>> {
        let answered = self.calls.iter().zip(&self.parts);
        let open = answered.filter(|(_, part)| part.is_none());
        let open: Vec<&WaitingCall> = open.map(|(call, _)| call).collect();
        if open.is_empty() {
            Ok(self.parts.into_iter().flatten().collect())
        } else {
            Err(open)
        }
    }
}

/// Returns the message whose calls wait at the end of a conversation, and its position.
pub fn waiting_message(messages: &History) -> Option<(usize, &Message)> {
    let place = awaiting(messages)?;
    Some((place, messages.get(place)?))
}

/// Returns a message that a client sent, with its calls marked as waiting. `is_of_client` returns whether a
/// call is of a tool of the client.
pub fn with_waiting_calls(message: &Message, is_of_client: impl Fn(&Part) -> bool) -> Message {
    let marked = |part: &Part| {
        let note = match part.as_tool_request() {
            None => return part.clone(),
            Some(_) if is_of_client(part) => json!({ metadata::CLIENT_TOOL: true }),
            Some(_) => Value::Bool(true),
        };
        part.clone().with_metadata_entry(metadata::INTERRUPT, note)
    };
    let parts: Vec<Part> = message.content().iter().map(marked).collect();
    message.clone().with_content(parts)
}

/// Returns the messages of a snapshot.
pub fn messages_of(snapshot: &Snapshot) -> &History {
    static EMPTY: std::sync::LazyLock<History> = std::sync::LazyLock::new(History::default);
    snapshot.state.as_ref().map_or(&EMPTY, |state| &state.messages)
}
