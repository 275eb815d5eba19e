//! Variables, literals and calls of helpers.

use serde_json::Value;

use super::Parser;
use crate::error::ErrorKind;
use crate::position::Position;
use crate::template::path::{Origin, Path};
use crate::template::program::{BlockKind, Call, Callee, Expr, helper_error};
use crate::template::scan::{ParseError, Tag, Token, is_identifier};

/// The remaining tokens of a tag.
pub(super) struct Tokens<'t, 's> {
    rest: &'t [Token<'s>],
    at: Position,
}

impl<'t, 's> Tokens<'t, 's> {
    pub(super) fn of(tag: &'t Tag<'s>) -> Self {
        Self {
            rest: &tag.tokens,
            at: tag.at,
        }
    }

    pub(super) fn error(&self, kind: ErrorKind) -> ParseError {
        ParseError { kind, at: self.at }
    }

    fn unexpected(&self, token: Option<&Token<'_>>) -> ParseError {
        let message = match token {
            Some(Token::Word(word)) => format!("unexpected '{word}'"),
            Some(Token::Text(text)) => format!("unexpected \"{text}\""),
            Some(Token::Symbol(symbol)) => format!("unexpected '{symbol}'"),
            None => "the tag is incomplete".to_owned(),
        };
        ParseError::new(self.at, message)
    }

    pub(super) fn next(&mut self) -> Option<&'t Token<'s>> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Returns whether no arguments are left.
    fn is_done(&self) -> bool {
        matches!(
            self.rest,
            [] | [Token::Symbol(')'), ..] | [Token::Word("as"), Token::Symbol('|'), ..]
        )
    }

    pub(super) fn end(&self) -> Result<(), ParseError> {
        match self.rest.first() {
            None => Ok(()),
            token => Err(self.unexpected(token)),
        }
    }

    /// Takes the names of `as |item index|` at the end of the tag.
    pub(super) fn block_parameters(&self) -> Result<Vec<Box<str>>, ParseError> {
        let [
            Token::Word("as"),
            Token::Symbol('|'),
            names @ ..,
            Token::Symbol('|'),
        ] = self.rest
        else {
            self.end()?;
            return Ok(Vec::new());
        };
        let name = |token: &Token<'_>| match token {
            Token::Word(word) if is_identifier(word) => Some((*word).into()),
            _ => None,
        };
        let names: Option<Vec<_>> = names.iter().map(name).collect();
        names
            .filter(|names| matches!(names.len(), 1 | 2))
            .ok_or_else(|| ParseError::new(self.at, "a block has one or two parameters"))
    }
}

/// The start of a tag, a chained alternative or an expression in parentheses.
pub(super) enum Head<'t> {
    Variable(Path),
    /// The name of a helper, which may not exist.
    Helper(&'t str),
}

#[derive(Default)]
pub(super) struct Arguments {
    pub(super) args: Vec<Expr>,
    /// The `key=value` arguments, each key once.
    pub(super) hash: Vec<(Box<str>, Expr)>,
}

impl<'s> Parser<'s> {
    /// Parses a variable, or a helper with or without arguments.
    pub(super) fn expression(&mut self, tokens: &mut Tokens<'_, 's>) -> Result<Expr, ParseError> {
        if let [Token::Symbol('('), ..] = tokens.rest {
            tokens.next();
            return self.subexpression(tokens);
        }
        Ok(match self.head(tokens)? {
            Head::Variable(path) => Expr::Path(path),
            Head::Helper(name) => Expr::Call(Box::new(self.call(name, tokens)?)),
        })
    }

    /// Parses the rest of an expression in parentheses.
    pub(super) fn subexpression(&mut self, tokens: &mut Tokens<'_, 's>) -> Result<Expr, ParseError> {
        let expression = self.expression(tokens)?;
        match tokens.next() {
            Some(Token::Symbol(')')) => {}
            token => return Err(tokens.unexpected(token)),
        }
        if let Expr::Call(call) = &expression
            && let Some(name) = call.callee.marking()
        {
            let message = "it inserts a mark and cannot be used in parentheses";
            return Err(tokens.error(helper_error(name, message)));
        }
        Ok(expression)
    }

    /// Takes a name. It is a variable if no arguments follow and no helper has that name.
    pub(super) fn head<'t>(&mut self, tokens: &mut Tokens<'t, 's>) -> Result<Head<'t>, ParseError> {
        let token = tokens.next();
        match token {
            Some(Token::Text(name)) if tokens.is_done() => Ok(Head::Variable(Path::key(name))),
            Some(Token::Word(name))
                if tokens.is_done() && (!self.is_helper(name) || self.is_parameter(name)) =>
            {
                Ok(Head::Variable(self.path(name, tokens.at)?))
            }
            Some(Token::Word(name)) => Ok(Head::Helper(name)),
            Some(Token::Text(name)) => Ok(Head::Helper(name)),
            _ => Err(tokens.unexpected(token)),
        }
    }

    pub(super) fn call(&mut self, name: &str, tokens: &mut Tokens<'_, 's>) -> Result<Call, ParseError> {
        let Arguments { args, hash } = self.arguments(tokens)?;
        let call = Call {
            callee: self.callee(name).map_err(|kind| tokens.error(kind))?,
            args,
            hash,
            at: tokens.at,
        };
        match call.argument_error() {
            None => Ok(call),
            Some(message) => Err(tokens.error(helper_error(name, message))),
        }
    }

    pub(super) fn arguments(&mut self, tokens: &mut Tokens<'_, 's>) -> Result<Arguments, ParseError> {
        let Arguments { mut args, mut hash } = Arguments::default();
        while !tokens.is_done() {
            if let [Token::Word(key), Token::Symbol('='), rest @ ..] = tokens.rest
                && is_identifier(key)
            {
                tokens.rest = rest;
                let value = self.value(tokens)?;
                hash.retain(|(other, _): &(Box<str>, _)| **other != **key);
                hash.push(((*key).into(), value));
            } else {
                args.push(self.value(tokens)?);
            }
        }
        // The original assigns them from the last to the first. The order is visible when a partial prints
        // its context.
        hash.reverse();
        Ok(Arguments { args, hash })
    }

    fn value(&mut self, tokens: &mut Tokens<'_, 's>) -> Result<Expr, ParseError> {
        let token = tokens.next();
        Ok(match token {
            Some(Token::Text(text)) => Expr::Literal(Value::from(&**text)),
            Some(Token::Word(word)) => match literal(word) {
                Some(value) => Expr::Literal(value),
                None => Expr::Path(self.path(word, tokens.at)?),
            },
            Some(Token::Symbol('(')) => self.subexpression(tokens)?,
            _ => return Err(tokens.unexpected(token)),
        })
    }

    fn path(&mut self, raw: &str, at: Position) -> Result<Path, ParseError> {
        let path = Path::parse(raw, &self.parameters)
            .ok_or_else(|| ParseError::new(at, format!("'{raw}' is not a valid path")))?;
        if let Origin::Variable { name, .. } = &path.origin {
            self.facts.variables.insert(name.clone());
        }
        Ok(path)
    }

    fn is_parameter(&self, name: &str) -> bool {
        self.parameters.iter().flatten().any(|bound| **bound == *name)
    }

    fn is_helper(&self, name: &str) -> bool {
        self.helpers.contains_key(name) || Callee::builtin(name).is_some() || BlockKind::is_builtin(name)
    }

    fn callee(&self, name: &str) -> Result<Callee, ErrorKind> {
        if let Some(helper) = self.helpers.get(name) {
            return Ok(Callee::Custom(name.into(), helper.clone()));
        }
        if BlockKind::is_builtin(name) {
            return Err(helper_error(name, "it needs a block"));
        }
        Callee::builtin(name).ok_or_else(|| ErrorKind::UnknownHelper(name.to_owned()))
    }
}

/// Returns the value of a number, `true`, `false` or `null`. As in the original, `1e5` is a name.
fn literal(word: &str) -> Option<Value> {
    let is_number = word.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && !word.contains('e');
    match word {
        "null" => Some(Value::Null),
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        // JSON has no leading zeros.
        _ if is_number => word
            .parse::<i64>()
            .map_or_else(|_| serde_json::from_str(word), |n| Ok(n.into()))
            .ok(),
        _ => None,
    }
}
