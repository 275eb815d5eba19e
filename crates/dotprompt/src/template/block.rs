//! The built-in blocks.

use std::borrow::Cow;

use serde_json::Value;

use super::machine::{BYTES_PER_STEP, Machine};
use super::program::{Block, BlockKind};
use super::scope::{Frame, Iteration, Parameters, Scope};
use super::value::{Val, entries_of};
use crate::error::Error;

impl<'r> Machine<'r> {
    pub(super) fn block(&mut self, block: &'r Block, scope: &Scope<'_, 'r>) -> Result<(), Error> {
        match &block.kind {
            BlockKind::If {
                condition,
                include_zero,
                negated,
            } => {
                let condition = self.eval(condition, scope)?;
                let include_zero = match include_zero {
                    Some(option) => self.eval(option, scope)?.is_truthy(false),
                    None => false,
                };
                self.run(block.branch(condition.is_truthy(include_zero) != *negated), scope)
            }
            BlockKind::Equals { left, right, negated } => {
                let left = self.eval(left, scope)?;
                let right = self.eval(right, scope)?;
                if let (Some(Value::String(a)), Some(Value::String(b))) = (left.as_value(), right.as_value())
                {
                    self.charge(a.len().min(b.len()) / BYTES_PER_STEP)?;
                }
                self.run(block.branch(left.strictly_equals(&right) != *negated), scope)
            }
            BlockKind::Each(list) => {
                let list = self.eval(list, scope)?;
                self.each(block, &list, scope)
            }
            BlockKind::With(value) => {
                let value = self.eval(value, scope)?;
                if value.is_empty() {
                    return self.run(&block.inverse, scope);
                }
                self.with(block, value, scope)
            }
            BlockKind::Section(path) => {
                let value = self.path(path, scope)?;
                self.section(block, value, scope)
            }
            BlockKind::Verbatim => self.run(&block.body, scope),
            BlockKind::Call(call) => self.call_statement(call, Some(block), scope),
        }
    }

    /// Renders `{{#name}}` by the value of `name`: for `true` the body in the current context, for a list the
    /// body once for each item, for any other present value the body with it as the context, else the
    /// alternative.
    fn section(&mut self, block: &'r Block, value: Val<'r>, scope: &Scope<'_, 'r>) -> Result<(), Error> {
        match value.as_value() {
            Some(Value::Bool(true)) => self.run(&block.body, scope),
            Some(Value::Bool(false) | Value::Null) => self.run(&block.inverse, scope),
            Some(Value::Array(_)) => self.each(block, &value, scope),
            _ if value.is_missing() => self.run(&block.inverse, scope),
            _ => self.with(block, value, scope),
        }
    }

    fn with(&mut self, block: &'r Block, value: Val<'r>, scope: &Scope<'_, 'r>) -> Result<(), Error> {
        if block.binds == 0 {
            return self.run(&block.body, &scope.child(value));
        }
        let parameters = Parameters {
            values: [value.clone(), Val::Missing],
            parent: scope.parameters,
        };
        let mut inner = scope.child(value);
        inner.parameters = Some(&parameters);
        self.run(&block.body, &inner)
    }

    fn each(&mut self, block: &'r Block, list: &Val<'r>, scope: &Scope<'_, 'r>) -> Result<(), Error> {
        if let Val::Ref(Value::Array(items)) = list {
            let items = items.iter().map(|item| (None, Val::Ref(item)));
            return self.iterate(block, items, scope);
        }
        if let Some(Value::Array(items)) = list.as_value() {
            let items = items.iter().map(|item| (None, Val::from_value(item.clone())));
            return self.iterate(block, items, scope);
        }
        let entries = entries_of(list)
            .into_iter()
            .map(|(name, value)| (Some(name), value));
        self.iterate(block, entries, scope)
    }

    /// Renders the body once for each item, or the alternative if there are no items.
    fn iterate(
        &mut self,
        block: &'r Block,
        items: impl ExactSizeIterator<Item = (Option<Cow<'r, str>>, Val<'r>)>,
        scope: &Scope<'_, 'r>,
    ) -> Result<(), Error> {
        let count = items.len();
        if count == 0 {
            return self.run(&block.inverse, scope);
        }
        for (index, (key, item)) in items.enumerate() {
            self.charge(1)?;
            let iteration = Iteration {
                index,
                key,
                is_last: index + 1 == count,
            };
            let parameters = (block.binds > 0).then(|| Parameters {
                values: [item.clone(), iteration.key_value()],
                parent: scope.parameters,
            });
            let frame = Frame {
                iteration: Some(iteration),
                parent: scope.frame,
            };
            let mut inner = scope.child(item);
            inner.frame = Some(&frame);
            if let Some(parameters) = &parameters {
                inner.parameters = Some(parameters);
            }
            self.run(&block.body, &inner)?;
        }
        Ok(())
    }
}
