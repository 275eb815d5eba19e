//! Checking whether a history can be sent to a model, and repairing it.
//!
//! The rules are those of the strictest provider: each tool request has exactly one answer, in a tool message
//! directly after it; there is no answer without a request and no message without content. The role of the
//! first message, messages of one role in a row and the order of answers differ by provider, and each
//! provider's model handles them.
//!
//! [`checked`] finds the faults. [`repaired`] returns a valid history in place of a faulty one, and
//! [`closing`] the message that makes a history valid whose last requests have no answers. Messages are
//! immutable, so nothing is changed in place.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::History;
use super::group::{End, Groups, examine, waits};
use crate::{Message, Part, Role};

/// A fault for which a provider rejects a history.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The index of the message at fault.
    pub message: usize,
    /// The kind of the fault.
    pub kind: FaultKind,
}

/// The kind of a [`Fault`]. Calls are named as `name#reference`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// A tool request at the end of the history is interrupted and waits for its answer. A model can be
    /// called once it has one.
    Waiting {
        /// The call.
        call: String,
    },
    /// A tool request has no answer.
    Unanswered {
        /// The call.
        call: String,
    },
    /// An answer belongs to no request of the preceding model message, or to one that is already answered.
    Unasked {
        /// The call that is answered.
        call: String,
    },
    /// A tool request is not in a message of the model, or an answer not in a message of the tools directly
    /// after its request.
    Misplaced {
        /// The call.
        call: String,
    },
    /// The message has no content, or only reasoning.
    Empty,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {}: ", self.message)?;
        match &self.kind {
            FaultKind::Waiting { call } => write!(f, "the tool request '{call}' waits for its answer"),
            FaultKind::Unanswered { call } => write!(f, "the tool request '{call}' has no answer"),
            FaultKind::Unasked { call } => write!(f, "the answer to '{call}' belongs to no request"),
            FaultKind::Misplaced { call } => write!(f, "the tool call '{call}' is in the wrong place"),
            FaultKind::Empty => f.write_str("it has no content"),
        }
    }
}

/// A valid history in place of a faulty one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Repaired {
    /// The valid history. It shares the messages before the first fault with the faulty one.
    pub history: History,
    /// The parts that were added. Replacements of a missing answer or content have
    /// [`MENDED`](crate::metadata::MENDED) in their metadata.
    pub added: Vec<Part>,
}

/// Returns all faults for which a provider would reject a history, in order.
///
/// ```
/// use everturn_ai::{History, Message, Part, ToolRequest, history};
/// use serde_json::json;
///
/// let call = ToolRequest::new("pay", json!({"to": "ann"})).with_reference("1");
/// let asked = History::from_iter([
///     Message::user("Pay Ann."),
///     Message::model(vec![Part::from(call)]),
///     Message::user("Never mind."),
/// ]);
///
/// let faults = history::checked(&asked);
/// assert_eq!(faults[0].to_string(), "message 1: the tool request 'pay#1' has no answer");
///
/// let repaired = history::repaired(&asked).expect("it has a fault");
/// assert!(history::checked(&repaired.history).is_empty());
/// assert_eq!(repaired.history.len(), 4);
/// ```
pub fn checked(history: &History) -> Vec<Fault> {
    let mut groups = Groups::default();
    history.iter().for_each(|message| groups.take(message));
    groups
        .finish()
        .into_iter()
        .flat_map(|repair| repair.faults)
        .collect()
}

/// Returns a valid history in place of this one; `None` if this one is valid.
///
/// A missing answer is replaced with a note that the conversation continued without it, or with the output of
/// a call that had finished while another one was interrupted. Misplaced answers move to their requests.
/// Answers without a request and messages without content are dropped; an empty user message gets a
/// placeholder.
///
/// The part of a lineage that was found valid is not examined again, so the cost is that of the messages
/// added since.
pub fn repaired(history: &History) -> Option<Repaired> {
    let begin = history.valid_before();
    let mut groups = Groups::beginning_at(begin);
    history.since(begin).for_each(|message| groups.take(message));
    history.found_valid_before(groups.valid_before());
    let repairs = groups.finish();
    let mut repaired = Repaired {
        history: history.truncate_to(repairs.first()?.range.start),
        added: Vec::new(),
    };
    let mut next = repaired.history.len();
    for repair in repairs {
        let unchanged = history.since(next).take(repair.range.start - next).cloned();
        repaired.history.extend(unchanged.chain(repair.replacement));
        repaired.added.extend(repair.added);
        next = repair.range.end;
    }
    repaired.history.extend(history.since(next).cloned());
    Some(repaired)
}

/// Returns the message that answers the requests which are open at the end of a history; appending it closes
/// them.
///
/// Returns `None` if no requests are open there, or if other messages follow them. Then only [`repaired`] can
/// insert the answers.
pub fn closing(history: &History) -> Option<Message> {
    let begin = last_of_model(history)?;
    let group: Vec<&Message> = history.since(begin).collect();
    let mut repair = examine(&group, begin, End::Last)?;
    let is_at_end = repair.range == (history.len()..history.len());
    repair.replacement.pop().filter(|_| is_at_end)
}

/// Returns the index of the message whose interrupts wait for answers: the last one, except for messages of
/// the user that [wait](crate::metadata::WAITING) for the same answers.
pub fn awaiting(history: &History) -> Option<usize> {
    let waiting = history.iter().rev().take_while(|message| waits(message)).count();
    let last = (history.len() - waiting).checked_sub(1)?;
    let is_interrupted =
        |message: &&Message| message.role() == Role::Model && message.interrupts().next().is_some();
    history.get(last).filter(is_interrupted).map(|_| last)
}

fn last_of_model(history: &History) -> Option<usize> {
    let back = history
        .iter()
        .rev()
        .position(|message| message.role() == Role::Model)?;
    Some(history.len() - 1 - back)
}

/// The index up to which a lineage is known to be valid; a group begins there.
#[derive(Default)]
struct ValidBefore(AtomicUsize);

impl History {
    /// Returns the index of a message that begins a group, and before which everything is known to be valid.
    pub(crate) fn valid_before(&self) -> usize {
        let mut position = self;
        loop {
            let known = position.lineage().extension::<ValidBefore>();
            let known = known.0.load(Ordering::Relaxed);
            if known > position.len() {
                // More than this history is known to be valid, so all but its last group is.
                return last_of_model(position).unwrap_or_default();
            }
            match position.lineage().parent() {
                Some(parent) if known == 0 => position = parent,
                _ => return known,
            }
        }
    }

    /// Records that everything before an index is valid, whatever follows.
    pub(crate) fn found_valid_before(&self, index: usize) {
        let known = self.lineage().extension::<ValidBefore>();
        known.0.fetch_max(index, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_valid_history_is_not_examined_again() {
        let turn = |number: usize| [Message::user(format!("{number}")), Message::model("ok")];
        let mut history: History = (0..5_000).flat_map(turn).collect();

        assert!(repaired(&history).is_none());
        assert_eq!(history.valid_before(), 9_999);
        let mut branch = history.truncate_to(6_000);
        assert_eq!(branch.valid_before(), 5_999);
        branch.push(Message::user("another way"));
        assert_eq!(branch.valid_before(), 5_999);
        history.extend(turn(5_000));

        assert_eq!(history.valid_before(), 9_999);
        assert!(repaired(&history).is_none());
        assert_eq!(history.valid_before(), 10_001);
    }
}
