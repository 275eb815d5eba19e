//! The `@` variables of a rendering.

use std::cell::OnceCell;

use serde_json::{Map, Value};

use super::value::{Val, property};
use crate::data::{Data, History};
use crate::error::Error;

/// The `@` variables of a rendering and the data behind them.
pub(crate) struct Ambient<'r> {
    data: &'r Data<'r>,
    /// The input: `@root`.
    pub(super) root: &'r Value,
    describe_prompt: &'r dyn Fn() -> Result<Value, Error>,
    prompt: OnceCell<Value>,
    messages: OnceCell<Value>,
    docs: OnceCell<Value>,
    metadata: OnceCell<Value>,
}

impl<'r> Ambient<'r> {
    /// `describe_prompt` returns the value of `@metadata.prompt` and is called only if a template reads it.
    pub(crate) fn new(
        data: &'r Data<'r>,
        root: &'r Value,
        describe_prompt: &'r dyn Fn() -> Result<Value, Error>,
    ) -> Self {
        Self {
            data,
            root,
            describe_prompt,
            prompt: OnceCell::new(),
            messages: OnceCell::new(),
            docs: OnceCell::new(),
            metadata: OnceCell::new(),
        }
    }

    /// Returns a variable that the caller defines; it overrides the built-in `@root` and `@metadata`.
    pub(super) fn given(&self, name: &str) -> Option<&'r Value> {
        let single = self.data.variables.iter().rev().find(|(key, _)| *key == name);
        single
            .map(|(_, value)| *value)
            .or_else(|| property(self.data.context?, name))
    }

    pub(super) fn metadata(&'r self, keys: &[Box<str>]) -> Result<Val<'r>, Error> {
        let (part, rest) = match keys.split_first() {
            Some((part, rest)) => (self.metadata_part(part)?, rest),
            None => (Some(self.whole_metadata()?), keys),
        };
        let part = part.map_or(Val::Missing, Val::Ref);
        Ok(part.walk(rest))
    }

    fn metadata_part(&'r self, name: &str) -> Result<Option<&'r Value>, Error> {
        match name {
            "prompt" => get_or_try(&self.prompt, || (self.describe_prompt)()).map(Some),
            "docs" => Ok(self
                .data
                .docs
                .map(|docs| self.docs.get_or_init(|| docs.to_vec().into()))),
            "messages" => Ok(match self.data.history {
                History::None => None,
                History::Messages(messages) => Some(
                    self.messages
                        .get_or_init(|| serde_json::to_value(messages).unwrap_or_default()),
                ),
                History::Described(describe) => Some(self.messages.get_or_init(describe)),
            }),
            _ => Ok(None),
        }
    }

    fn whole_metadata(&'r self) -> Result<&'r Value, Error> {
        get_or_try(&self.metadata, || {
            let mut whole = Map::new();
            for name in ["prompt", "docs", "messages"] {
                if let Some(part) = self.metadata_part(name)? {
                    whole.insert(name.to_owned(), part.clone());
                }
            }
            Ok(Value::Object(whole))
        })
    }
}

fn get_or_try(cell: &OnceCell<Value>, init: impl FnOnce() -> Result<Value, Error>) -> Result<&Value, Error> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = init()?;
    Ok(cell.get_or_init(|| value))
}
