//! One compiled template, main or partial.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use handlebars::Template;

use super::lower::lower;
use super::program::Program;
use super::scan::{Flaw, scan};
use crate::error::{Error, ErrorKind};
use crate::helper::Helper;
use crate::limits::Limits;
use crate::position::Position;

/// A compiled template and the facts that compiling it found.
pub(super) struct Unit {
    /// The name under which errors in it are reported.
    pub(super) label: Option<Arc<str>>,
    /// The template's start in its file.
    pub(super) start: Position,
    pub(super) program: Program,
    pub(super) facts: Facts,
}

/// The partials and variables that a template refers to.
#[derive(Default)]
pub(super) struct Facts {
    /// The number of tags.
    pub(super) tags: usize,
    /// The names of the partials that it includes.
    pub(super) partials: BTreeSet<Box<str>>,
    /// The names of the partials that it includes unconditionally.
    pub(super) always: BTreeSet<Box<str>>,
    /// The names of its inline partials.
    pub(super) inlines: BTreeSet<Box<str>>,
    /// Whether it includes a partial by a computed name.
    pub(super) computes_partials: bool,
    /// The `@` variables that it reads.
    pub(super) variables: BTreeSet<Box<str>>,
}

/// A source with its place in a file.
pub(super) struct Source<'s> {
    pub(super) text: &'s str,
    pub(super) start: Position,
    pub(super) label: Option<Arc<str>>,
}

impl Unit {
    pub(super) fn compile(
        source: Source<'_>,
        helpers: &HashMap<String, Arc<dyn Helper>>,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let misplaced = |flaw: Flaw| {
            let position = Position::START.advance(source.text, flaw.offset);
            Error::at(
                flaw.kind,
                source.start.embed(position).in_file(source.label.as_ref()),
            )
        };
        let scan = scan(source.text, limits).map_err(misplaced)?;
        let template = Template::compile(&scan.skeleton).map_err(|error| {
            let kind = ErrorKind::Syntax(error.reason().to_string());
            let offset = error.pos().map_or(0, |(line, column)| scan.origin(line, column));
            misplaced(Flaw { kind, offset })
        })?;
        let (program, facts) = lower(template, scan, &source, helpers)
            .map_err(|(kind, position)| Error::at(kind, position.in_file(source.label.as_ref())))?;
        Ok(Self {
            label: source.label,
            start: source.start,
            program,
            facts,
        })
    }
}
