//! The entry points of the fuzz targets and the property tests: texts of models, JSON of peers and addresses
//! of resources, all of them arbitrary. Nothing may panic, and what was understood is understood again in our
//! own words.

#![allow(dead_code, reason = "each user drives its part of this")]

use std::fmt::Debug;

use everturn_ai::{
    Document, GenerateActionOptions, ItemCursor, Message, ModelRequest, ModelResponse, ModelResponseChunk,
    PartKind, Resource, complete_json, extract_items, extract_json, parse_json,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a text that a model wrote, at once and as it grows by pieces that end at `cuts`.
pub(crate) fn read_json(text: &str, cuts: &[usize]) {
    let found = [extract_json(text), complete_json(text), parse_json(text)];
    for value in found.iter().flatten() {
        assert!(
            serde_json::from_str::<Value>(&value.to_string()).is_ok(),
            "{value} cannot be read again"
        );
    }
    if let Ok(strict) = serde_json::from_str::<Value>(text) {
        assert_eq!(found[2].as_ref(), Some(&strict), "JSON is read as what it is");
        assert_eq!(found[1].as_ref(), Some(&strict), "whole JSON is not completed");
    }

    let whole = extract_items(text, &mut ItemCursor::default());
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    cuts.push(text.len());
    cuts.sort_unstable();
    let (mut cursor, mut items) = (ItemCursor::default(), Vec::new());
    for cut in cuts.into_iter().filter(|cut| text.is_char_boundary(*cut)) {
        items.extend(extract_items(&text[..cut], &mut cursor));
    }
    assert_eq!(items, whole, "items of a growing text are those of the whole");
}

/// Reads what peers send as messages and what they are part of.
pub(crate) fn read_message(bytes: &[u8]) {
    if let Some(message) = survives::<Message>(bytes) {
        let _ = message.text();
        for part in message.content() {
            if let PartKind::Media(media) = part.kind() {
                let _ = media.mime_type();
            }
        }
    }
    survives::<ModelResponseChunk>(bytes);
    survives::<ModelRequest>(bytes);
    survives::<ModelResponse>(bytes);
    survives::<Document>(bytes);
    survives::<GenerateActionOptions>(bytes);
}

/// Looks for an address among those of a template.
pub(crate) fn match_resource(template: &str, uri: &str) {
    let resource = Resource::template(template, |_| async { Ok(everturn_ai::Part::text("")) });
    let Ok(resource) = resource else {
        return;
    };
    for value in resource
        .matches(uri)
        .into_iter()
        .flatten()
        .map(|(_, value)| value)
    {
        assert!(!value.is_empty(), "a variable is not empty");
    }
}

/// Reads a value, and reads what it is written as: nothing is lost on the second way.
fn survives<T: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let written = serde_json::to_value(&value).expect("what was read can be written");
    let again: T = serde_json::from_value(written.clone()).expect("what was written can be read");
    let rewritten = serde_json::to_value(&again).expect("what was read can be written");
    assert_eq!(rewritten, written);
    Some(value)
}
