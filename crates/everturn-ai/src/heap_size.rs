//! The heap size of values, for caches with a memory limit.
//!
//! The estimates follow the allocator and the collections: an allocation has a header and is rounded up, and
//! an object is a hash table and a list of entries. A test compares them with the memory of a process.

use std::mem::size_of;

use serde_json::Value;

use crate::{JsonObject, Part, PartKind};

/// The header of an allocation, and the multiple to which its size is rounded up.
const ALLOCATION: usize = 16;

/// The memory of an object's entry in addition to its name and value: a hash, and a slot in a table that is
/// at most half full.
const ENTRY: usize = size_of::<u64>() + 3 * size_of::<usize>();

/// Returns the size of an allocation with its overhead, in bytes.
pub(crate) fn allocated(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    (bytes + ALLOCATION / 2)
        .next_multiple_of(ALLOCATION)
        .max(2 * ALLOCATION)
}

fn of_text(text: &String) -> usize {
    allocated(text.capacity())
}

fn of_optional_text(text: Option<&String>) -> usize {
    text.map_or(0, of_text)
}

fn of_object(object: &JsonObject) -> usize {
    if object.is_empty() {
        return 0;
    }
    // Entries and slots are allocated in powers of two.
    let room = object.len().next_power_of_two().max(4);
    let entries = allocated(room * (ENTRY + size_of::<String>() + size_of::<Value>()));
    let inside = object
        .iter()
        .map(|(name, value)| of_text(name) + json_heap_size(value));
    entries + ALLOCATION + inside.sum::<usize>()
}

pub(crate) fn of_boxed_object(object: Option<&JsonObject>) -> usize {
    object.map_or(0, |object| allocated(size_of::<JsonObject>()) + of_object(object))
}

/// Returns the approximate heap size of a JSON value in bytes, without the size of the value itself.
pub fn json_heap_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => of_text(text),
        Value::Array(items) => {
            allocated(items.capacity() * size_of::<Value>()) + items.iter().map(json_heap_size).sum::<usize>()
        }
        Value::Object(object) => of_object(object),
    }
}

impl Part {
    /// Returns the approximate heap size of the part in bytes, without the size of the part itself.
    pub fn heap_size(&self) -> usize {
        kind_heap_size(self.kind()) + of_boxed_object(self.metadata()) + of_boxed_object(self.extra())
    }
}

/// Returns the approximate heap size of a part's content in bytes.
fn kind_heap_size(kind: &PartKind) -> usize {
    match kind {
        PartKind::Text(text) | PartKind::Reasoning(text) => of_text(text),
        PartKind::Media(media) => {
            allocated(size_of_val(&**media))
                + of_text(&media.url)
                + of_optional_text(media.content_type.as_ref())
                + of_object(&media.extra)
        }
        PartKind::ToolRequest(request) => {
            allocated(size_of_val(&**request))
                + of_text(&request.name)
                + of_optional_text(request.reference.as_ref())
                + request.input.as_ref().map_or(0, json_heap_size)
                + of_object(&request.extra)
        }
        PartKind::ToolResponse(response) => {
            allocated(size_of_val(&**response))
                + of_text(&response.name)
                + of_optional_text(response.reference.as_ref())
                + response.output.as_ref().map_or(0, json_heap_size)
                + parts_heap_size(&response.content)
                + of_object(&response.extra)
        }
        PartKind::Data(value) => allocated(size_of::<Value>()) + json_heap_size(value),
        PartKind::Custom(object) | PartKind::Unknown(object) => of_boxed_object(Some(object)),
        PartKind::Resource(link) => {
            allocated(size_of_val(&**link)) + of_text(&link.uri) + of_object(&link.extra)
        }
    }
}

/// Returns the approximate heap size of a list of parts in bytes.
pub fn parts_heap_size(parts: &[Part]) -> usize {
    allocated(size_of_val(parts)) + parts.iter().map(Part::heap_size).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Message;

    #[test]
    fn small_parts_hold_more_than_their_text() {
        let small = Message::user("a");
        let large = Message::user("a".repeat(100_000));

        assert!(small.heap_size() > 150, "{}", small.heap_size());
        assert!(large.heap_size() > 100_000);
        assert!(large.heap_size() < 101_000, "{}", large.heap_size());
    }

    #[test]
    fn a_message_that_was_read_holds_as_much_as_one_that_was_made() {
        let made = Message::user("a");
        let text = serde_json::to_string(&made).unwrap();
        let read: Message = serde_json::from_str(&text).unwrap();
        let parts = crate::part::parts("content", json!([{"text": "a"}])).unwrap();

        assert_eq!(read.heap_size(), made.heap_size());
        assert_eq!(parts.capacity(), 1, "no room is held that is not counted");
    }

    #[test]
    fn every_entry_of_an_object_counts() {
        let one = json_heap_size(&json!({"a": 1}));
        let many = json_heap_size(&json!({"a": 1, "b": {"c": [1, 2, 3]}, "d": "text", "e": null, "f": true}));

        assert!(one > 300, "{one}");
        assert!(many > 2 * one, "{many}");
    }
}
