//! Ids of messages, calls and runs, assigned by clients or by the server.
//!
//! An id from the server contains the name of its turn and the [position](MessagePosition) in the session.
//!
//! Client ids are found without reading the whole history: each lineage stores the positions of the ids in
//! its own messages, and a search reads only messages that were added since the last one. The cost of a run
//! therefore does not depend on the length of the conversation.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_ai::{History, Message, Role};
use everturn_server::MessagePosition;
use parking_lot::Mutex;
use serde_json::Value;

/// Returns the turn and the position that an id names; `None` for an id that is not from the server.
pub(crate) fn parse(id: &str) -> Option<(&str, MessagePosition)> {
    let (kind, turn, position) = MessagePosition::parse(id)?;
    matches!(kind, "msg" | "rsn" | "call").then_some((turn, position))
}

/// The entry of a message's metadata that holds its client id and the run that sent it.
pub(crate) const NOTES: &str = "agui";

/// Returns the client id of a user's message.
pub(crate) fn given_id(message: &Message) -> Option<&str> {
    note(message, "id")
}

fn note<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message.metadata_entry(NOTES)?.get(name).and_then(Value::as_str)
}

/// Returns the position of the latest message with a client id.
pub(crate) fn place_of(record: &History, id: &str) -> Option<usize> {
    search(record, |ids, len| ids.messages.before(id, len))
}

/// Returns whether this run sent a message of the history.
pub(crate) fn holds_run(record: &History, run: &str) -> bool {
    search(record, |ids, len| ids.runs.before(run, len)).is_some()
}

/// Searches the lineages of a history, the newest first.
fn search(record: &History, find: impl Fn(&GivenIds, usize) -> Option<usize>) -> Option<usize> {
    let mut part = Some(record);
    while let Some(history) = part {
        let ids: Arc<Mutex<GivenIds>> = history.lineage().extension();
        let mut ids = ids.lock();
        ids.read(history);
        if let Some(place) = find(&ids, history.len()) {
            return Some(place);
        }
        drop(ids);
        part = history.lineage().parent();
    }
    None
}

/// The ids in the messages of one lineage.
#[derive(Debug, Default)]
struct GivenIds {
    /// The number of the lineage's own messages that were read.
    read: usize,
    messages: Positions,
    runs: Positions,
}

impl GivenIds {
    /// Reads the unread messages up to the end of this history.
    fn read(&mut self, history: &History) {
        let from = history.lineage().base() + self.read;
        for (offset, message) in history.since(from).enumerate() {
            self.read += 1;
            if matches!(message.role(), Role::User | Role::Tool) {
                self.messages.add(given_id(message), from + offset);
                self.runs.add(note(message, "runId"), from + offset);
            }
        }
    }
}

/// The positions of each id, in order.
#[derive(Debug, Default)]
struct Positions(HashMap<String, Vec<usize>>);

impl Positions {
    fn add(&mut self, id: Option<&str>, place: usize) {
        if let Some(id) = id {
            self.0.entry(id.to_owned()).or_default().push(place);
        }
    }

    /// Returns the last position of an id before `end`.
    fn before(&self, id: &str, end: usize) -> Option<usize> {
        let positions = self.0.get(id)?.iter().rev();
        positions.copied().find(|place| *place < end)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn turn(number: usize) -> [Message; 2] {
        let notes = json!({ "id": format!("u{number}"), "runId": format!("r{number}") });
        let said = Message::user(format!("question {number}")).with_metadata_entry(NOTES, notes);
        [said, Message::model(format!("answer {number}"))]
    }

    fn read_of(record: &History) -> usize {
        let ids: Arc<Mutex<GivenIds>> = record.lineage().extension();
        let ids = ids.lock();
        ids.read
    }

    #[test]
    fn only_ids_of_the_server_name_a_position() {
        let position = MessagePosition::new(12, 3);
        for kind in ["msg", "call", "rsn"] {
            let id = position.id(kind, "01_99");
            assert_eq!(parse(&id), Some(("01_99", position)), "{id}");
        }
        for other in ["", "msg_1", "user_0199_1"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_long_record_is_not_read_again() {
        let mut record: History = (0..5_000).flat_map(turn).collect();

        assert_eq!(place_of(&record, "u4999"), Some(9_998));
        assert_eq!(place_of(&record, "unknown"), None);
        assert_eq!(read_of(&record), 10_000);
        record.extend(turn(5_000));
        assert!(holds_run(&record, "r5000") && holds_run(&record, "r0") && !holds_run(&record, "r"));
        assert_eq!(read_of(&record), 10_002);
    }

    #[test]
    fn a_branch_is_read_alone_and_sees_nothing_of_the_other() {
        let record: History = (0..1_000).flat_map(turn).collect();
        assert_eq!(place_of(&record, "u0"), Some(0));
        let mut branch = record.truncate_to(500);
        assert_eq!(place_of(&branch, "u250"), None);

        // The same message is sent again, and another one.
        branch.extend(turn(10));
        branch.extend(turn(2_000));

        assert_eq!(place_of(&branch, "u2000"), Some(502));
        assert_eq!(place_of(&branch, "u10"), Some(500));
        assert_eq!(place_of(&branch, "u11"), Some(22));
        assert_eq!(place_of(&branch, "u600"), None);
        assert_eq!(place_of(&record, "u10"), Some(20));
        assert_eq!(read_of(&branch), 4);
    }
}
