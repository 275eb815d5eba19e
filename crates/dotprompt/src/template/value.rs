//! Values while rendering: borrowed from the data wherever possible.

use std::borrow::Cow;
use std::rc::Rc;

use serde_json::{Map, Value};

/// A value, or a missing value, which JavaScript distinguishes from null.
#[derive(Clone)]
pub(super) enum Val<'r> {
    Missing,
    Ref(&'r Value),
    Owned(Rc<Value>),
    /// An object with some keys on top, as a partial with `key=value` arguments sees it.
    Layered(Rc<Layered<'r>>),
}

pub(super) struct Layered<'r> {
    base: Val<'r>,
    over: Vec<(&'r str, Val<'r>)>,
    keys: usize,
}

impl Val<'_> {
    pub(super) fn from_value(value: impl Into<Value>) -> Self {
        Self::Owned(Rc::new(value.into()))
    }

    pub(super) fn from_bool(value: bool) -> Self {
        Self::Ref(if value {
            &Value::Bool(true)
        } else {
            &Value::Bool(false)
        })
    }

    /// Returns the value as plain JSON, unless it is missing or layered.
    pub(super) fn as_value(&self) -> Option<&Value> {
        match self {
            Self::Ref(value) => Some(value),
            Self::Owned(value) => Some(value),
            Self::Missing | Self::Layered(_) => None,
        }
    }

    /// Returns the value as JSON; a missing value is null.
    pub(super) fn to_value(&self) -> Cow<'_, Value> {
        match self {
            Self::Missing => Cow::Owned(Value::Null),
            Self::Ref(value) => Cow::Borrowed(value),
            Self::Owned(value) => Cow::Borrowed(value),
            Self::Layered(layered) => Cow::Owned(Value::Object(layered.flatten())),
        }
    }

    /// Returns the number of keys in all layers; looking up a key takes time in proportion to it.
    pub(super) fn layered_keys(&self) -> usize {
        match self {
            Self::Layered(layered) => layered.keys,
            Self::Missing | Self::Ref(_) | Self::Owned(_) => 0,
        }
    }

    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }

    /// Returns whether both are the identical value, not only equal.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Missing, Self::Missing) => true,
            (Self::Ref(a), Self::Ref(b)) => std::ptr::eq(*a, *b),
            (Self::Owned(a), Self::Owned(b)) => Rc::ptr_eq(a, b),
            (Self::Layered(a), Self::Layered(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Returns the value at a path from here.
    pub(super) fn walk(&self, keys: &[Box<str>]) -> Self {
        let mut value = self.clone();
        for (index, key) in keys.iter().enumerate() {
            if let Self::Owned(owned) = &value {
                // Only the value at the end of the path is copied, not those on the way.
                return walk_owned(owned, &keys[index..]);
            }
            value = value.get(key);
            if value.is_missing() {
                break;
            }
        }
        value
    }

    /// Returns a property of an object, an item of a list, or the `length` of a list or a text.
    pub(super) fn get(&self, key: &str) -> Self {
        match self {
            Self::Missing => Self::Missing,
            Self::Ref(value) => match child(value, key) {
                Some(found) => Self::Ref(found),
                None => length(value, key),
            },
            Self::Owned(value) => match child(value, key) {
                Some(found) => Self::from_value(found.clone()),
                None => length(value, key),
            },
            Self::Layered(layered) => match layered.over.iter().rev().find(|(name, _)| *name == key) {
                Some((_, found)) => found.clone(),
                None if layered.base.is_object() => layered.base.get(key),
                None => Self::Missing,
            },
        }
    }

    pub(super) fn is_object(&self) -> bool {
        match self {
            Self::Layered(_) => true,
            other => other.as_value().is_some_and(Value::is_object),
        }
    }

    /// Returns whether `{{#if}}` takes the value as true: all values except missing, null, false, an empty
    /// text, an empty list, and zero unless `include_zero` is set.
    pub(super) fn is_truthy(&self, include_zero: bool) -> bool {
        match self.as_value() {
            None => matches!(self, Self::Layered(_)),
            Some(Value::Number(number)) => include_zero || number.as_f64().is_none_or(|number| number != 0.0),
            Some(_) => !self.is_empty(),
        }
    }

    /// Returns whether `{{#with}}` takes the value as empty; zero is not empty.
    pub(super) fn is_empty(&self) -> bool {
        match self.as_value() {
            None => self.is_missing(),
            Some(Value::Null | Value::Bool(false)) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(_) => false,
        }
    }

    /// Compares as JavaScript's `===` does: scalars by type and value, lists and objects by identity.
    pub(super) fn strictly_equals(&self, other: &Self) -> bool {
        match (self.as_value(), other.as_value()) {
            (Some(Value::Number(a)), Some(Value::Number(b))) => a == b || a.as_f64() == b.as_f64(),
            (Some(a), Some(b)) if is_scalar(a) || is_scalar(b) => a == b,
            _ => self.is_same(other),
        }
    }
}

impl<'r> Layered<'r> {
    pub(super) fn new(base: Val<'r>, over: Vec<(&'r str, Val<'r>)>) -> Self {
        let keys = over.len() + base.layered_keys();
        Self { base, over, keys }
    }

    /// Returns the base's keys in their order, then the keys that only the top layer has.
    pub(super) fn entries(&self) -> Vec<(Cow<'r, str>, Val<'r>)> {
        let mut entries: Vec<(Cow<'r, str>, Val<'r>)> = match &self.base {
            Val::Layered(base) => base.entries(),
            base => entries_of(base),
        };
        for (key, value) in &self.over {
            match entries.iter_mut().find(|(name, _)| name == key) {
                Some((_, slot)) => *slot = value.clone(),
                None => entries.push((Cow::Borrowed(key), value.clone())),
            }
        }
        entries
    }

    fn flatten(&self) -> Map<String, Value> {
        let entries = self
            .entries()
            .into_iter()
            .filter(|(_, value)| !value.is_missing());
        entries
            .map(|(key, value)| (key.into_owned(), value.to_value().into_owned()))
            .collect()
    }
}

/// Returns the entries of an object; other values have none.
pub(super) fn entries_of<'r>(value: &Val<'r>) -> Vec<(Cow<'r, str>, Val<'r>)> {
    match value {
        Val::Ref(Value::Object(map)) => map
            .iter()
            .map(|(key, value)| (Cow::Borrowed(key.as_str()), Val::Ref(value)))
            .collect(),
        Val::Owned(value) => match &**value {
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| (Cow::Owned(key.clone()), Val::from_value(value.clone())))
                .collect(),
            _ => Vec::new(),
        },
        Val::Layered(layered) => layered.entries(),
        Val::Ref(_) | Val::Missing => Vec::new(),
    }
}

/// The largest number of keys that are compared one by one, which is faster than hashing for few keys.
const SMALL: usize = 8;

pub(super) fn property<'v>(map: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    if map.len() > SMALL {
        return map.get(key);
    }
    map.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn child<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    match value {
        Value::Object(map) => property(map, key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    }
}

fn walk_owned<'r>(value: &Value, keys: &[Box<str>]) -> Val<'r> {
    let Some((last, before)) = keys.split_last() else {
        return Val::from_value(value.clone());
    };
    let inner = before.iter().try_fold(value, |value, key| child(value, key));
    inner.map_or(Val::Missing, |inner| match child(inner, last) {
        Some(found) => Val::from_value(found.clone()),
        None => length(inner, last),
    })
}

fn length<'r>(value: &Value, key: &str) -> Val<'r> {
    match value {
        Value::Array(items) if key == "length" => Val::from_value(items.len()),
        Value::String(text) if key == "length" => Val::from_value(text.encode_utf16().count()),
        _ => Val::Missing,
    }
}

fn is_scalar(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}
