//! The compiled form of a template.

use std::sync::Arc;

use serde_json::Value;

use super::path::Path;
use crate::helper::Helper;
use crate::output::Mark;
use crate::position::Position;

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
