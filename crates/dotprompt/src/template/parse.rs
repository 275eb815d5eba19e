//! The parser: from tags and texts to a [`Program`].
//!
//! The scanner has paired the blocks and bounded their depth. The parser decides which expressions and
//! alternatives a tag may have, and resolves names to helpers, block parameters and variables.

mod expression;

use std::collections::HashMap;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec;

use self::expression::{Arguments, Head, Tokens};
use super::library::{Facts, Source};
use super::markers;
use super::program::{Block, BlockKind, Expr, Include, IncludeName, Node, Program, helper_error};
use super::scan::{Form, ParseError, Tag, Token, scan};
use crate::{Helper, Limits};

pub(super) fn parse(
    source: &Source<'_>,
    helpers: &HashMap<String, Arc<dyn Helper>>,
    limits: &Limits,
) -> Result<(Program, Facts), ParseError> {
    let (tags, texts) = scan(source.text, source.start, limits)?;
    let mut parser = Parser {
        facts: Facts {
            tags: tags.len(),
            ..Facts::default()
        },
        tags: tags.into_iter().peekable(),
        texts: texts.into_iter(),
        helpers,
        parameters: Vec::new(),
        conditional: 0,
    };
    let program = parser.program()?;
    Ok((program, parser.facts))
}

struct Parser<'s> {
    tags: Peekable<vec::IntoIter<Tag<'s>>>,
    /// The texts before each remaining tag and after the last.
    texts: vec::IntoIter<String>,
    helpers: &'s HashMap<String, Arc<dyn Helper>>,
    facts: Facts,
    /// The visible block parameters, those of the innermost block last.
    parameters: Vec<Vec<Box<str>>>,
    /// The number of enclosing blocks that may skip the current statement.
    conditional: usize,
}

impl<'s> Parser<'s> {
    /// Parses statements up to the alternative or the end of the enclosing block.
    fn program(&mut self) -> Result<Program, ParseError> {
        let mut program = Program::default();
        let mut text = String::new();
        loop {
            text += &self.texts.next().unwrap_or_default();
            // A comment does not separate the texts around it.
            if self.tags.next_if(|tag| tag.form == Form::Comment).is_some() {
                continue;
            }
            markers::push_text(&mut program.nodes, std::mem::take(&mut text));
            let in_program = |tag: &Tag<'_>| tag.form != Form::Close && !tag.form.is_alternative();
            let Some(tag) = self.tags.next_if(in_program) else {
                return Ok(program);
            };
            match tag.form {
                Form::Mustache => program.nodes.push(self.mustache(&tag)?),
                Form::Partial | Form::PartialOpen => {
                    let include = self.include(tag)?;
                    program.nodes.push(Node::Include(Box::new(include)));
                }
                Form::Decorator | Form::DecoratorOpen => program.inlines.push(self.inline(&tag)?),
                _ => {
                    let block = self.block(&tag)?;
                    program.nodes.push(Node::Block(Box::new(block)));
                    self.close()?;
                }
            }
        }
    }

    /// Parses statements that do not always run.
    fn conditional_program(&mut self) -> Result<Program, ParseError> {
        self.conditional += 1;
        let program = self.program();
        self.conditional -= 1;
        program
    }

    /// Takes the end of the enclosing block.
    fn close(&mut self) -> Result<(), ParseError> {
        match self.tags.next().filter(|tag| tag.form != Form::Close) {
            Some(tag) => Err(ParseError::new(tag.at, "unexpected 'else'")),
            None => Ok(()),
        }
    }

    fn mustache(&mut self, tag: &Tag<'s>) -> Result<Node, ParseError> {
        let mut tokens = Tokens::of(tag);
        let expression = self.expression(&mut tokens)?;
        tokens.end()?;
        Ok(match expression {
            Expr::Path(path) => Node::Print(path),
            Expr::Call(call) => Node::Call(call),
            Expr::Literal(_) => return Err(ParseError::new(tag.at, "expected a variable or a helper")),
        })
    }

    /// Parses a block or a chained alternative, up to the end of the block.
    fn block(&mut self, tag: &Tag<'s>) -> Result<Block, ParseError> {
        let mut tokens = Tokens::of(tag);
        let kind = if tag.form == Form::RawOpen && matches!(tag.tokens[..], [Token::Word("raw")]) {
            tokens.next();
            BlockKind::Verbatim
        } else {
            self.block_kind(&mut tokens)?
        };
        let names = tokens.block_parameters()?;
        let binds = names.len();
        self.parameters.extend((binds > 0).then_some(names));
        let mut body = self.conditional_program()?;
        if binds > 0 {
            self.parameters.pop();
        }
        let mut inverse = Program::default();
        if let Some(alternative) = self.tags.next_if(|tag| tag.form.is_alternative()) {
            if alternative.form == Form::Else {
                inverse = self.conditional_program()?;
            } else {
                self.conditional += 1;
                let chained = self.block(&alternative)?;
                self.conditional -= 1;
                inverse.nodes.push(Node::Block(Box::new(chained)));
            }
        }
        if tag.form == Form::InverseOpen {
            std::mem::swap(&mut body, &mut inverse);
        }
        Ok(Block {
            kind,
            body,
            inverse,
            binds,
            at: tag.at,
        })
    }

    fn block_kind(&mut self, tokens: &mut Tokens<'_, 's>) -> Result<BlockKind, ParseError> {
        let name = match self.head(tokens)? {
            Head::Variable(path) => return Ok(BlockKind::Section(path)),
            Head::Helper(name) => name,
        };
        if self.helpers.contains_key(name) || !BlockKind::is_builtin(name) {
            return Ok(BlockKind::Call(self.call(name, tokens)?));
        }
        let Arguments { args, hash } = self.arguments(tokens)?;
        let include_zero = hash.into_iter().find(|(key, _)| **key == *"includeZero");
        BlockKind::builtin(name, args, include_zero.map(|(_, value)| value))
            .map_err(|message| tokens.error(helper_error(name, message)))
    }

    fn include(&mut self, tag: Tag<'s>) -> Result<Include, ParseError> {
        let mut tokens = Tokens::of(&tag);
        let name = match tokens.next() {
            Some(Token::Symbol('(')) => IncludeName::Computed(self.subexpression(&mut tokens)?),
            Some(Token::Word("@partial-block")) => IncludeName::CallerBlock,
            Some(name @ (Token::Word(_) | Token::Text(_))) => IncludeName::Fixed(name.name().into()),
            _ => return Err(ParseError::new(tag.at, "expected the name of a partial")),
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
        let Arguments { mut args, hash } = self.arguments(&mut tokens)?;
        tokens.end()?;
        if args.len() > 1 {
            return Err(ParseError::new(tag.at, "a partial takes one context at most"));
        }
        let mut body = None;
        if tag.form == Form::PartialOpen {
            body = Some(self.conditional_program()?);
            self.close()?;
        }
        Ok(Include {
            name,
            context: args.pop(),
            hash,
            body,
            indent: tag.indent,
            at: tag.at,
        })
    }

    fn inline(&mut self, tag: &Tag<'s>) -> Result<(Box<str>, Program), ParseError> {
        let name: Box<str> = match &tag.tokens[..] {
            [Token::Word("inline"), Token::Text(name)] if tag.form == Form::DecoratorOpen => (**name).into(),
            [Token::Word("inline"), ..] if tag.form == Form::DecoratorOpen => {
                let message = "an inline partial needs a name in quotation marks";
                return Err(ParseError::new(tag.at, message));
            }
            _ => {
                return Err(ParseError::new(
                    tag.at,
                    format!("unknown decorator '{}'", tag.name()),
                ));
            }
        };
        self.facts.inlines.insert(name.clone());
        let program = self.conditional_program()?;
        self.close()?;
        Ok((name, program))
    }
}
