//! The scope of a statement: its context, its loops and block parameters, and the `@` variables.

use std::borrow::Cow;
use std::cell::OnceCell;

use serde_json::{Map, Value};

use super::library::Unit;
use super::program::Program;
use super::value::{Val, property};
use crate::data::{Data, History};
use crate::error::Error;

#[derive(Clone)]
pub(super) struct Scope<'s, 'r> {
    /// The context: `this`.
    pub(super) this: Val<'r>,
    /// The scope that `../` leads to.
    pub(super) parent: Option<&'s Scope<'s, 'r>>,
    /// The innermost loop: `@index`, `@key`, `@first`, `@last`.
    pub(super) frame: Option<&'s Frame<'s, 'r>>,
    /// The values of the innermost block parameters.
    pub(super) parameters: Option<&'s Parameters<'s, 'r>>,
    /// The visible inline partials.
    pub(super) inlines: Option<&'s Inlines<'s, 'r>>,
    /// The block that was passed to the current partial.
    pub(super) caller: Option<&'s CallerBlock<'s, 'r>>,
    /// The current template, for the positions of errors.
    pub(super) unit: &'r Unit,
}

/// One level for `@../`: the iteration of a loop, or a block passed to a partial, which has no iteration.
pub(super) struct Frame<'s, 'r> {
    pub(super) iteration: Option<Iteration<'r>>,
    pub(super) parent: Option<&'s Frame<'s, 'r>>,
}

/// One iteration of a loop.
pub(super) struct Iteration<'r> {
    pub(super) index: usize,
    /// The name of the property, if the loop goes over an object.
    pub(super) key: Option<Cow<'r, str>>,
    pub(super) is_last: bool,
}

impl Iteration<'_> {
    pub(super) fn key_value<'r>(&self) -> Val<'r> {
        match &self.key {
            Some(name) => Val::from_value(&**name),
            None => Val::from_value(self.index),
        }
    }
}

pub(super) struct Parameters<'s, 'r> {
    pub(super) values: [Val<'r>; 2],
    pub(super) parent: Option<&'s Parameters<'s, 'r>>,
}

pub(super) struct Inlines<'s, 'r> {
    pub(super) entries: &'r [(Box<str>, Program)],
    /// The scope of the definition, whose parameters and parents the bodies see.
    pub(super) scope: &'s Scope<'s, 'r>,
    pub(super) parent: Option<&'s Inlines<'s, 'r>>,
}

pub(super) struct CallerBlock<'s, 'r> {
    pub(super) body: &'r Program,
    pub(super) scope: &'s Scope<'s, 'r>,
}

impl<'s, 'r> Scope<'s, 'r> {
    pub(super) fn root(this: Val<'r>, unit: &'r Unit) -> Self {
        Self {
            this,
            parent: None,
            frame: None,
            parameters: None,
            inlines: None,
            caller: None,
            unit,
        }
    }

    /// Creates the scope of a block with its own context. If the context stays the same, `../` skips the
    /// block.
    pub(super) fn child<'c>(&'c self, this: Val<'r>) -> Scope<'c, 'r> {
        let parent = if this.is_same(&self.this) {
            self.parent
        } else {
            Some(self)
        };
        Scope {
            this,
            parent,
            frame: self.frame,
            parameters: self.parameters,
            inlines: self.inlines,
            caller: self.caller,
            unit: self.unit,
        }
    }

    /// Returns the context `up` steps up; missing above the template's own context.
    pub(super) fn context(&self, up: usize) -> Val<'r> {
        let mut scope = Some(self);
        for _ in 0..up {
            scope = scope.and_then(|scope| scope.parent);
        }
        scope.map_or(Val::Missing, |scope| scope.this.clone())
    }

    pub(super) fn parameter(&self, up: usize, slot: usize) -> Val<'r> {
        let mut parameters = self.parameters;
        for _ in 0..up {
            parameters = parameters.and_then(|parameters| parameters.parent);
        }
        parameters
            .and_then(|parameters| parameters.values.get(slot))
            .map_or(Val::Missing, Clone::clone)
    }

    /// Returns a variable of the loop `up` loops up.
    pub(super) fn loop_variable(&self, up: usize, name: &str) -> Option<Val<'r>> {
        let mut frame = self.frame;
        for _ in 0..up {
            frame = frame.and_then(|frame| frame.parent);
        }
        let mut frame = frame?;
        let iteration = loop {
            match &frame.iteration {
                Some(iteration) => break iteration,
                None => frame = frame.parent?,
            }
        };
        Some(match name {
            "index" => Val::from_value(iteration.index),
            "key" => iteration.key_value(),
            "first" => Val::from_bool(iteration.index == 0),
            "last" => Val::from_bool(iteration.is_last),
            _ => return None,
        })
    }

    pub(super) fn inline(&self, name: &str) -> Option<(&'r Program, &'s Scope<'s, 'r>)> {
        let mut inlines = self.inlines;
        while let Some(level) = inlines {
            if let Some((_, program)) = level.entries.iter().find(|(key, _)| **key == *name) {
                return Some((program, level.scope));
            }
            inlines = level.parent;
        }
        None
    }
}

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
