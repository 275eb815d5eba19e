//! The compiled form of a template, and the built-in helpers in it.

use std::sync::Arc;

use serde_json::Value;

use super::path::Path;
use crate::output::Mark;
use crate::position::Position;
use crate::{ErrorKind, Helper};

/// Statements in order, and the inline partials that are visible to them.
#[derive(Default)]
pub(super) struct Program {
    pub(super) nodes: Vec<Node>,
    pub(super) inlines: Vec<(Box<str>, Self)>,
}

impl Program {
    /// Calls a function with every include, those in blocks and inline partials too.
    pub(super) fn each_include<'p>(&'p self, visit: &mut impl FnMut(&'p Include)) {
        for node in &self.nodes {
            match node {
                Node::Block(block) => {
                    block.body.each_include(visit);
                    block.inverse.each_include(visit);
                }
                Node::Include(include) => {
                    visit(include);
                    if let Some(body) = &include.body {
                        body.each_include(visit);
                    }
                }
                Node::Text(_) | Node::Mark(_) | Node::Print(_) | Node::Call(_) => {}
            }
        }
        for (_, inline) in &self.inlines {
            inline.each_include(visit);
        }
    }
}

pub(super) enum Node {
    Text(Box<str>),
    Mark(Mark),
    Print(Path),
    Call(Box<Call>),
    Block(Box<Block>),
    Include(Box<Include>),
}

pub(super) enum Expr {
    Literal(Value),
    Path(Path),
    Call(Box<Call>),
}

/// A helper with its arguments, resolved when the template was compiled.
pub(super) struct Call {
    pub(super) callee: Callee,
    pub(super) args: Vec<Expr>,
    pub(super) hash: Vec<(Box<str>, Expr)>,
    pub(super) at: Position,
}

pub(super) enum Callee {
    Lookup,
    Log,
    Json,
    Role,
    History,
    Section,
    Media,
    Custom(Box<str>, Arc<dyn Helper>),
}

pub(super) struct Block {
    pub(super) kind: BlockKind,
    pub(super) body: Program,
    pub(super) inverse: Program,
    /// The number of names between the bars of `as |item index|`.
    pub(super) binds: usize,
    pub(super) at: Position,
}

impl Block {
    /// Returns the body or the alternative.
    pub(super) fn branch(&self, is_body: bool) -> &Program {
        if is_body { &self.body } else { &self.inverse }
    }
}

pub(super) enum BlockKind {
    If {
        condition: Expr,
        include_zero: Option<Expr>,
        negated: bool,
    },
    Equals {
        left: Expr,
        right: Expr,
        negated: bool,
    },
    Each(Expr),
    With(Expr),
    /// `{{#name}}` where `name` is not a helper: its value decides whether the body renders once, for each
    /// item or not.
    Section(Path),
    Verbatim,
    Call(Call),
}

/// `{{> name context key=value}}`, with a block or without.
pub(super) struct Include {
    pub(super) name: IncludeName,
    pub(super) context: Option<Expr>,
    pub(super) hash: Vec<(Box<str>, Expr)>,
    pub(super) body: Option<Program>,
    /// The indentation of a tag that is alone on its line, put before every line of the partial.
    pub(super) indent: Option<Box<str>>,
    pub(super) at: Position,
}

pub(super) enum IncludeName {
    Fixed(Box<str>),
    Computed(Expr),
    /// `@partial-block`: the block that the including template passed.
    CallerBlock,
}

/// Creates the error for a helper with wrong arguments.
pub(super) fn helper_error(name: &str, message: impl Into<String>) -> ErrorKind {
    ErrorKind::Helper {
        name: name.to_owned(),
        message: message.into(),
    }
}

impl Callee {
    pub(super) fn builtin(name: &str) -> Option<Self> {
        Some(match name {
            "lookup" => Self::Lookup,
            "log" => Self::Log,
            "json" => Self::Json,
            "role" => Self::Role,
            "history" => Self::History,
            "section" => Self::Section,
            "media" => Self::Media,
            _ => return None,
        })
    }

    /// Returns the helper's name if it leaves a mark instead of a value.
    pub(super) fn marking(&self) -> Option<&'static str> {
        match self {
            Self::Role => Some("role"),
            Self::History => Some("history"),
            Self::Section => Some("section"),
            Self::Media => Some("media"),
            Self::Lookup | Self::Log | Self::Json | Self::Custom(..) => None,
        }
    }
}

impl Call {
    /// Returns the mistake in the arguments of a built-in helper.
    pub(super) fn argument_error(&self) -> Option<&'static str> {
        match self.callee {
            Callee::Lookup if self.args.len() != 2 => Some("it takes an object and a key"),
            Callee::Json if self.args.len() != 1 => Some("it takes one value"),
            Callee::Role | Callee::Section if self.args.len() != 1 => Some("it takes one name"),
            Callee::History if !self.args.is_empty() => Some("it takes no argument"),
            Callee::Media if !self.hash.iter().any(|(key, _)| **key == *"url") => Some("it needs url=..."),
            _ => None,
        }
    }
}

impl BlockKind {
    pub(super) fn is_builtin(name: &str) -> bool {
        matches!(
            name,
            "if" | "unless" | "each" | "with" | "ifEquals" | "unlessEquals"
        )
    }

    /// Returns the built-in block of that name, or the mistake in its arguments.
    pub(super) fn builtin(
        name: &str,
        args: Vec<Expr>,
        include_zero: Option<Expr>,
    ) -> Result<Self, &'static str> {
        let mut args = args.into_iter();
        match (name, args.next(), args.next(), args.next()) {
            ("ifEquals" | "unlessEquals", Some(left), Some(right), None) => Ok(Self::Equals {
                left,
                right,
                negated: name == "unlessEquals",
            }),
            ("ifEquals" | "unlessEquals", ..) => Err("it takes two arguments"),
            ("each", Some(list), None, _) => Ok(Self::Each(list)),
            ("with", Some(value), None, _) => Ok(Self::With(value)),
            (_, Some(condition), None, _) => Ok(Self::If {
                condition,
                include_zero,
                negated: name == "unless",
            }),
            _ => Err("it takes one argument"),
        }
    }
}
