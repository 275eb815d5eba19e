//! The machine that runs a compiled template.

use std::borrow::Cow;

use serde_json::Value;

use super::library::Library;
use super::path::{Origin, Path};
use super::print;
use super::program::{Expr, Node, Program};
use super::scope::{Ambient, Inlines, Scope};
use super::value::Val;
use crate::output::{Mark, Output};
use crate::position::Position;
use crate::{Error, ErrorKind, Limit, Limits};

/// The number of keys whose look-up costs one step.
const KEYS_PER_STEP: usize = 8;
/// The number of bytes whose search or comparison costs one step.
pub(super) const BYTES_PER_STEP: usize = 64;

/// Renders the library's main template.
pub(crate) fn render<'r>(
    library: &'r Library,
    ambient: &'r Ambient<'r>,
    limits: &'r Limits,
) -> Result<Output, Error> {
    let mut machine = Machine {
        library,
        ambient,
        limits,
        steps: 0,
        written: 0,
        depth: 0,
        partials: Vec::new(),
        out: Output {
            text: String::with_capacity(library.text_bytes()),
            marks: Vec::with_capacity(8),
        },
    };
    let unit = library.main();
    let scope = Scope::root(Val::Ref(ambient.root), unit);
    machine
        .run(&unit.program, &scope)
        .map_err(|error| error.or_at(|| Some(unit.start.in_file(unit.label.as_ref()))))?;
    Ok(machine.out)
}

pub(super) struct Machine<'r> {
    pub(super) library: &'r Library,
    ambient: &'r Ambient<'r>,
    limits: &'r Limits,
    steps: u64,
    written: usize,
    depth: usize,
    /// The names of the active partials, the innermost last.
    pub(super) partials: Vec<Cow<'r, str>>,
    /// The output so far; that of the innermost [`Machine::captured`] while one runs.
    out: Output,
}

impl<'r> Machine<'r> {
    pub(super) fn run(&mut self, program: &'r Program, scope: &Scope<'_, 'r>) -> Result<(), Error> {
        if program.inlines.is_empty() {
            return self.nodes(program, scope);
        }
        let inlines = Inlines {
            entries: &program.inlines,
            scope,
            parent: scope.inlines,
        };
        let mut scope = scope.clone();
        scope.inlines = Some(&inlines);
        self.nodes(program, &scope)
    }

    fn nodes(&mut self, program: &'r Program, scope: &Scope<'_, 'r>) -> Result<(), Error> {
        for node in &program.nodes {
            self.charge(1)?;
            match node {
                Node::Text(text) => self.write(text)?,
                Node::Mark(mark) => self.mark(mark.clone())?,
                Node::Print(path) => {
                    let value = self.path(path, scope)?;
                    self.print(&value)?;
                }
                Node::Call(call) => self.call_statement(call, None, scope)?,
                Node::Block(block) => {
                    self.nest(block.at, scope, |machine| machine.block(block, scope))?;
                }
                Node::Include(include) => {
                    self.nest(include.at, scope, |machine| machine.include(include, scope))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn eval(&mut self, expr: &'r Expr, scope: &Scope<'_, 'r>) -> Result<Val<'r>, Error> {
        match expr {
            Expr::Literal(value) => Ok(Val::Ref(value)),
            Expr::Path(path) => self.path(path, scope),
            Expr::Call(call) => self.nest(call.at, scope, |machine| machine.call_value(call, scope)),
        }
    }

    pub(super) fn path(&mut self, path: &'r Path, scope: &Scope<'_, 'r>) -> Result<Val<'r>, Error> {
        let start = match &path.origin {
            Origin::Scope(up) => scope.context(*up),
            Origin::Parameter { up, slot } => scope.parameter(*up, *slot),
            Origin::Variable { up, name } => match scope.loop_variable(*up, name) {
                Some(value) => value,
                None => match (self.ambient.given(name), &**name) {
                    (Some(value), _) => Val::Ref(value),
                    (None, "root") => Val::Ref(self.ambient.root),
                    (None, "metadata") => return self.ambient.metadata(&path.keys),
                    (None, _) => Val::Missing,
                },
            },
        };
        self.charge((path.keys.len() + start.layered_keys()) / KEYS_PER_STEP)?;
        if let Some((last, before)) = path.keys.split_last().filter(|(last, _)| ***last == *"length") {
            let value = start.walk(before);
            // Counting a text's characters takes time in proportion to its bytes, so it costs steps.
            let bytes = value.as_value().and_then(Value::as_str).map_or(0, str::len);
            self.charge(bytes / BYTES_PER_STEP)?;
            return Ok(value.get(last));
        }
        Ok(start.walk(&path.keys))
    }

    pub(super) fn print(&mut self, value: &Val<'r>) -> Result<(), Error> {
        match value {
            Val::Missing => Ok(()),
            Val::Layered(_) => self.write("[object Object]"),
            value => match value.as_value() {
                Some(Value::String(text)) => self.write(text),
                Some(value) => {
                    let before = self.out.text.len();
                    print::push(&mut self.out.text, value);
                    self.count(self.out.text.len() - before)
                }
                None => Ok(()),
            },
        }
    }

    /// Returns what `run` writes, instead of appending it to the output.
    pub(super) fn captured(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<Output, Error> {
        let outer = std::mem::take(&mut self.out);
        let result = run(self);
        let captured = std::mem::replace(&mut self.out, outer);
        result.map(|()| captured)
    }

    /// Appends captured output.
    pub(super) fn append(&mut self, output: Output) -> Result<(), Error> {
        self.count(output.text.len())?;
        self.out.append(output);
        Ok(())
    }

    pub(super) fn write(&mut self, text: &str) -> Result<(), Error> {
        self.count(text.len())?;
        self.out.text.push_str(text);
        Ok(())
    }

    pub(super) fn mark(&mut self, mark: Mark) -> Result<(), Error> {
        let payload = match &mark {
            Mark::Media(media) => media.url.len(),
            Mark::Section(name) => name.len(),
            Mark::Role(_) | Mark::History => 0,
        };
        self.count(payload + size_of::<Mark>())?;
        self.out.mark(mark);
        Ok(())
    }

    /// Counts output bytes; fails if they exceed the limit.
    pub(super) fn count(&mut self, bytes: usize) -> Result<(), Error> {
        self.written = self.written.saturating_add(bytes);
        if self.written > self.limits.output_bytes {
            return Err(exceeded(Limit::OutputBytes));
        }
        Ok(())
    }

    /// Counts steps; fails if they exceed the limit.
    pub(super) fn charge(&mut self, steps: usize) -> Result<(), Error> {
        self.steps = self.steps.saturating_add(steps as u64);
        if self.steps > self.limits.steps {
            return Err(exceeded(Limit::Steps));
        }
        Ok(())
    }

    /// Runs `inner` one level deeper.
    fn nest<T>(
        &mut self,
        at: Position,
        scope: &Scope<'_, 'r>,
        inner: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let place = || Some(at.in_file(scope.unit.label.as_ref()));
        if self.depth >= self.limits.depth {
            return Err(self
                .cycle()
                .unwrap_or_else(|| exceeded(Limit::Depth).or_at(place)));
        }
        self.depth += 1;
        let result = inner(self).map_err(|error| error.or_at(place));
        self.depth -= 1;
        result
    }

    pub(super) fn enter_partial(&mut self, name: Cow<'r, str>) -> Result<(), Error> {
        self.partials.push(name);
        if self.partials.len() > self.limits.partial_depth {
            return Err(self.cycle().unwrap_or_else(|| exceeded(Limit::PartialDepth)));
        }
        Ok(())
    }

    /// Returns the error that names the partials which include each other, if the innermost is one of them.
    fn cycle(&self) -> Option<Error> {
        let (last, before) = self.partials.split_last()?;
        let again = before.iter().rposition(|name| name == last)?;
        let names = self.partials[again..]
            .iter()
            .map(|name| name.clone().into_owned())
            .collect();
        Some(Error::new(ErrorKind::PartialCycle(names)))
    }
}

fn exceeded(limit: Limit) -> Error {
    Error::new(ErrorKind::LimitExceeded(limit))
}
