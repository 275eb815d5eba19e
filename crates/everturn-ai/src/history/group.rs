//! Groups: one message of the model and everything that follows up to the model's next message.
//!
//! Tool requests and their answers are in one group, because references are unique only within one message.
//! So validity is decided per group.

use std::collections::HashMap;
use std::ops::Range;

use super::validity::{Fault, FaultKind};
use crate::{Message, Part, PartKind, Role, ToolRequest, ToolResponse, metadata};

/// The output in place of an answer that was never given.
const NOT_ANSWERED: &str = "not answered: the conversation went on";

/// The addition to [`NOT_ANSWERED`] for a call that was started and may have taken effect.
const OUTCOME_UNKNOWN: &str = "; it is not known whether the call took effect";

/// The text of a user's message that has no content.
const EMPTY_MESSAGE: &str = "(empty message)";

/// A change that makes one group valid.
#[derive(Debug)]
pub(crate) struct Repair {
    /// The index of the group's first message.
    begin: usize,
    pub(crate) faults: Vec<Fault>,
    /// The indices of the messages to replace. An empty range is an insertion point.
    pub(crate) range: Range<usize>,
    pub(crate) replacement: Vec<Message>,
    /// The parts of the replacement that no stored message has.
    pub(crate) added: Vec<Part>,
}

/// Collects messages into groups, and the repairs of those that need one.
#[derive(Debug, Default)]
pub(crate) struct Groups<'a> {
    group: Vec<&'a Message>,
    /// The index of the group's first message.
    begin: usize,
    /// The index of the message to take next.
    next: usize,
    repairs: Vec<Repair>,
}

impl<'a> Groups<'a> {
    /// Starts at the index of a message that begins a group.
    pub(super) fn beginning_at(begin: usize) -> Self {
        Self {
            begin,
            next: begin,
            ..Self::default()
        }
    }

    pub(crate) fn take(&mut self, message: &'a Message) {
        if message.role() == Role::Model {
            self.close(End::More);
        }
        self.group.push(message);
        self.next += 1;
    }

    /// Skips messages that are known to be valid groups.
    pub(crate) fn skip(&mut self, count: usize) {
        self.close(End::More);
        self.next += count;
        self.begin = self.next;
    }

    fn close(&mut self, end: End) {
        self.repairs.extend(examine(&self.group, self.begin, end));
        self.group.clear();
        self.begin = self.next;
    }

    /// Returns the index up to which everything is valid, whatever follows.
    pub(crate) fn valid_before(&self) -> usize {
        self.repairs.first().map_or(self.begin, |first| first.begin)
    }

    /// Returns the repairs, in order.
    pub(crate) fn finish(mut self) -> Vec<Repair> {
        self.close(End::Last);
        self.repairs
    }
}

/// Whether something follows a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    More,
    Last,
}

/// Returns the repair of a group that begins at the index `begin`; `None` if it is valid.
pub(super) fn examine(group: &[&Message], begin: usize, end: End) -> Option<Repair> {
    let (model, rest) = match group.split_first() {
        Some((first, rest)) if first.role() == Role::Model => (Some(*first), rest),
        _ => (None, group),
    };
    let mut answers = Answers::to(model);
    let in_place = match model {
        Some(_) => rest.iter().take_while(|next| next.role() == Role::Tool).count(),
        None => 0,
    };
    let mut faults = Vec::new();
    for (offset, message) in group.iter().enumerate() {
        let is_in_place = model.is_some() && (1..=in_place).contains(&offset);
        let mut found = |kind: FaultKind| {
            faults.push(Fault {
                message: begin + offset,
                kind,
            });
        };
        if is_empty(message) {
            found(FaultKind::Empty);
        }
        for part in message.content() {
            match part.kind() {
                PartKind::ToolRequest(request) if message.role() != Role::Model => {
                    found(FaultKind::Misplaced {
                        call: request.to_string(),
                    });
                }
                PartKind::ToolResponse(response) => {
                    let call = named(response);
                    if message.role() == Role::Model || !answers.take(part, response) {
                        found(FaultKind::Unasked { call });
                    } else if !is_in_place {
                        found(FaultKind::Misplaced { call });
                    }
                }
                _ => {}
            }
        }
    }
    let is_orderly = faults.is_empty();
    let is_waiting = end == End::Last && rest[in_place..].iter().all(|message| waits(message));
    faults.extend(answers.missing().map(|(part, request)| {
        let call = request.to_string();
        Fault {
            message: begin,
            kind: match part.interrupt() {
                Some(_) if is_waiting => FaultKind::Waiting { call },
                _ => FaultKind::Unanswered { call },
            },
        }
    }));
    if faults.is_empty() {
        return None;
    }
    let mut repair = Repair {
        begin,
        faults,
        range: begin..begin + group.len(),
        replacement: Vec::new(),
        added: Vec::new(),
    };
    if is_orderly {
        // Only answers are missing, so all messages stay and one is added.
        let place = begin + 1 + in_place;
        repair.range = place..place;
        repair.added = answers.substitutes();
        repair.replacement = vec![answer_message(repair.added.clone())];
    } else {
        repair.rebuild(model, rest, &answers);
    }
    Some(repair)
}

impl Repair {
    /// Puts all answers directly after the requests, and drops content that no provider accepts.
    fn rebuild(&mut self, model: Option<&Message>, rest: &[&Message], answers: &Answers<'_>) {
        self.replacement
            .extend(model.and_then(|model| without(model, |part| part.as_tool_response().is_some())));
        if !answers.requests.is_empty() {
            self.added = answers.substitutes();
            self.replacement.push(answer_message(answers.all()));
        }
        for message in rest.iter().filter(|message| message.role() != Role::Tool) {
            if message.role() == Role::User && is_empty(message) {
                let part = Part::text(EMPTY_MESSAGE).with_metadata_entry(metadata::MENDED, true);
                self.added.push(part.clone());
                self.replacement
                    .push(Message::clone(message).with_content(vec![part]));
            } else {
                self.replacement.extend(without(message, is_tool_part));
            }
        }
    }
}

/// A tool call by its name and reference.
type Call<'a> = (&'a str, Option<&'a str>);

/// The tool requests of a model's message, each with its answer.
struct Answers<'a> {
    requests: Vec<(&'a Part, &'a ToolRequest)>,
    given: Vec<Option<&'a Part>>,
    /// The indices of the requests without an answer, the first one last. Indexed, because a client may
    /// decide how many there are.
    open: HashMap<Call<'a>, Vec<usize>>,
}

impl<'a> Answers<'a> {
    fn to(model: Option<&'a Message>) -> Self {
        let parts = model.into_iter().flat_map(Message::content);
        let requests: Vec<_> = parts
            .filter_map(|part| Some((part, part.as_tool_request()?)))
            .collect();
        let mut open: HashMap<Call<'a>, Vec<usize>> = HashMap::new();
        for (index, (_, request)) in requests.iter().enumerate().rev() {
            let call = (request.name.as_str(), request.reference.as_deref());
            open.entry(call).or_default().push(index);
        }
        Self {
            given: vec![None; requests.len()],
            requests,
            open,
        }
    }

    /// Takes the answer to a request that has none; returns whether there was one.
    fn take(&mut self, part: &'a Part, response: &'a ToolResponse) -> bool {
        let call = (response.name.as_str(), response.reference.as_deref());
        let asked = self.open.get_mut(&call).and_then(Vec::pop);
        if let Some(index) = asked {
            self.given[index] = Some(part);
        }
        asked.is_some()
    }

    fn missing(&self) -> impl Iterator<Item = (&'a Part, &'a ToolRequest)> {
        let all = self.requests.iter().zip(&self.given);
        all.filter(|(_, given)| given.is_none())
            .map(|(request, _)| *request)
    }

    /// Returns parts in place of the missing answers.
    fn substitutes(&self) -> Vec<Part> {
        self.missing()
            .map(|(part, request)| substitute(part, request))
            .collect()
    }

    /// Returns the answers to all requests, in their order.
    fn all(&self) -> Vec<Part> {
        let all = self.requests.iter().zip(&self.given);
        all.map(|((part, request), given)| match given {
            Some(given) => Part::clone(given),
            None => substitute(part, request),
        })
        .collect()
    }
}

/// Returns the part in place of the answer to a request: the output of a call that had finished, or a text
/// that there is none.
fn substitute(part: &Part, request: &ToolRequest) -> Part {
    if let Some(finished) = part.pending_answer() {
        return finished;
    }
    let mut output = NOT_ANSWERED.to_owned();
    if part.is_outcome_unknown() {
        output.push_str(OUTCOME_UNKNOWN);
    }
    Part::tool_response(ToolResponse::to(request, output)).with_metadata_entry(metadata::MENDED, true)
}

fn answer_message(answers: Vec<Part>) -> Message {
    Message::tool(answers).with_metadata_entry(metadata::MENDED, true)
}

/// Returns whether a message of the user waits for the answer to an interrupt before it.
pub(super) fn waits(message: &Message) -> bool {
    message.role() == Role::User && message.metadata_entry(metadata::WAITING).is_some()
}

/// Returns whether a message has no content that every provider accepts. Reasoning alone does not count: it
/// belongs to the content that it led to.
fn is_empty(message: &Message) -> bool {
    if message.role() == Role::Tool {
        return !message
            .content()
            .iter()
            .any(|part| part.as_tool_response().is_some());
    }
    message.content().iter().all(|part| match part.kind() {
        PartKind::Text(text) => {
            let is_signed = [metadata::THOUGHT_SIGNATURE, metadata::SIGNATURE]
                .iter()
                .any(|key| part.metadata_entry(key).is_some());
            text.trim().is_empty() && !is_signed
        }
        PartKind::Reasoning(_) => true,
        _ => false,
    })
}

fn is_tool_part(part: &Part) -> bool {
    matches!(part.kind(), PartKind::ToolRequest(_) | PartKind::ToolResponse(_))
}

/// Returns a message without some of its parts; `None` if nothing is left.
fn without(message: &Message, unwanted: impl Fn(&Part) -> bool) -> Option<Message> {
    let left = if message.content().iter().any(&unwanted) {
        let parts = message.content().iter().filter(|part| !unwanted(part));
        message.clone().with_content(parts.cloned().collect::<Vec<_>>())
    } else {
        message.clone()
    };
    (!is_empty(&left)).then_some(left)
}

/// Returns the call that a response answers, as `name#reference`.
fn named(response: &ToolResponse) -> String {
    match &response.reference {
        Some(reference) => format!("{}#{reference}", response.name),
        None => response.name.clone(),
    }
}
