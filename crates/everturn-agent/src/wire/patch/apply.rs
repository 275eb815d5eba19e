//! Applying a patch to a document.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{JsonPatch, PatchError, PatchOperation, pointer};

/// How deep a patch may make a document. JSON parsers stop earlier (`serde_json` at 128), so no document that
/// travelled is near it; without a bound, one long path would build a value whose drop overflows the stack.
const MAX_DEPTH: usize = 512;

/// How much the `copy` operations of one patch may add. Without a bound, a document copied into itself
/// doubles with every operation.
const MAX_COPIED_BYTES: usize = 64 * 1024 * 1024;

impl JsonPatch {
    /// Returns the document that results from applying every operation to `document`, which is not changed.
    ///
    /// # Errors
    ///
    /// A path that is not a JSON pointer, a `test` that does not hold, or an operation beyond the bounds on
    /// depth and copying. Every other operation that cannot be applied is skipped.
    pub fn apply(&self, document: &Value) -> Result<Value, PatchError> {
        let mut target = Target {
            document: document.clone(),
            copied: 0,
        };
        for operation in &self.0 {
            target.apply(operation)?;
        }
        Ok(target.document)
    }

    /// Like [`JsonPatch::apply`], without copying anything if the patch replaces the whole document.
    pub(crate) fn apply_shared(&self, document: Option<&Arc<Value>>) -> Result<Arc<Value>, PatchError> {
        match self.0.as_slice() {
            [PatchOperation::Replace { path, value }] if path.is_empty() && fits_within(value, MAX_DEPTH) => {
                Ok(Arc::clone(value))
            }
            _ => {
                let document = document.map_or(&Value::Null, |document| document);
                self.apply(document).map(Arc::new)
            }
        }
    }
}

struct Target {
    document: Value,
    copied: usize,
}

/// The treatment of an array element that is already at the index being set.
#[derive(Clone, Copy)]
enum Placement {
    Insert,
    Overwrite,
}

impl Target {
    fn apply(&mut self, operation: &PatchOperation) -> Result<(), PatchError> {
        match operation {
            PatchOperation::Add { path, value } => self.set(path, value.clone(), Placement::Insert),
            PatchOperation::Replace { path, value } => {
                self.set(path, Value::clone(value), Placement::Overwrite)
            }
            PatchOperation::Remove { path } => {
                self.take(path)?;
                Ok(())
            }
            PatchOperation::Move { from, path } => {
                let value = self.take(from)?;
                self.set(path, value, Placement::Insert)
            }
            PatchOperation::Copy { from, path } => {
                let value = self.copy_of(from)?;
                self.set(path, value, Placement::Insert)
            }
            PatchOperation::Test { path, value } => {
                if same_value(self.read(path)?, value) {
                    Ok(())
                } else {
                    Err(PatchError::TestFailed(path.clone()))
                }
            }
        }
    }

    fn read(&self, path: &str) -> Result<&Value, PatchError> {
        let mut node = &self.document;
        for token in pointer::tokens(path)? {
            let child = match node {
                Value::Object(members) => members.get(token.as_ref()),
                Value::Array(elements) => pointer::index(&token).and_then(|index| elements.get(index)),
                _ => None,
            };
            let Some(child) = child else {
                return Ok(&Value::Null);
            };
            node = child;
        }
        Ok(node)
    }

    fn copy_of(&mut self, path: &str) -> Result<Value, PatchError> {
        let source = self.read(path)?;
        let allowance = MAX_COPIED_BYTES - self.copied;
        // Measured before the copy is made, because a hostile patch doubles the document with each copy.
        let cost = cost_within(source, allowance).ok_or(PatchError::TooLarge)?;
        let copy = source.clone();
        self.copied += cost;
        Ok(copy)
    }

    fn take(&mut self, path: &str) -> Result<Value, PatchError> {
        let tokens = pointer::tokens(path)?;
        let Some((last, parents)) = tokens.split_last() else {
            return Ok(self.document.take());
        };

        let mut node = &mut self.document;
        for token in parents {
            let child = match node {
                Value::Object(members) => members.get_mut(token.as_ref()),
                Value::Array(elements) => pointer::index(token).and_then(|index| elements.get_mut(index)),
                _ => None,
            };
            let Some(child) = child else {
                return Ok(Value::Null);
            };
            node = child;
        }

        let taken = match node {
            // `shift_remove` keeps the order of the other members.
            Value::Object(members) => members.shift_remove(last.as_ref()),
            Value::Array(elements) => pointer::index(last)
                .filter(|index| *index < elements.len())
                .map(|index| elements.remove(index)),
            _ => None,
        };
        Ok(taken.unwrap_or_default())
    }

    fn set(&mut self, path: &str, value: Value, placement: Placement) -> Result<(), PatchError> {
        let tokens = pointer::tokens(path)?;
        // Before anything is built: dropping a value that is too deep would overflow the stack.
        if tokens.len() > MAX_DEPTH || !fits_within(&value, MAX_DEPTH - tokens.len()) {
            return Err(PatchError::TooDeep(path.to_owned()));
        }
        let Some((last, parents)) = tokens.split_last() else {
            self.document = value;
            return Ok(());
        };

        if let Some(container) = container(&mut self.document, parents) {
            place(container, last, value, placement);
        }
        Ok(())
    }
}

/// Descends to the object or array that `path` names, creating objects on the way; `None` where an array has
/// no such element.
fn container<'a>(document: &'a mut Value, path: &[Cow<'_, str>]) -> Option<&'a mut Value> {
    let mut node = document;
    for token in path {
        node = match or_object(node) {
            Value::Array(elements) => elements.get_mut(pointer::index(token)?)?,
            Value::Object(members) => members.entry(token.as_ref()).or_insert(Value::Null),
            _ => return None,
        };
    }
    Some(or_object(node))
}

/// Makes a null or primitive into an empty object, so that members can be set on it.
fn or_object(node: &mut Value) -> &mut Value {
    if !node.is_object() && !node.is_array() {
        *node = Value::Object(Map::new());
    }
    node
}

fn place(container: &mut Value, token: &str, value: Value, placement: Placement) {
    match container {
        Value::Object(members) => {
            members.insert(token.to_owned(), value);
        }
        Value::Array(elements) if token == "-" => elements.push(value),
        Value::Array(elements) => match (pointer::index(token), placement) {
            (Some(index), Placement::Insert) if index <= elements.len() => elements.insert(index, value),
            (Some(index), Placement::Overwrite) if index < elements.len() => elements[index] = value,
            _ => {}
        },
        _ => {}
    }
}

/// Returns whether the value nests at most `levels` deep; a primitive does not nest.
fn fits_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(members) if !members.is_empty() => {
            levels > 0 && members.values().all(|member| fits_within(member, levels - 1))
        }
        Value::Array(elements) if !elements.is_empty() => {
            levels > 0 && elements.iter().all(|element| fits_within(element, levels - 1))
        }
        _ => true,
    }
}

/// Returns about how many bytes a copy of the value takes, or `None` if more than `allowance`.
fn cost_within(value: &Value, allowance: usize) -> Option<usize> {
    let mut cost = size_of::<Value>();
    match value {
        Value::String(text) => cost += text.len(),
        Value::Array(elements) => {
            for element in elements {
                cost += cost_within(element, allowance.checked_sub(cost)?)?;
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                cost += name.len();
                cost += cost_within(member, allowance.checked_sub(cost)?)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    (cost <= allowance).then_some(cost)
}

/// Compares JSON values: like `==`, but numbers are equal by value (`1` and `1.0`), as the RFC requires for
/// `test`.
pub(crate) fn same_value(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || ((left.is_f64() || right.is_f64()) && left.as_f64() == right.as_f64())
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same_value(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(name, left)| right.get(name).is_some_and(|right| same_value(left, right)))
        }
        _ => left == right,
    }
}
