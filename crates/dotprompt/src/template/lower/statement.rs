//! Blocks, partials and inline partials.

use std::collections::HashMap;

use handlebars::Template;
use handlebars::template::{BlockParam, DecoratorTemplate, HelperTemplate, Parameter};
use serde_json::Value;

use super::{Lowered, Lowering, syntax};
use crate::error::ErrorKind;
use crate::position::Position;
use crate::template::builtin::misuse;
use crate::template::program::{Block, BlockKind, Include, IncludeName, Program};
use crate::template::scan::{Form, Head};

impl Lowering<'_> {
    pub(super) fn block(&mut self, element: HelperTemplate) -> Lowered<Block> {
        let (tag, at) = self.tag(&[Form::Open, Form::InverseOpen, Form::RawOpen, Form::Chain])?;
        let name = element.name.as_name().unwrap_or_default().to_owned();
        let names = block_parameters(element.block_param);
        let binds = names.len();
        let bare = element.params.is_empty() && element.hash.is_empty();
        let kind = match &tag.head {
            None if bare && tag.form == Form::RawOpen && name == "raw" => BlockKind::Verbatim,
            Some(head) if bare => BlockKind::Section(self.head_path(head)),
            Some(Head::Path(name) | Head::Key(name)) => {
                return Err((ErrorKind::UnknownHelper(name.clone()), at));
            }
            None => self.block_kind(&name, element.params, element.hash, at)?,
        };

        self.conditional += 1;
        self.parameters.extend((binds > 0).then_some(names));
        let mut body = self.optional(element.template)?;
        if binds > 0 {
            self.parameters.pop();
        }
        let mut inverse = self.optional(element.inverse)?;
        self.conditional -= 1;
        if tag.form == Form::InverseOpen {
            std::mem::swap(&mut body, &mut inverse);
        }
        Ok(Block {
            kind,
            body,
            inverse,
            binds,
            at,
        })
    }

    fn optional(&mut self, template: Option<Template>) -> Lowered<Program> {
        template.map_or_else(|| Ok(Program::default()), |template| self.template(template))
    }

    fn block_kind(
        &mut self,
        name: &str,
        params: Vec<Parameter>,
        mut hash: HashMap<String, Parameter>,
        at: Position,
    ) -> Lowered<BlockKind> {
        let bare = params.is_empty() && hash.is_empty();
        let own = self.helpers.contains_key(name);
        if !own && BlockKind::is_builtin(name) {
            let include_zero = hash
                .remove("includeZero")
                .map(|value| self.argument(value, at))
                .transpose()?;
            let args = self.arguments(params, at)?;
            return BlockKind::builtin(name, args, include_zero).map_err(|flaw| (misuse(name, flaw), at));
        }
        if bare && (!self.is_helper(name) || self.is_parameter(name)) {
            return Ok(BlockKind::Section(self.path(name)));
        }
        let callee = self.callee(name, at)?;
        Ok(BlockKind::Call(self.call(name, callee, params, hash, at)?))
    }

    pub(super) fn include(&mut self, element: DecoratorTemplate) -> Lowered<Include> {
        let (tag, at) = self.tag(&[Form::Partial, Form::PartialOpen])?;
        let name = match (&tag.head, element.name) {
            (Some(Head::Key(name) | Head::Path(name)), _) => IncludeName::Fixed(name.as_str().into()),
            (None, Parameter::Subexpression(inner)) => IncludeName::Computed(self.subexpression(inner, at)?),
            (None, name) => match name.as_name().unwrap_or_default() {
                "@partial-block" => IncludeName::CallerBlock,
                name => IncludeName::Fixed(name.into()),
            },
        };
        match &name {
            IncludeName::Fixed(name) => {
                self.facts.partials.insert(name.clone());
                if self.conditional == 0 {
                    self.facts.always.insert(name.clone());
                }
            }
            IncludeName::Computed(_) => self.facts.computes_partials = true,
            IncludeName::CallerBlock => {}
        }
        let mut params = element.params.into_iter();
        let context = params.next().map(|param| self.argument(param, at)).transpose()?;
        if params.next().is_some() {
            return Err((syntax("a partial takes one context at most"), at));
        }
        let order: Vec<&str> = tag.hash_keys().collect();
        let hash = self.hash(element.hash, &order, at)?;
        self.conditional += 1;
        let body = element
            .template
            .map(|template| self.template(template))
            .transpose()?;
        self.conditional -= 1;
        Ok(Include {
            name,
            context,
            hash,
            body,
            indent: tag.indent.clone().map(Into::into),
            at,
        })
    }

    pub(super) fn inline(&mut self, element: DecoratorTemplate) -> Lowered<(Box<str>, Program)> {
        let (_, at) = self.tag(&[Form::DecoratorOpen])?;
        if element.name.as_name() != Some("inline") {
            let name = element.name.as_name().unwrap_or_default();
            return Err((syntax(format!("unknown decorator '{name}'")), at));
        }
        let Some(Parameter::Literal(Value::String(number))) = element.params.into_iter().next() else {
            return Err((syntax("an inline partial needs a name in quotation marks"), at));
        };
        let name = self.string(&number);
        self.facts.inlines.insert(name.as_str().into());
        self.conditional += 1;
        let program = self.optional(element.template)?;
        self.conditional -= 1;
        Ok((name.into(), program))
    }
}

fn block_parameters(parameter: Option<BlockParam>) -> Vec<Box<str>> {
    let names = match parameter {
        Some(BlockParam::Single(name)) => vec![name],
        Some(BlockParam::Pair((first, second))) => vec![first, second],
        _ => return Vec::new(),
    };
    names
        .iter()
        .filter_map(Parameter::as_name)
        .map(Into::into)
        .collect()
}
