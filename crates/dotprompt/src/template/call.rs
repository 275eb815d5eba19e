//! Calls of helpers, built-in and custom.

use std::borrow::Cow;

use serde_json::Value;

use super::machine::Machine;
use super::markers;
use super::print;
use super::program::{Block, Call, Callee, Expr};
use super::scope::Scope;
use super::value::Val;
use crate::error::{Error, ErrorKind};
use crate::helper::{Fragment, Helper, HelperCall, HelperError, HelperOutput, RenderBlock};
use crate::message::Media;
use crate::output::{Mark, Output};

impl<'r> Machine<'r> {
    /// Runs `{{helper ...}}`: prints the helper's result or leaves its mark.
    pub(super) fn call_statement(
        &mut self,
        call: &'r Call,
        scope: &Scope<'_, 'r>,
        out: &mut Output,
    ) -> Result<(), Error> {
        let result = match &call.callee {
            Callee::Custom(name, helper) => {
                self.custom(name, helper.as_ref(), call, None, scope)
                    .and_then(|result| match result {
                        HelperOutput::Fragment(fragment) => self.append(fragment, scope, out),
                        HelperOutput::Value(value) => self.print(&Val::from_value(value), scope, out),
                    })
            }
            _ => self.builtin_statement(call, scope, out),
        };
        result.map_err(|error| error.or_at(|| Some(call.at.in_file(scope.unit.label.as_ref()))))
    }

    fn builtin_statement(
        &mut self,
        call: &'r Call,
        scope: &Scope<'_, 'r>,
        out: &mut Output,
    ) -> Result<(), Error> {
        match self.marked(call, scope)? {
            Some(Ok(mark)) => self.mark(mark, scope, out),
            Some(Err(text)) => self.write(&text, scope, out),
            None => {
                let value = self.call_value(call, scope)?;
                self.print(&value, scope, out)
            }
        }
    }

    /// Runs `{{#helper ...}}` for a helper that is not a built-in block.
    pub(super) fn call_block(
        &mut self,
        call: &'r Call,
        block: &'r Block,
        scope: &Scope<'_, 'r>,
        out: &mut Output,
    ) -> Result<(), Error> {
        let Callee::Custom(name, helper) = &call.callee else {
            return self.call_statement(call, scope, out);
        };
        match self.custom(name, helper.as_ref(), call, Some(block), scope)? {
            HelperOutput::Fragment(fragment) => self.append(fragment, scope, out),
            HelperOutput::Value(value) => self.print(&Val::from_value(value), scope, out),
        }
    }

    /// Evaluates `(helper ...)` to the helper's value.
    pub(super) fn call_value(&mut self, call: &'r Call, scope: &Scope<'_, 'r>) -> Result<Val<'r>, Error> {
        self.charge(1, scope)?;
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
                Ok(value.get(&self.text(&key, scope)?))
            }
            Callee::Json => self.json(call, scope),
            Callee::Custom(name, helper) => match self.custom(name, helper.as_ref(), call, None, scope)? {
                HelperOutput::Value(value) => Ok(Val::from_value(value)),
                HelperOutput::Fragment(fragment) => Ok(Val::from_value(fragment.into_text())),
            },
            // `log` is for a browser's console and does nothing here; the others leave a mark and have no value.
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
        self.count(text.len(), scope)?;
        Ok(Val::from_value(text))
    }

    /// Returns the mark that a helper leaves, or the text to print if its arguments make no valid mark; `None` for
    /// helpers that leave no marks.
    fn marked(
        &mut self,
        call: &'r Call,
        scope: &Scope<'_, 'r>,
    ) -> Result<Option<Result<Mark, String>>, Error> {
        Ok(Some(match &call.callee {
            Callee::History => Ok(Mark::History),
            Callee::Role => {
                let name = self.arg(call, 0, scope)?;
                if name.is_missing() || name.as_value() == Some(&Value::Null) {
                    let message = "the name of the role is missing".to_owned();
                    return Err(Error::new(ErrorKind::Helper {
                        name: "role".to_owned(),
                        message,
                    }));
                }
                let name = self.text(&name, scope)?;
                markers::role(&name).ok_or_else(|| markers::role_text(&name))
            }
            Callee::Section => {
                let name = self.arg(call, 0, scope)?;
                let name = self.text(&name, scope)?;
                // The reference implementation takes only the first word as the name.
                let name = name.split(' ').next().unwrap_or_default().to_owned();
                if name.is_empty() {
                    Err(String::new())
                } else {
                    Ok(Mark::Section(name))
                }
            }
            Callee::Media => {
                let url = self.named(call, "url", scope)?;
                let url = self.text(&url, scope)?;
                let content_type = self.named(call, "contentType", scope)?;
                let content_type = self.text(&content_type, scope)?;
                if url.is_empty() {
                    Err(String::new())
                } else {
                    Ok(Mark::Media(Media {
                        url,
                        content_type: Some(content_type).filter(|text| !text.is_empty()),
                    }))
                }
            }
            Callee::Lookup | Callee::Log | Callee::Json | Callee::Custom(..) => return Ok(None),
        }))
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
    fn text(&mut self, value: &Val<'r>, scope: &Scope<'_, 'r>) -> Result<String, Error> {
        let mut printed = Output::default();
        self.print(value, scope, &mut printed)?;
        Ok(printed.text)
    }

    fn append(&mut self, fragment: Fragment, scope: &Scope<'_, 'r>, out: &mut Output) -> Result<(), Error> {
        let output = fragment.into_output();
        self.count(output.text.len(), scope)?;
        out.append(output);
        Ok(())
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
        let mut out = Output::default();
        match this {
            None => self.machine.run(&self.block.body, self.scope, &mut out)?,
            Some(this) => {
                let scope = self.scope.child(Val::from_value(this.clone()));
                self.machine.run(&self.block.body, &scope, &mut out)?;
            }
        }
        Ok(Fragment::from(out))
    }

    fn inverse(&mut self) -> Result<Fragment, Error> {
        let mut out = Output::default();
        self.machine.run(&self.block.inverse, self.scope, &mut out)?;
        Ok(Fragment::from(out))
    }
}
