//! Reading JSON from models' text.
//!
//! Models wrap JSON in prose and code fences, write it as JavaScript or Python would, and stop in the middle
//! of it. These functions find the value, read it leniently and complete truncated values. They never panic,
//! take time linear in the text, and stop at excessive nesting.

mod extract;
mod items;
mod parser;

pub use self::{
    extract::{complete_json, extract_json, parse_json},
    items::{ItemCursor, extract_items},
};

/// A JSON object, in the order in which it was written.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;
