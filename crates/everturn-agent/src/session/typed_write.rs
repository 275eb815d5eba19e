//! Writing a typed custom state into a stored document that may hold more than the type.
//!
//! A document has members that the type does not have when another version of the program wrote it. They
//! survive a write: the change between the typed state before and after it is applied to the stored document.
//! A member that the type reads under another name (`#[serde(alias)]`) stays while its value does; a changed
//! value is stored under the type's own name, and the other name is removed, because a document with both
//! cannot be read.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Map, Value};

use crate::CustomState;
use crate::storage::session_state::decode_custom;

/// Returns whether every member of the stored document is in the document that the type writes.
pub(super) fn is_covered(stored: &Value, after: &Value) -> bool {
    match (stored, after) {
        (Value::Object(stored), Value::Object(after)) => stored
            .iter()
            .all(|(name, stored)| after.get(name).is_some_and(|after| is_covered(stored, after))),
        (Value::Array(stored), Value::Array(after)) => {
            stored.len() <= after.len()
                && stored
                    .iter()
                    .zip(after)
                    .all(|(stored, after)| is_covered(stored, after))
        }
        (Value::Object(stored), _) => stored.is_empty(),
        (Value::Array(stored), _) => stored.is_empty(),
        _ => true,
    }
}

/// Returns the stored document with the change from `before` to `after`, which are typed states as JSON. It
/// reads as `after`.
pub(super) fn rewritten<S: CustomState>(stored: &Value, before: &Value, after: &Value) -> Value {
    let expected = unordered(after);
    let reads_as_after = |document: &Value| {
        let read = decode_custom::<S>(Some(document)).ok();
        read.and_then(|read| serde_json::to_value(read).ok())
            .is_some_and(|read| unordered(&read) == expected)
    };
    let merged = merged(stored, before, after);
    if reads_as_after(&merged) {
        return merged;
    }
    // The type reads a member of the document under another name than its own. All members get their own
    // names, and what is left of the document stays unless the type reads it.
    let mut extras = Vec::new();
    collect_extras(&merged, after, &mut Vec::new(), &mut extras);
    let mut document = after.clone();
    for extra in extras {
        let mut with_extra = document.clone();
        extra.add_to(&mut with_extra);
        if reads_as_after(&with_extra) {
            document = with_extra;
        }
    }
    document
}

fn merged(stored: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return stored.clone();
    }
    match (stored, before, after) {
        (Value::Object(stored), Value::Object(before), Value::Object(after)) => {
            Value::Object(merged_members(stored, before, after))
        }
        (Value::Array(stored), Value::Array(before), Value::Array(after)) if stored.len() == before.len() => {
            let sources = sources(before, after);
            let elements = after.iter().zip(sources).map(|(after, source)| {
                source.map_or_else(
                    || after.clone(),
                    |source| merged(&stored[source], &before[source], after),
                )
            });
            elements.collect()
        }
        _ => after.clone(),
    }
}

fn merged_members(
    stored: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut members = stored.clone();
    // `shift_remove` keeps the order of the other members.
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        members.shift_remove(name);
    }
    for (name, after) in after {
        let before = before.get(name);
        // A member that did not change is not written: if it is not stored, it is a default or stored under
        // another name.
        if before == Some(after) {
            continue;
        }
        let value = match (stored.get(name), before) {
            (Some(stored), Some(before)) => merged(stored, before, after),
            _ => after.clone(),
        };
        members.insert(name.clone(), value);
    }
    members
}

/// Returns for each element of a changed list the index that it had before, `None` for a new one.
///
/// Equal elements are the same, wherever they are now. Of the others, those with the same [`identity`] are,
/// and those without one in the same place of a list that is as long as before.
fn sources(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let mut equal: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (index, element) in before.iter().enumerate() {
        equal
            .entry(unordered(element).to_string())
            .or_default()
            .push_back(index);
    }
    let mut sources: Vec<Option<usize>> = after
        .iter()
        .map(|element| equal.get_mut(&unordered(element).to_string())?.pop_front())
        .collect();
    let mut is_free = vec![true; before.len()];
    for source in sources.iter().flatten() {
        is_free[*source] = false;
    }
    for (index, source) in sources
        .iter_mut()
        .enumerate()
        .filter(|(_, source)| source.is_none())
    {
        let is_same = |candidate: &usize| {
            let identities = (identity(&before[*candidate]), identity(&after[index]));
            is_free[*candidate]
                && match identities {
                    (None, None) => *candidate == index && before.len() == after.len(),
                    (before, after) => before == after,
                }
        };
        *source = (0..before.len()).find(is_same);
        if let Some(source) = *source {
            is_free[source] = false;
        }
    }
    sources
}

/// Returns the member that identifies an element of a list.
fn identity(element: &Value) -> Option<&Value> {
    ["id", "key", "name"].iter().find_map(|name| element.get(name))
}

/// A member of a document that the typed document lacks.
struct Extra<'a> {
    /// The way to its object.
    parents: Vec<Step<'a>>,
    name: &'a str,
    value: &'a Value,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Member(&'a str),
    Element(usize),
}

impl Extra<'_> {
    fn add_to(&self, document: &mut Value) {
        let object = self.parents.iter().try_fold(document, |node, step| match step {
            Step::Member(name) => node.get_mut(*name),
            Step::Element(index) => node.get_mut(*index),
        });
        if let Some(Value::Object(members)) = object {
            members.insert(self.name.to_owned(), self.value.clone());
        }
    }
}

fn collect_extras<'a>(
    merged: &'a Value,
    after: &Value,
    parents: &mut Vec<Step<'a>>,
    extras: &mut Vec<Extra<'a>>,
) {
    match (merged, after) {
        (Value::Object(merged), Value::Object(after)) => {
            for (name, value) in merged {
                let Some(after) = after.get(name) else {
                    extras.push(Extra {
                        parents: parents.clone(),
                        name,
                        value,
                    });
                    continue;
                };
                parents.push(Step::Member(name));
                collect_extras(value, after, parents, extras);
                parents.pop();
            }
        }
        (Value::Array(merged), Value::Array(after)) => {
            for (index, (merged, after)) in merged.iter().zip(after).enumerate() {
                parents.push(Step::Element(index));
                collect_extras(merged, after, parents, extras);
                parents.pop();
            }
        }
        _ => {}
    }
}

/// Returns the document with its members and lists sorted: maps and sets have no order, so that one state may
/// be written in several.
fn unordered(document: &Value) -> Value {
    match document {
        Value::Object(members) => {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            let sorted = sorted.into_iter();
            sorted
                .map(|(name, member)| (name.clone(), unordered(member)))
                .collect()
        }
        Value::Array(elements) => {
            let mut elements: Vec<Value> = elements.iter().map(unordered).collect();
            elements.sort_by_cached_key(Value::to_string);
            elements.into()
        }
        other => other.clone(),
    }
}
