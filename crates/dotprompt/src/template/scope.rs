//! Scopes: the context, variables and partials that are visible at a place in a running template.
//!
//! Scopes are on the stack, and each refers to the one around it.

use std::borrow::Cow;

use super::program::Program;
use super::unit::Unit;
use super::value::Val;

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
