//! Computing a patch from two documents.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::{JsonPatch, PatchOperation, pointer};

impl JsonPatch {
    /// Returns the changes that turn `old` into `new`; none if they are equal.
    ///
    /// Arrays are compared index by index: no element is recognised as moved, so an insertion at the head
    /// rewrites all elements.
    pub fn diff(old: &Value, new: &Value) -> Self {
        let mut diff = Diff {
            path: String::new(),
            operations: Vec::new(),
        };
        diff.values(old, new);
        Self(diff.operations)
    }
}

struct Diff {
    /// The pointer to the values being compared: one buffer, extended on the way down and cut back on the way
    /// up.
    path: String,
    operations: Vec<PatchOperation>,
}

impl Diff {
    fn values(&mut self, old: &Value, new: &Value) {
        if old != new {
            self.differing(old, new);
        }
    }

    fn differing(&mut self, old: &Value, new: &Value) {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => self.objects(old, new),
            (Value::Array(old), Value::Array(new)) => self.arrays(old, new),
            _ => self.operations.push(PatchOperation::Replace {
                path: self.path.clone(),
                value: new.clone().into(),
            }),
        }
    }

    fn objects(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        let members: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for member in members {
            let parent = self.path.len();
            pointer::push(&mut self.path, member);
            match (old.get(member), new.get(member)) {
                (Some(old), Some(new)) => self.values(old, new),
                (None, Some(new)) => self.add(new),
                (_, None) => self.remove(),
            }
            self.path.truncate(parent);
        }
    }

    fn arrays(&mut self, old: &[Value], new: &[Value]) {
        for (index, (old, new)) in old.iter().zip(new).enumerate() {
            // Compared before the path is written, which costs more for most elements.
            if old != new {
                self.at(index, |diff| diff.differing(old, new));
            }
        }
        for added in new.iter().skip(old.len()) {
            self.at("-", |diff| diff.add(added));
        }
        // Removed from the tail, so that the remaining indices stay valid.
        for index in (new.len()..old.len()).rev() {
            self.at(index, Self::remove);
        }
    }

    fn at(&mut self, token: impl std::fmt::Display, visit: impl FnOnce(&mut Self)) {
        let parent = self.path.len();
        write!(self.path, "/{token}").expect("writing to a string cannot fail");
        visit(self);
        self.path.truncate(parent);
    }

    fn add(&mut self, value: &Value) {
        self.operations.push(PatchOperation::Add {
            path: self.path.clone(),
            value: value.clone(),
        });
    }

    fn remove(&mut self) {
        self.operations.push(PatchOperation::Remove {
            path: self.path.clone(),
        });
    }
}
