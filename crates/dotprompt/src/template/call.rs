//! Calls of helpers, built-in and custom.

use std::borrow::Cow;

use serde_json::Value;

use super::machine::Machine;
use super::markers;
use super::print;
use super::program::{Block, Call, Callee, Expr, helper_error};
use super::scope::Scope;
use super::value::Val;
use crate::helper::RenderBlock;
use crate::output::Mark;
use crate::{Error, ErrorKind, Fragment, Helper, HelperCall, HelperError, HelperOutput, Media};

impl<'r> Machine<'r> {
    /// Runs `{{helper ...}}` or `{{#helper ...}}`: prints the helper's result or leaves its mark.
    pub(super) fn call_statement(
        &mut self,
        call: &'r Call,
        block: Option<&'r Block>,
        scope: &Scope<'_, 'r>,
    ) -> Result<(), Error> {
        let result = match &call.callee {
            Callee::Custom(name, helper) => {
                self.custom(name, helper.as_ref(), call, block, scope)
                    .and_then(|result| match result {
                        HelperOutput::Fragment(fragment) => self.append(fragment.into_output()),
                        HelperOutput::Value(value) => self.print(&Val::from_value(value)),
                    })
            }
            _ => self.builtin_statement(call, scope),
        };
        result.map_err(|error| error.or_at(|| Some(call.at.in_file(scope.unit.label.as_ref()))))
    }

    fn builtin_statement(&mut self, call: &'r Call, scope: &Scope<'_, 'r>) -> Result<(), Error> {
        match &call.callee {
            Callee::History => self.mark(Mark::History),
            Callee::Role => {
                let name = self.arg(call, 0, scope)?;
                if name.is_missing() || name.as_value() == Some(&Value::Null) {
                    return Err(Error::new(helper_error(
                        "role",
                        "the name of the role is missing",
                    )));
                }
                let name = self.text(&name)?;
                match markers::role(&name) {
                    Some(mark) => self.mark(mark),
                    None => self.write(&markers::role_text(&name)),
                }
            }
            Callee::Section => {
                let name = self.arg(call, 0, scope)?;
                let name = self.text(&name)?;
                // The reference implementation takes only the first word as the name.
                match name.split(' ').next() {
                    None | Some("") => Ok(()),
                    Some(name) => self.mark(Mark::Section(name.to_owned())),
                }
            }
            Callee::Media => {
                let url = self.named(call, "url", scope)?;
                let url = self.text(&url)?;
                let content_type = self.named(call, "contentType", scope)?;
                let content_type = Some(self.text(&content_type)?).filter(|text| !text.is_empty());
                if url.is_empty() {
                    return Ok(());
                }
                self.mark(Mark::Media(Media { url, content_type }))
            }
            Callee::Lookup | Callee::Log | Callee::Json | Callee::Custom(..) => {
                let value = self.call_value(call, scope)?;
                self.print(&value)
            }
        }
    }

    /// Evaluates `(helper ...)` to the helper's value.
    pub(super) fn call_value(&mut self, call: &'r Call, scope: &Scope<'_, 'r>) -> Result<Val<'r>, Error> {
        self.charge(1)?;
        match &call.callee {
            Callee::Lookup => {
                let value = self.arg(call, 0, scope)?;
                let key = self.arg(call, 1, scope)?;
                // As in JavaScript's Handlebars: a lookup in a falsy value returns that value.
                if !value.is_object()
                    && !value.is_truthy(false)
                    && !matches!(value.as_value(), Some(Value::Array(_)))
                {
                    return Ok(value);
                }
                Ok(value.get(&self.text(&key)?))
            }
            Callee::Json => self.json(call, scope),
            Callee::Custom(name, helper) => match self.custom(name, helper.as_ref(), call, None, scope)? {
                HelperOutput::Value(value) => Ok(Val::from_value(value)),
                HelperOutput::Fragment(fragment) => Ok(Val::from_value(fragment.into_text())),
            },
            // `log` is for a browser's console and does nothing here; the others leave a mark and have no
            // value.
            Callee::Log | Callee::Role | Callee::History | Callee::Section | Callee::Media => {
                Ok(Val::Missing)
            }
        }
    }

    fn json(&mut self, call: &'r Call, scope: &Scope<'_, 'r>) -> Result<Val<'r>, Error> {
        let value = self.arg(call, 0, scope)?;
        if value.is_missing() {
            return Ok(Val::Missing);
        }
        let indent = self.named(call, "indent", scope)?;
        let text = print::json(&value.to_value(), &print::indentation(&indent.to_value()));
        self.count(text.len())?;
        Ok(Val::from_value(text))
    }

    fn arg(&mut self, call: &'r Call, index: usize, scope: &Scope<'_, 'r>) -> Result<Val<'r>, Error> {
        call.args
            .get(index)
            .map_or(Ok(Val::Missing), |expr| self.eval(expr, scope))
    }

    fn named(&mut self, call: &'r Call, key: &str, scope: &Scope<'_, 'r>) -> Result<Val<'r>, Error> {
        let found = call.hash.iter().find(|(name, _)| **name == *key);
        found.map_or(Ok(Val::Missing), |(_, expr)| self.eval(expr, scope))
    }

    /// Returns the text that printing the value gives.
    pub(super) fn text(&mut self, value: &Val<'r>) -> Result<String, Error> {
        Ok(self.captured(|machine| machine.print(value))?.text)
    }

    fn custom(
        &mut self,
        name: &str,
        helper: &dyn Helper,
        call: &'r Call,
        block: Option<&'r Block>,
        scope: &Scope<'_, 'r>,
    ) -> Result<HelperOutput, Error> {
        let args = call
            .args
            .iter()
            .map(|expr| self.eval(expr, scope))
            .collect::<Result<Vec<_>, _>>()?;
        let evaluate = |(key, expr): &'r (Box<str>, Expr)| Ok((&**key, self.eval(expr, scope)?));
        let hash = call
            .hash
            .iter()
            .map(evaluate)
            .collect::<Result<Vec<_>, Error>>()?;
        let mut blocks = block.map(|block| CustomBlock {
            machine: self,
            block,
            scope,
        });
        let mut helper_call = HelperCall {
            args: args.iter().map(present).collect(),
            hash: hash.iter().map(|(key, value)| (*key, present(value))).collect(),
            this: scope.this.to_value(),
            block: blocks.as_mut().map(|block| block as &mut dyn RenderBlock),
        };
        helper.call(&mut helper_call).map_err(|error| match error {
            HelperError::Message(message) => {
                let kind = ErrorKind::Helper {
                    name: name.to_owned(),
                    message,
                };
                Error::at(kind, call.at.in_file(scope.unit.label.as_ref()))
            }
            HelperError::Render(error) => error,
        })
    }
}

fn present<'v>(value: &'v Val<'_>) -> Option<Cow<'v, Value>> {
    (!value.is_missing()).then(|| value.to_value())
}

/// The block of a custom helper's call, for the helper to render.
struct CustomBlock<'m, 's, 'r> {
    machine: &'m mut Machine<'r>,
    block: &'r Block,
    scope: &'m Scope<'s, 'r>,
}

impl RenderBlock for CustomBlock<'_, '_, '_> {
    fn body(&mut self, this: Option<&Value>) -> Result<Fragment, Error> {
        let body = &self.block.body;
        let rendered = self.machine.captured(|machine| match this {
            None => machine.run(body, self.scope),
            Some(this) => machine.run(body, &self.scope.child(Val::from_value(this.clone()))),
        });
        Ok(rendered?.into())
    }

    fn inverse(&mut self) -> Result<Fragment, Error> {
        let inverse = &self.block.inverse;
        let rendered = self.machine.captured(|machine| machine.run(inverse, self.scope));
        Ok(rendered?.into())
    }
}
