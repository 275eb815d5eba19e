//! The ids that clients gave to messages and runs, found without walking the record.
//!
//! Each lineage keeps the places of the ids in its own messages. Of a record that was searched before only the messages that
//! were added since are read, so a run costs as much as its request, however long the conversation is.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_ai::{History, Message, Role};
use parking_lot::Mutex;
use serde_json::Value;

/// The entry of a message's metadata that holds the client's id of the message, and the run that said it.
pub(crate) const NOTES: &str = "agui";

/// Returns the id that the client gave to a user's message.
pub(crate) fn given_id(message: &Message) -> Option<&str> {
    note(message, "id")
}

fn note<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message.metadata_entry(NOTES)?.get(name).and_then(Value::as_str)
}

/// Returns the place of the latest message of a record to which a client gave this id.
pub(crate) fn place_of(record: &History, id: &str) -> Option<usize> {
    search(record, |ids, len| ids.messages.before(id, len))
}

/// Returns whether a message of the record was said by this run.
pub(crate) fn holds_run(record: &History, run: &str) -> bool {
    search(record, |ids, len| ids.runs.before(run, len)).is_some()
}

/// Looks into the lineages of a record, the newest first.
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
    /// How many of the lineage's own messages were read.
    read: usize,
    messages: Places,
    runs: Places,
}

impl GivenIds {
    /// Reads the messages up to the end of this history that were not read yet.
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

/// The places of each id, in order.
#[derive(Debug, Default)]
struct Places(HashMap<String, Vec<usize>>);

impl Places {
    fn add(&mut self, id: Option<&str>, place: usize) {
        if let Some(id) = id {
            self.0.entry(id.to_owned()).or_default().push(place);
        }
    }

    /// Returns the last place of an id before this one.
    fn before(&self, id: &str, end: usize) -> Option<usize> {
        let places = self.0.get(id)?.iter().rev();
        places.copied().find(|place| *place < end)
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

        // The same message is said again, and another one.
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
