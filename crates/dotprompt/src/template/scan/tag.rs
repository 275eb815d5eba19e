//! One tag: its form and its words.

use super::Flaw;
use super::word::{self, Token, TokenKind};
use crate::limits::{Limit, Limits};

/// The largest number of words in a tag, more than a person writes. Looking up an argument takes time in proportion to
/// the number of words.
const MAX_WORDS: usize = 512;

pub(in crate::template) struct Tag {
    pub(in crate::template) form: Form,
    /// The offset of its start in the source.
    pub(in crate::template) offset: usize,
    /// The offset of its end.
    pub(super) end: usize,
    /// Whether `~` strips the text before it.
    pub(super) strips_left: bool,
    /// Whether `~` strips the text after it.
    pub(super) strips_right: bool,
    pub(super) tokens: Vec<Token>,
    /// The tag's name, if the skeleton has another in its place.
    pub(in crate::template) head: Option<Head>,
    /// The white space before a partial on a line of its own.
    pub(in crate::template) indent: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
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
    /// `{{/x}}`
    Close,
    /// `{{{{/x}}}}`
    RawClose,
}

impl Form {
    pub(super) fn opens(self) -> bool {
        matches!(
            self,
            Self::Open | Self::InverseOpen | Self::RawOpen | Self::PartialOpen | Self::DecoratorOpen
        )
    }

    pub(super) fn closes(self) -> bool {
        matches!(self, Self::Close | Self::RawClose)
    }

    pub(super) fn is_alternative(self) -> bool {
        matches!(self, Self::Else | Self::Chain)
    }

    /// Returns whether the tag appears in the syntax tree.
    pub(super) fn is_in_tree(self) -> bool {
        !matches!(self, Self::Comment | Self::Else | Self::Close | Self::RawClose)
    }
}

pub(in crate::template) enum Head {
    Path(String),
    Key(String),
}

impl Tag {
    fn new(form: Form, offset: usize) -> Self {
        Self {
            form,
            offset,
            end: offset,
            strips_left: false,
            strips_right: false,
            tokens: Vec::new(),
            head: None,
            indent: None,
        }
    }

    /// Returns the tag's name.
    pub(in crate::template) fn name(&self) -> &str {
        self.tokens.first().map_or("", Token::name)
    }

    /// Returns the keys of the `key=value` arguments outside parentheses, in order.
    pub(in crate::template) fn hash_keys(&self) -> impl Iterator<Item = &str> {
        let mut depth = 0_usize;
        self.tokens.windows(2).filter_map(move |pair| {
            match &pair[0].kind {
                TokenKind::Symbol('(') => depth += 1,
                TokenKind::Symbol(')') => depth = depth.saturating_sub(1),
                _ => {}
            }
            match (&pair[0].kind, &pair[1].kind) {
                (TokenKind::Word(key), TokenKind::Symbol('=')) if depth == 0 => Some(key.as_str()),
                _ => None,
            }
        })
    }
}

/// Reads the tag that starts at `at`.
pub(super) fn read(source: &str, at: usize, limits: &Limits) -> Result<Tag, Flaw> {
    if source[at..].starts_with("{{{{") {
        let mut tag = Tag::new(Form::RawOpen, at);
        read_words(&mut tag, source, at + 4, "}}}}", limits)?;
        return Ok(tag);
    }
    let mut cursor = at + 2;
    let strips_left = source[cursor..].starts_with('~');
    cursor += usize::from(strips_left);
    if source[cursor..].starts_with('!') {
        return comment(source, at, cursor, strips_left);
    }
    let (form, start, close) = form(source, cursor);
    let mut tag = Tag::new(form, at);
    tag.strips_left = strips_left;
    read_words(&mut tag, source, start, close, limits)?;
    if form == Form::Chain && tag.tokens.is_empty() {
        tag.form = Form::Else;
    }
    if form == Form::InverseOpen && tag.tokens.is_empty() {
        tag.form = Form::Else;
    }
    Ok(tag)
}

/// Returns the tag's form, the start of its words and its end.
fn form(source: &str, cursor: usize) -> (Form, usize, &'static str) {
    if source[cursor..].starts_with('{') {
        return (Form::Mustache, cursor + 1, "}}}");
    }
    let cursor = word::skip_space(source, cursor);
    let rest = &source[cursor..];
    let next = word::skip_space(source, cursor + rest.chars().next().map_or(0, char::len_utf8));
    let (form, start) = match rest.chars().next() {
        Some('#') if source[next..].starts_with('>') => (Form::PartialOpen, next + 1),
        Some('#') if source[next..].starts_with('*') => (Form::DecoratorOpen, next + 1),
        Some('#') => (Form::Open, next),
        Some('^') => (Form::InverseOpen, next),
        Some('/') => (Form::Close, next),
        Some('>') => (Form::Partial, next),
        Some('*') => (Form::Decorator, next),
        Some('&') => (Form::Mustache, next),
        _ if word::starts_with_else(rest) => (Form::Chain, cursor + "else".len()),
        _ => (Form::Mustache, cursor),
    };
    (form, start, "}}")
}

fn read_words(
    tag: &mut Tag,
    source: &str,
    mut cursor: usize,
    close: &str,
    limits: &Limits,
) -> Result<(), Flaw> {
    let mut depth = 0_usize;
    loop {
        cursor = word::skip_space(source, cursor);
        let rest = &source[cursor..];
        if let Some((length, strips)) = end_of_tag(rest, close) {
            tag.end = cursor + length;
            tag.strips_right = strips;
            return Ok(());
        }
        let Some(token) = word::token(source, cursor) else {
            let message = if rest.is_empty() {
                "the tag is never closed"
            } else {
                "a word is never closed"
            };
            return Err(Flaw::new(tag.offset, message));
        };
        match token.kind {
            TokenKind::Symbol('(') => depth += 1,
            TokenKind::Symbol(')') => depth = depth.saturating_sub(1),
            TokenKind::Symbol(symbol) if !"=|".contains(symbol) => {
                return Err(Flaw::new(cursor, format!("unexpected '{symbol}'")));
            }
            _ => {}
        }
        if depth > limits.nesting {
            return Err(Flaw::exceeded(Limit::Nesting, cursor));
        }
        if tag.tokens.len() >= MAX_WORDS {
            return Err(Flaw::new(tag.offset, "the tag has too many words"));
        }
        cursor = token.end;
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

fn comment(source: &str, at: usize, bang: usize, strips_left: bool) -> Result<Tag, Flaw> {
    let inner = &source[bang + 1..];
    let is_long = inner.starts_with("--");
    let ends = |at: &usize| {
        let before = &inner[..*at];
        !is_long || before.ends_with("--") || before.ends_with("--~")
    };
    let end = inner.match_indices("}}").map(|(at, _)| at).find(ends);
    let Some(end) = end else {
        return Err(Flaw::new(at, "the comment is never closed"));
    };
    let mut tag = Tag::new(Form::Comment, at);
    tag.end = bang + 1 + end + 2;
    tag.strips_left = strips_left;
    tag.strips_right = inner[..end].ends_with('~');
    Ok(tag)
}

/// Returns the offset at which the end of a raw block starts.
pub(super) fn find_raw_end(source: &str, open: &Tag) -> Result<usize, Flaw> {
    let end = format!("{{{{{{{{/{}}}}}}}}}", open.name());
    let found = source[open.end..].find(&end).map(|found| open.end + found);
    found.ok_or_else(|| {
        Flaw::new(
            open.offset,
            format!("the block '{}' is never closed", open.name()),
        )
    })
}

pub(super) fn read_raw_end(source: &str, at: usize, limits: &Limits) -> Result<Tag, Flaw> {
    let mut tag = Tag::new(Form::RawClose, at);
    read_words(&mut tag, source, at + "{{{{/".len(), "}}}}", limits)?;
    Ok(tag)
}
