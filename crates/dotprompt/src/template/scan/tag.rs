//! One tag: its form and its tokens.

use std::borrow::Cow;

use super::ParseError;
use crate::limits::{Limit, Limits};
use crate::position::Position;

/// The largest number of tokens in a tag, more than a person writes. Looking up an argument takes time in
/// proportion to the number of tokens.
const MAX_TOKENS: usize = 512;

pub(in crate::template) struct Tag<'s> {
    pub(in crate::template) form: Form,
    pub(in crate::template) at: Position,
    /// The offsets of its start and its end.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether `~` strips the text before it.
    pub(super) strips_left: bool,
    /// Whether `~` strips the text after it.
    pub(super) strips_right: bool,
    pub(in crate::template) tokens: Vec<Token<'s>>,
    /// The white space before a partial that is alone on its line.
    pub(in crate::template) indent: Option<Box<str>>,
}

#[derive(Clone, Copy, PartialEq)]
pub(in crate::template) enum Form {
    /// `{{x}}`, `{{{x}}}` or `{{&x}}`.
    Mustache,
    Comment,
    /// `{{> x}}`
    Partial,
    /// `{{* x}}`
    Decorator,
    /// `{{#x}}`
    Open,
    /// `{{^x}}`
    InverseOpen,
    /// `{{{{x}}}}`
    RawOpen,
    /// `{{#> x}}`
    PartialOpen,
    /// `{{#* x}}`
    DecoratorOpen,
    /// `{{else}}` or `{{^}}`
    Else,
    /// `{{else x}}`
    Chain,
    /// `{{/x}}` or `{{{{/x}}}}`
    Close,
}

impl Form {
    pub(super) fn opens(self) -> bool {
        matches!(
            self,
            Self::Open | Self::InverseOpen | Self::RawOpen | Self::PartialOpen | Self::DecoratorOpen
        )
    }

    pub(in crate::template) fn is_alternative(self) -> bool {
        matches!(self, Self::Else | Self::Chain)
    }
}

impl Tag<'_> {
    /// Returns the tag's name.
    pub(in crate::template) fn name(&self) -> &str {
        self.tokens.first().map_or("", Token::name)
    }
}

/// Reads the tag that starts at the offset `start`.
pub(super) fn read<'s>(
    source: &'s str,
    start: usize,
    at: Position,
    limits: &Limits,
) -> Result<Tag<'s>, ParseError> {
    let mut tag = Tag {
        form: Form::RawOpen,
        at,
        start,
        end: start,
        strips_left: false,
        strips_right: false,
        tokens: Vec::new(),
        indent: None,
    };
    if source[start..].starts_with("{{{{") {
        read_tokens(&mut tag, source, start + 4, "}}}}", limits)?;
        return Ok(tag);
    }
    let mut cursor = start + 2;
    tag.strips_left = source[cursor..].starts_with('~');
    cursor += usize::from(tag.strips_left);
    if source[cursor..].starts_with('!') {
        tag.form = Form::Comment;
        read_comment(&mut tag, source, cursor + 1)?;
        return Ok(tag);
    }
    let (form, cursor, close) = form(source, cursor);
    tag.form = form;
    read_tokens(&mut tag, source, cursor, close, limits)?;
    if tag.tokens.is_empty() && matches!(form, Form::Chain | Form::InverseOpen) {
        tag.form = Form::Else;
    }
    Ok(tag)
}

/// Returns the tag's form, the start of its tokens and its end.
fn form(source: &str, cursor: usize) -> (Form, usize, &'static str) {
    if source[cursor..].starts_with('{') {
        return (Form::Mustache, cursor + 1, "}}}");
    }
    let cursor = skip_space(source, cursor);
    let rest = &source[cursor..];
    let next = skip_space(source, cursor + rest.chars().next().map_or(0, char::len_utf8));
    let (form, start) = match rest.chars().next() {
        Some('#') if source[next..].starts_with('>') => (Form::PartialOpen, next + 1),
        Some('#') if source[next..].starts_with('*') => (Form::DecoratorOpen, next + 1),
        Some('#') => (Form::Open, next),
        Some('^') => (Form::InverseOpen, next),
        Some('/') => (Form::Close, next),
        Some('>') => (Form::Partial, next),
        Some('*') => (Form::Decorator, next),
        Some('&') => (Form::Mustache, next),
        _ if starts_with_else(rest) => (Form::Chain, cursor + "else".len()),
        _ => (Form::Mustache, cursor),
    };
    (form, start, "}}")
}

fn read_tokens<'s>(
    tag: &mut Tag<'s>,
    source: &'s str,
    mut cursor: usize,
    close: &str,
    limits: &Limits,
) -> Result<(), ParseError> {
    let here = |cursor| tag.at.advance(&source[tag.start..], cursor - tag.start);
    let mut depth = 0_usize;
    loop {
        cursor = skip_space(source, cursor);
        let rest = &source[cursor..];
        if let Some((length, strips)) = end_of_tag(rest, close) {
            tag.end = cursor + length;
            tag.strips_right = strips;
            return Ok(());
        }
        let Some((token, length)) = read_token(rest) else {
            let message = if rest.is_empty() {
                "the tag is never closed"
            } else {
                "a string or a bracket is never closed"
            };
            return Err(ParseError::new(tag.at, message));
        };
        match token {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') => depth = depth.saturating_sub(1),
            Token::Symbol(symbol) if !"=|".contains(symbol) => {
                return Err(ParseError::new(here(cursor), format!("unexpected '{symbol}'")));
            }
            _ => {}
        }
        if depth > limits.nesting {
            return Err(ParseError::exceeded(Limit::Nesting, here(cursor)));
        }
        if tag.tokens.len() >= MAX_TOKENS {
            return Err(ParseError::new(tag.at, "the tag has too many words"));
        }
        cursor += length;
        tag.tokens.push(token);
    }
}

/// Returns the length of the tag's end at the start of `rest`, and whether it strips.
fn end_of_tag(rest: &str, close: &str) -> Option<(usize, bool)> {
    if rest.starts_with(close) {
        return Some((close.len(), false));
    }
    // In `{{~{x}~}}` the tilde is inside the outer braces.
    let stripping = if close == "}}}" { "}~}}" } else { "~}}" };
    (close != "}}}}" && rest.starts_with(stripping)).then_some((stripping.len(), true))
}

fn read_comment(tag: &mut Tag<'_>, source: &str, start: usize) -> Result<(), ParseError> {
    let inner = &source[start..];
    let is_long = inner.starts_with("--");
    let ends = |at: &usize| {
        let before = &inner[..*at];
        !is_long || before.ends_with("--") || before.ends_with("--~")
    };
    let end = inner.match_indices("}}").map(|(at, _)| at).find(ends);
    let end = end.ok_or_else(|| ParseError::new(tag.at, "the comment is never closed"))?;
    tag.end = start + end + 2;
    tag.strips_right = inner[..end].ends_with('~');
    Ok(())
}

/// Returns the tag that closes a raw block.
pub(super) fn find_raw_end<'s>(source: &str, open: &Tag<'s>) -> Result<Tag<'s>, ParseError> {
    let close = format!("{{{{{{{{/{}}}}}}}}}", open.name());
    let Some(found) = source[open.end..].find(&close) else {
        return Err(ParseError::new(
            open.at,
            format!("the block '{}' is never closed", open.name()),
        ));
    };
    let start = open.end + found;
    Ok(Tag {
        form: Form::Close,
        start,
        end: start + close.len(),
        tokens: open.tokens.clone(),
        indent: None,
        ..*open
    })
}

/// White space in a tag.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

#[derive(Clone)]
pub(in crate::template) enum Token<'s> {
    /// A name, a path, a number or a keyword.
    Word(&'s str),
    /// A string literal without its quotation marks and escapes.
    Text(Cow<'s, str>),
    /// A parenthesis, a bar or an equals sign.
    Symbol(char),
}

impl Token<'_> {
    /// Returns the name of a tag whose first token this is.
    pub(in crate::template) fn name(&self) -> &str {
        match self {
            Self::Word(word) => {
                let literal = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
                literal.filter(|literal| !literal.contains(']')).unwrap_or(word)
            }
            Self::Text(text) => text,
            Self::Symbol(_) => "",
        }
    }
}

fn skip_space(source: &str, at: usize) -> usize {
    source.len() - source[at..].trim_start_matches(SPACE).len()
}

/// Returns whether the word can be one segment of a path without brackets, or the key of an argument.
pub(in crate::template) fn is_identifier(word: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_$:?".contains(c) || !c.is_ascii();
    !word.is_empty() && word.chars().all(is_allowed)
}

/// Returns whether the tag is `else` and not a longer name that starts with it.
fn starts_with_else(rest: &str) -> bool {
    rest.strip_prefix("else")
        .is_some_and(|rest| rest.starts_with(SPACE) || rest.starts_with(['~', '}']))
}

/// Reads the token at the start of `rest` and returns its length with it. Returns `None` if `rest` is empty
/// or the token is not closed.
fn read_token(rest: &str) -> Option<(Token<'_>, usize)> {
    let first = rest.chars().next()?;
    if first == '"' || first == '\'' {
        return string(rest, first);
    }
    Some(match word_length(rest)? {
        0 => (Token::Symbol(first), first.len_utf8()),
        length => (Token::Word(&rest[..length]), length),
    })
}

/// Reads a string by the rule of JavaScript's Handlebars: a backslash escapes the quotation mark and nothing
/// else.
fn string(rest: &str, quote: char) -> Option<(Token<'_>, usize)> {
    let is_end = |at: &usize| !rest[..*at].ends_with('\\');
    let mut quotes = rest.match_indices(quote).map(|(at, _)| at).skip(1);
    let end = quotes.find(is_end)?;
    let text = Cow::Borrowed(&rest[1..end]);
    let escaped = format!("\\{quote}");
    let text = if text.contains(&escaped) {
        Cow::Owned(text.replace(&escaped, &quote.to_string()))
    } else {
        text
    };
    Some((Token::Text(text), end + 1))
}

/// Returns the length of the word at the start of `rest`, including `[...]` segments; `None` if one is not
/// closed.
fn word_length(rest: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(c) = rest[at..].chars().next() {
        if SPACE.contains(&c) || "\"'(){}|=~".contains(c) {
            break;
        }
        at += if c == '[' {
            rest[at..].find(']')? + 1
        } else {
            c.len_utf8()
        };
    }
    Some(at)
}
