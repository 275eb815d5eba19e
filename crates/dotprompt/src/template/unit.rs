//! One compiled template, main or partial.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::parse::parse;
use super::program::Program;
use crate::error::Error;
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
        let (program, facts) = parse(&source, helpers, limits)
            .map_err(|error| Error::at(error.kind, error.at.in_file(source.label.as_ref())))?;
        Ok(Self {
            label: source.label,
            start: source.start,
            program,
            facts,
        })
    }
}
