//! The items of an array while it is being written.

use serde_json::Value;

use super::parser::{Parser, Stop};

/// The progress of [`extract_items`] in a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemCursor {
    position: usize,
    place: Place,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    BeforeArray,
    BeforeFirstItem,
    AfterItem,
    Ended,
    Malformed,
}

impl ItemCursor {
    /// Returns whether the array has begun.
    pub fn has_begun(&self) -> bool {
        self.place != Place::BeforeArray
    }

    /// Returns whether the array is malformed, so that no more items follow.
    pub fn is_malformed(&self) -> bool {
        self.place == Place::Malformed
    }
}

/// Returns the complete items of the first array in `text` after the cursor, and moves the cursor past them.
///
/// Called with a growing text and one cursor, it returns every item once. It reads only the text after the
/// cursor.
///
/// ```
/// use everturn_ai::{ItemCursor, extract_items};
/// use serde_json::json;
///
/// let mut cursor = ItemCursor::default();
/// assert_eq!(extract_items(r#"Here: [{"a": 1}, {"a""#, &mut cursor), [json!({ "a": 1 })]);
/// assert_eq!(extract_items(r#"Here: [{"a": 1}, {"a": 2}]"#, &mut cursor), [json!({ "a": 2 })]);
/// ```
pub fn extract_items(text: &str, cursor: &mut ItemCursor) -> Vec<Value> {
    let mut items = Vec::new();
    while let Some(rest) = text.get(cursor.position..) {
        match cursor.place {
            Place::Ended | Place::Malformed => break,
            Place::BeforeArray => {
                let Some(length) = rest.find('[') else {
                    cursor.position = text.len();
                    break;
                };
                cursor.position += length + 1;
                cursor.place = Place::BeforeFirstItem;
            }
            Place::BeforeFirstItem | Place::AfterItem => match next_item(text, cursor) {
                Next::Item(item) => items.push(item),
                Next::Moved => {}
                Next::NotYet => break,
            },
        }
    }
    items
}

enum Next {
    Item(Value),
    Moved,
    NotYet,
}

fn next_item(text: &str, cursor: &mut ItemCursor) -> Next {
    let mut parser = Parser::new(text, cursor.position);
    loop {
        match parser.peek_token() {
            Some(',') => parser.pass(','),
            Some(']') => {
                cursor.place = Place::Ended;
                return Next::Moved;
            }
            Some(_) => break,
            None => return Next::NotYet,
        }
    }
    let item = parser.value();
    match (item, parser.stop()) {
        // A keyword at the very end may be the beginning of a longer word.
        (Some(Value::Bool(_) | Value::Null), None) if parser.rest().is_empty() => Next::NotYet,
        (Some(item), None) => {
            *cursor = ItemCursor {
                // Moved only past complete items, so that an incomplete one is parsed again with more text.
                position: parser.position(),
                place: Place::AfterItem,
            };
            Next::Item(item)
        }
        (_, Some(Stop::Malformed)) => {
            // A bracket in prose was mistaken for the array, which may still follow.
            let prose = cursor.place == Place::BeforeFirstItem;
            let place = if prose {
                Place::BeforeArray
            } else {
                Place::Malformed
            };
            *cursor = ItemCursor {
                position: parser.position(),
                place,
            };
            Next::Moved
        }
        _ => Next::NotYet,
    }
}
