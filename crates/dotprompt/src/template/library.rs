//! A prompt's template together with all partials that it may reach.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::parse::parse;
use super::program::{IncludeName, Program};
use crate::position::Position;
use crate::resolve::Definitions;
use crate::{Error, ErrorKind, Helper, Limit, Limits};

pub(crate) struct Library {
    main: Unit,
    /// A partial that only a computed name can reach may hold an error; the error is returned when it is
    /// included.
    partials: HashMap<Box<str>, Result<Unit, Error>>,
    variables: BTreeSet<Box<str>>,
    text_bytes: usize,
}

impl Library {
    /// Compiles a template and, transitively, the partials that it names.
    pub(crate) fn compile(
        text: &str,
        start: Position,
        label: Option<Arc<str>>,
        definitions: &Definitions,
    ) -> Result<Self, Error> {
        let mut compiler = Compiler {
            definitions,
            source_bytes: 0,
            tags: 0,
            partials: HashMap::new(),
        };
        let main = compiler.unit(Source { text, start, label })?;
        let mut computed = main.facts.computes_partials;
        let mut wanted: Vec<Box<str>> = main.facts.partials.iter().cloned().collect();
        while let Some(name) = wanted.pop() {
            match compiler.partial(&name)? {
                Some(Err(error)) => return Err(error.clone()),
                Some(Ok(unit)) => {
                    wanted.extend(unit.facts.partials.iter().cloned());
                    computed |= unit.facts.computes_partials;
                }
                None => {}
            }
        }
        if computed {
            compiler.compile_all()?;
        }
        let Compiler {
            partials,
            source_bytes: text_bytes,
            ..
        } = compiler;
        let units = partials.values().filter_map(|unit| unit.as_ref().ok());
        let variables = units
            .chain([&main])
            .flat_map(|unit| unit.facts.variables.iter().cloned())
            .collect();
        let library = Self {
            main,
            partials,
            variables,
            text_bytes,
        };
        library.check_cycles()?;
        Ok(library)
    }

    pub(super) fn main(&self) -> &Unit {
        &self.main
    }

    pub(super) fn partial(&self, name: &str) -> Option<&Result<Unit, Error>> {
        self.partials.get(name)
    }

    /// Returns the size of the source, an estimate of the size of the output.
    pub(super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Returns the `@` variables that the template or one of its partials reads.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|name| &**name)
    }

    /// Returns the template and every partial of it that compiled.
    fn units(&self) -> impl Iterator<Item = &Unit> {
        self.partials
            .values()
            .filter_map(|unit| unit.as_ref().ok())
            .chain([&self.main])
    }

    /// Returns the names of the inline partials. One is visible to the partials that its template includes,
    /// wherever those are.
    fn inlines(&self) -> BTreeSet<&str> {
        let names = self.units().flat_map(|unit| &unit.facts.inlines);
        names.map(|name| &**name).collect()
    }

    /// Returns an error for each include of a partial that is not defined.
    pub(crate) fn unknown_partials(&self) -> Vec<Error> {
        let inlines = self.inlines();
        let mut unknown: Vec<Error> = Vec::new();
        for unit in self.units() {
            unit.program.each_include(&mut |include| {
                if let IncludeName::Fixed(name) = &include.name
                    && include.body.is_none()
                    && !self.partials.contains_key(name)
                    && !inlines.contains(&**name)
                {
                    let kind = ErrorKind::UnknownPartial(name.to_string());
                    unknown.push(Error::at(kind, include.at.in_file(unit.label.as_ref())));
                }
            });
        }
        unknown.sort_by_key(ToString::to_string);
        unknown
    }

    /// Refuses partials that include each other unconditionally. A conditional cycle is allowed and is
    /// bounded when it runs.
    fn check_cycles(&self) -> Result<(), Error> {
        let inlines = self.inlines();
        let mut finished = BTreeSet::new();
        for start in &self.main.facts.always {
            self.follow(start, &inlines, &mut Vec::new(), &mut finished)?;
        }
        Ok(())
    }

    fn follow<'l>(
        &'l self,
        name: &'l str,
        inlines: &BTreeSet<&str>,
        chain: &mut Vec<&'l str>,
        finished: &mut BTreeSet<&'l str>,
    ) -> Result<(), Error> {
        // An inline partial may replace a defined one of that name, so an include of it proves no cycle.
        let Some(Ok(unit)) = self.partials.get(name).filter(|_| !inlines.contains(name)) else {
            return Ok(());
        };
        if let Some(first) = chain.iter().position(|seen| *seen == name) {
            let names = chain[first..]
                .iter()
                .chain([&name])
                .map(|name| (*name).to_owned())
                .collect();
            let at = || Some(Position::START.in_file(unit.label.as_ref()));
            return Err(Error::new(ErrorKind::PartialCycle(names)).or_at(at));
        }
        if !finished.insert(name) {
            return Ok(());
        }
        chain.push(name);
        for next in &unit.facts.always {
            self.follow(next, inlines, chain, finished)?;
        }
        chain.pop();
        Ok(())
    }
}

struct Compiler<'d> {
    definitions: &'d Definitions,
    source_bytes: usize,
    tags: usize,
    partials: HashMap<Box<str>, Result<Unit, Error>>,
}

impl Compiler<'_> {
    fn unit(&mut self, source: Source<'_>) -> Result<Unit, Error> {
        let mut limits = self.definitions.limits.clone();
        self.source_bytes += source.text.len();
        if self.source_bytes > limits.source_bytes {
            let at = source.start.in_file(source.label.as_ref());
            return Err(Error::at(ErrorKind::LimitExceeded(Limit::SourceBytes), at));
        }
        limits.tags -= self.tags;
        let unit = Unit::compile(source, &self.definitions.helpers, &limits)?;
        self.tags += unit.facts.tags;
        Ok(unit)
    }

    /// Compiles a partial; returns `None` if it was compiled before or is not defined.
    fn partial(&mut self, name: &str) -> Result<Option<&Result<Unit, Error>>, Error> {
        if self.partials.contains_key(name) {
            return Ok(None);
        }
        let Some(found) = self.definitions.partial(name)? else {
            return Ok(None);
        };
        if self.partials.len() >= self.definitions.limits.partials {
            return Err(Error::new(ErrorKind::LimitExceeded(Limit::Partials)));
        }
        let unit = self.unit(Source {
            text: &found.source,
            start: Position::START,
            label: Some(found.label),
        });
        match unit {
            Err(error) if matches!(error.kind(), ErrorKind::LimitExceeded(_)) => Err(error),
            unit => Ok(Some(self.partials.entry(name.into()).or_insert(unit))),
        }
    }

    /// Compiles every defined partial and the partials they name, because a computed name may reach any of
    /// them.
    fn compile_all(&mut self) -> Result<(), Error> {
        let mut wanted: Vec<Box<str>> = self
            .definitions
            .partials
            .keys()
            .map(|name| name.as_str().into())
            .collect();
        while let Some(name) = wanted.pop() {
            if let Some(Ok(unit)) = self.partial(&name)? {
                wanted.extend(unit.facts.partials.iter().cloned());
            }
        }
        Ok(())
    }
}

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
