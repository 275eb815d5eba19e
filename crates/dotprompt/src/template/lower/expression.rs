//! Variables, literals and calls of helpers.

use std::collections::HashMap;

use handlebars::template::{Parameter, Subexpression, TemplateElement};
use serde_json::Value;

use super::{Lowered, Lowering, syntax};
use crate::error::ErrorKind;
use crate::position::Position;
use crate::template::builtin::misuse;
use crate::template::program::{BlockKind, Call, Callee, Expr};

impl Lowering<'_> {
    /// Lowers a tag that is a variable, or a helper with or without arguments.
    pub(super) fn expression(
        &mut self,
        name: Parameter,
        params: Vec<Parameter>,
        hash: HashMap<String, Parameter>,
        at: Position,
    ) -> Lowered<Expr> {
        let raw = match name {
            Parameter::Subexpression(inner) => return self.subexpression(inner, at),
            Parameter::Literal(value) => return Ok(Expr::Literal(self.literal(value))),
            name => name.as_name().unwrap_or_default().to_owned(),
        };
        let bare = params.is_empty() && hash.is_empty();
        if bare && (!self.is_helper(&raw) || self.is_parameter(&raw)) {
            return Ok(Expr::Path(self.path(&raw)));
        }
        let callee = self.callee(&raw, at)?;
        Ok(Expr::Call(Box::new(self.call(&raw, callee, params, hash, at)?)))
    }

    pub(super) fn subexpression(&mut self, inner: Subexpression, at: Position) -> Lowered<Expr> {
        let TemplateElement::Expression(element) = *inner.element else {
            return Err((syntax("unexpected tag in parentheses"), at));
        };
        let expression = self.expression(element.name, element.params, element.hash, at)?;
        if let Expr::Call(call) = &expression
            && let Some(name) = call.callee.marking()
        {
            let message = "it marks a place in the text and cannot stand in parentheses";
            return Err((misuse(name, message), at));
        }
        Ok(expression)
    }

    pub(super) fn argument(&mut self, parameter: Parameter, at: Position) -> Lowered<Expr> {
        match parameter {
            Parameter::Literal(value) => Ok(Expr::Literal(self.literal(value))),
            Parameter::Subexpression(inner) => self.subexpression(inner, at),
            path => Ok(Expr::Path(self.path(path.as_name().unwrap_or_default()))),
        }
    }

    pub(super) fn arguments(&mut self, parameters: Vec<Parameter>, at: Position) -> Lowered<Vec<Expr>> {
        parameters
            .into_iter()
            .map(|parameter| self.argument(parameter, at))
            .collect()
    }

    /// Returns the string literal that a number of the skeleton stands for.
    pub(super) fn string(&self, number: &str) -> String {
        number
            .parse::<usize>()
            .ok()
            .and_then(|index| self.strings.get(index))
            .cloned()
            .unwrap_or_default()
    }

    fn literal(&self, value: Value) -> Value {
        match value {
            Value::String(number) => Value::String(self.string(&number)),
            other => other,
        }
    }

    pub(super) fn call(
        &mut self,
        name: &str,
        callee: Callee,
        params: Vec<Parameter>,
        hash: HashMap<String, Parameter>,
        at: Position,
    ) -> Lowered<Call> {
        let args = self.arguments(params, at)?;
        let hash = self.hash(hash, &[], at)?;
        let call = Call {
            callee,
            args,
            hash,
            at,
        };
        match call.flaw() {
            None => Ok(call),
            Some(flaw) => Err((misuse(name, flaw), at)),
        }
    }

    /// Lowers the `key=value` arguments in the given order, or by key if no order is given.
    pub(super) fn hash(
        &mut self,
        hash: HashMap<String, Parameter>,
        order: &[&str],
        at: Position,
    ) -> Lowered<Vec<(Box<str>, Expr)>> {
        let mut entries: Vec<_> = hash.into_iter().collect();
        // The original assigns them from the last to the first. The order is visible when a partial prints its context.
        let rank = |key: &str| order.iter().rev().position(|other| *other == key);
        entries.sort_by_cached_key(|(key, _)| (rank(key), key.clone()));
        let lower = |(key, value): (String, _)| Ok((key.into(), self.argument(value, at)?));
        entries.into_iter().map(lower).collect()
    }

    pub(super) fn is_parameter(&self, name: &str) -> bool {
        self.parameters.iter().flatten().any(|bound| **bound == *name)
    }

    pub(super) fn is_helper(&self, name: &str) -> bool {
        self.helpers.contains_key(name) || Callee::builtin(name).is_some() || BlockKind::is_builtin(name)
    }

    pub(super) fn callee(&self, name: &str, at: Position) -> Lowered<Callee> {
        if let Some(helper) = self.helpers.get(name) {
            return Ok(Callee::Custom(name.into(), helper.clone()));
        }
        if let Some(builtin) = Callee::builtin(name) {
            return Ok(builtin);
        }
        if BlockKind::is_builtin(name) {
            return Err((misuse(name, "it needs a block"), at));
        }
        Err((ErrorKind::UnknownHelper(name.to_owned()), at))
    }
}
