//! Includes of partials: defined ones, inline ones, and the block that the including template passes.

use std::borrow::Cow;
use std::rc::Rc;

use super::machine::Machine;
use super::program::{Include, IncludeName, Program};
use super::scope::{CallerBlock, Frame, Inlines, Scope};
use super::value::{Layered, Val};
use crate::error::{Error, ErrorKind};

/// The steps that one include costs, because searching the inline partials takes time.
const STEPS_PER_PARTIAL: usize = 8;

impl<'r> Machine<'r> {
    pub(super) fn include(&mut self, include: &'r Include, scope: &Scope<'_, 'r>) -> Result<(), Error> {
        let this = self.partial_context(include, scope)?;
        match &include.indent {
            None => self.include_in(include, this, scope),
            Some(indent) => {
                let inner = self.captured(|machine| machine.include_in(include, this, scope))?;
                self.append(inner.indented(indent))
            }
        }
    }

    /// Returns the partial's context: the given one or the current one, with the named arguments on top.
    fn partial_context(&mut self, include: &'r Include, scope: &Scope<'_, 'r>) -> Result<Val<'r>, Error> {
        let base = match &include.context {
            Some(context) => self.eval(context, scope)?,
            None => scope.this.clone(),
        };
        if include.hash.is_empty() {
            return Ok(base);
        }
        let mut over = Vec::with_capacity(include.hash.len());
        for (key, value) in &include.hash {
            over.push((&**key, self.eval(value, scope)?));
        }
        Ok(Val::Layered(Rc::new(Layered::new(base, over))))
    }

    fn include_in(
        &mut self,
        include: &'r Include,
        this: Val<'r>,
        scope: &Scope<'_, 'r>,
    ) -> Result<(), Error> {
        let name = match &include.name {
            IncludeName::Fixed(name) => Cow::Borrowed(&**name),
            IncludeName::Computed(expr) => {
                let value = self.eval(expr, scope)?;
                Cow::Owned(self.text(&value)?)
            }
            IncludeName::CallerBlock => return self.include_caller(include, this, scope),
        };
        self.charge(STEPS_PER_PARTIAL)?;
        self.enter_partial(name.clone())?;

        // The include's block may define inline partials for the partial. An include without a block passes
        // on the block that this template received.
        let caller = include.body.as_ref().map(|body| CallerBlock { body, scope });
        let passed = include.body.as_ref().filter(|body| !body.inlines.is_empty());
        let inlines = passed.map(|body| Inlines {
            entries: &body.inlines,
            scope,
            parent: scope.inlines,
        });
        let frame = include.body.as_ref().map(|_| block_frame(scope));

        let (program, mut inner) = if let Some((program, defined)) = scope.inline(&name) {
            (program, defined.child(this))
        } else if let Some(unit) = self.library.partial(&name) {
            let unit = unit.as_ref().map_err(Clone::clone)?;
            (&unit.program, Scope::root(this, unit))
        } else if let Some(body) = &include.body {
            self.fall_back(body, this, scope)?;
            self.partials.pop();
            return Ok(());
        } else {
            return Err(Error::new(ErrorKind::UnknownPartial(name.into_owned())));
        };
        inner.frame = frame.as_ref().or(scope.frame);
        inner.inlines = inlines.as_ref().or(scope.inlines);
        inner.caller = caller.as_ref().or(scope.caller);
        self.run(program, &inner)?;
        self.partials.pop();
        Ok(())
    }

    /// Renders the include's own block, because the partial is not defined.
    fn fall_back(&mut self, body: &'r Program, this: Val<'r>, scope: &Scope<'_, 'r>) -> Result<(), Error> {
        let outer = block_frame(scope);
        let frame = Frame {
            iteration: None,
            parent: Some(&outer),
        };
        let mut inner = scope.child(this);
        inner.frame = Some(&frame);
        self.run(body, &inner)
    }

    /// Renders `@partial-block`, the block that the including template passed, in the scope in which it was
    /// written.
    fn include_caller(
        &mut self,
        include: &'r Include,
        this: Val<'r>,
        scope: &Scope<'_, 'r>,
    ) -> Result<(), Error> {
        let Some(caller) = scope.caller else {
            return match &include.body {
                Some(body) => self.fall_back(body, this, scope),
                None => Err(Error::new(ErrorKind::UnknownPartial("@partial-block".to_owned()))),
            };
        };
        let frame = block_frame(scope);
        let mut inner = caller.scope.child(this);
        inner.frame = Some(&frame);
        self.run(caller.body, &inner)
    }
}

/// Returns the frame that a passed block adds; `@../` steps over it.
fn block_frame<'s, 'r>(scope: &Scope<'s, 'r>) -> Frame<'s, 'r> {
    Frame {
        iteration: None,
        parent: scope.frame,
    }
}
