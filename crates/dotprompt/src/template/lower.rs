//! Lowering of the parser's syntax tree to a [`Program`].

mod expression;
mod statement;

use std::collections::HashMap;
use std::sync::Arc;
use std::vec;

use handlebars::Template;
use handlebars::template::{HelperTemplate, TemplateElement};

use super::markers;
use super::path::{Origin, Path};
use super::program::{Expr, Node, Program};
use super::scan::{Form, Head, Scan, Tag};
use super::unit::{Facts, Source};
use crate::error::ErrorKind;
use crate::helper::Helper;
use crate::position::Position;

/// The result of lowering; an error has its position.
pub(super) type Lowered<T> = Result<T, (ErrorKind, Position)>;

/// Lowers a syntax tree and puts the texts and strings back that the scan replaced.
pub(super) fn lower(
    template: Template,
    scan: Scan,
    source: &Source<'_>,
    helpers: &HashMap<String, Arc<dyn Helper>>,
) -> Lowered<(Program, Facts)> {
    let mut lowering = Lowering {
        tags: scan.tags.into_iter(),
        texts: scan.texts.into_iter(),
        strings: scan.strings,
        helpers,
        place: Place {
            text: source.text,
            start: source.start,
            offset: 0,
            position: Position::START,
        },
        facts: Facts {
            tags: scan.seen,
            ..Facts::default()
        },
        parameters: Vec::new(),
        conditional: 0,
    };
    let program = lowering.template(template)?;
    Ok((program, lowering.facts))
}

fn syntax(message: impl Into<String>) -> ErrorKind {
    ErrorKind::Syntax(message.into())
}

/// Finds lines and columns of ascending offsets in one pass.
struct Place<'s> {
    text: &'s str,
    start: Position,
    offset: usize,
    position: Position,
}

impl Place<'_> {
    fn of(&mut self, offset: usize) -> Position {
        self.position = self
            .position
            .advance(&self.text[self.offset..], offset - self.offset);
        self.offset = offset;
        self.start.embed(self.position)
    }
}

struct Lowering<'s> {
    tags: vec::IntoIter<Tag>,
    texts: vec::IntoIter<String>,
    strings: Vec<String>,
    helpers: &'s HashMap<String, Arc<dyn Helper>>,
    place: Place<'s>,
    facts: Facts,
    /// The visible block parameters, those of the innermost block last.
    parameters: Vec<Vec<Box<str>>>,
    /// The number of enclosing blocks that may skip the current statement.
    conditional: usize,
}

impl Lowering<'_> {
    fn template(&mut self, template: Template) -> Lowered<Program> {
        let mut program = Program::default();
        for element in template.elements {
            match element {
                // Each letter stands for one text; there are several if comments separated the texts.
                TemplateElement::RawString(letters) => {
                    let text: String = self.texts.by_ref().take(letters.len()).collect();
                    markers::push_text(&mut program.nodes, text);
                }
                TemplateElement::Expression(tag) | TemplateElement::HtmlExpression(tag) => {
                    let node = self.mustache(*tag)?;
                    program.nodes.push(node);
                }
                TemplateElement::HelperBlock(block) => {
                    let block = self.block(*block)?;
                    program.nodes.push(Node::Block(Box::new(block)));
                }
                TemplateElement::PartialExpression(partial) | TemplateElement::PartialBlock(partial) => {
                    let include = self.include(*partial)?;
                    program.nodes.push(Node::Include(Box::new(include)));
                }
                TemplateElement::DecoratorBlock(decorator) => program.inlines.push(self.inline(*decorator)?),
                TemplateElement::DecoratorExpression(decorator) => {
                    let (_, at) = self.tag(&[Form::Decorator])?;
                    let name = decorator.name.as_name().unwrap_or_default();
                    return Err((syntax(format!("unknown decorator '{name}'")), at));
                }
                _ => {}
            }
        }
        Ok(program)
    }

    /// Takes the next tag of the scan, which must have one of the expected forms.
    fn tag(&mut self, forms: &[Form]) -> Lowered<(Tag, Position)> {
        let Some(tag) = self.tags.next() else {
            return Err((syntax("unexpected tag"), self.place.start));
        };
        let at = self.place.of(tag.offset);
        if forms.contains(&tag.form) {
            Ok((tag, at))
        } else {
            Err((syntax("unexpected tag"), at))
        }
    }

    fn mustache(&mut self, element: HelperTemplate) -> Lowered<Node> {
        let (tag, at) = self.tag(&[Form::Mustache])?;
        if let Some(head) = &tag.head {
            if !element.params.is_empty() || !element.hash.is_empty() {
                return Err((ErrorKind::UnknownHelper(tag.name().to_owned()), at));
            }
            return Ok(Node::Print(self.head_path(head)));
        }
        match self.expression(element.name, element.params, element.hash, at)? {
            Expr::Path(path) => Ok(Node::Print(path)),
            Expr::Call(call) => Ok(Node::Call(call)),
            Expr::Literal(_) => Err((syntax("expected a variable or a helper"), at)),
        }
    }

    fn head_path(&mut self, head: &Head) -> Path {
        match head {
            Head::Path(raw) => self.path(raw),
            Head::Key(name) => Path::key(name),
        }
    }

    fn path(&mut self, raw: &str) -> Path {
        let path = Path::parse(raw, &self.parameters);
        if let Origin::Variable { name, .. } = &path.origin {
            self.facts.variables.insert(name.clone());
        }
        path
    }
}
