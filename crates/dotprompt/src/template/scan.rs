//! The scanner: splits a source into tags and the texts between them.
//!
//! 1. [`tag`] reads the tags one by one and enforces the limits before the parser recurses.
//! 2. `outline` pairs blocks with their ends.
//! 3. [`strip`] removes white space around tags by the rules of JavaScript's Handlebars.

mod strip;
mod tag;

use std::borrow::Cow;

pub(super) use self::tag::{Form, Tag, Token, is_identifier};
use crate::position::Position;
use crate::{ErrorKind, Limit, Limits};

/// An error in a source, with its position.
pub(super) struct ParseError {
    pub(super) kind: ErrorKind,
    pub(super) at: Position,
}

impl ParseError {
    pub(super) fn new(at: Position, message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Syntax(message.into()),
            at,
        }
    }

    fn exceeded(limit: Limit, at: Position) -> Self {
        Self {
            kind: ErrorKind::LimitExceeded(limit),
            at,
        }
    }
}

/// Returns the tags of a source that starts at `start`, and the texts before each tag and after the last.
pub(super) fn scan<'s>(
    source: &'s str,
    start: Position,
    limits: &Limits,
) -> Result<(Vec<Tag<'s>>, Vec<String>), ParseError> {
    let (mut tags, texts) = split(source, start, limits)?;
    let blocks = outline(&tags, limits)?;
    let texts = strip::strip(&mut tags, &texts, &blocks);
    Ok((tags, texts))
}

fn split<'s>(
    source: &'s str,
    start: Position,
    limits: &Limits,
) -> Result<(Vec<Tag<'s>>, Vec<Cow<'s, str>>), ParseError> {
    let mut tags: Vec<Tag<'s>> = Vec::new();
    let mut texts = Vec::new();
    let mut text = 0;
    let mut from = 0;
    let mut position = (0, start);
    while let Some(offset) = source[from..].find("{{").map(|found| from + found) {
        if is_escaped(&source[text..offset]) {
            from = offset + 2;
            continue;
        }
        let at = position.1.advance(&source[position.0..], offset - position.0);
        position = (offset, at);
        if tags.len() >= limits.tags {
            return Err(ParseError::exceeded(Limit::Tags, at));
        }
        texts.push(unescape(&source[text..offset], true));
        let tag = tag::read(source, offset, at, limits)?;
        text = tag.end;
        if tag.form == Form::RawOpen {
            // In a raw block only its end is a tag.
            let close = tag::find_raw_end(source, &tag)?;
            texts.push(Cow::Borrowed(&source[text..close.start]));
            text = close.end;
            tags.extend([tag, close]);
        } else {
            tags.push(tag);
        }
        from = text;
    }
    texts.push(unescape(&source[text..], false));
    Ok((tags, texts))
}

/// Returns whether a tag is escaped: one backslash before it makes it text, two are a backslash and a tag.
fn is_escaped(text: &str) -> bool {
    text.ends_with('\\') && !text.ends_with("\\\\")
}

/// Removes the backslashes that escape tags in the text and, if a tag follows, the one before that tag.
fn unescape(text: &str, tag_follows: bool) -> Cow<'_, str> {
    let text = if tag_follows {
        text.strip_suffix('\\').unwrap_or(text)
    } else {
        text
    };
    if text.contains("\\{{") {
        Cow::Owned(text.replace("\\{{", "{{"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A block's alternatives and its end, as indices of tags.
struct BlockEnds {
    alternatives: Vec<usize>,
    close: usize,
}

/// Pairs blocks with their ends and checks how deep they nest.
fn outline(tags: &[Tag<'_>], limits: &Limits) -> Result<Vec<BlockEnds>, ParseError> {
    let mut blocks = Vec::new();
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    // A chained alternative is nested in the one before it, so it counts as a level.
    let mut chained = 0;
    for (index, tag) in tags.iter().enumerate() {
        if tag.form.opens() {
            open.push((index, Vec::new()));
        } else if tag.form.is_alternative() {
            let Some((_, alternatives)) = open.last_mut() else {
                return Err(ParseError::new(tag.at, "'else' is outside a block"));
            };
            alternatives.push(index);
            chained += usize::from(tag.form == Form::Chain);
        } else if tag.form == Form::Close {
            let Some((start, alternatives)) = open.pop() else {
                return Err(ParseError::new(
                    tag.at,
                    format!("'{}' is closed but was never opened", tag.name()),
                ));
            };
            if tags[start].name() != tag.name() {
                let message = format!("the block '{}' is closed as '{}'", tags[start].name(), tag.name());
                return Err(ParseError::new(tag.at, message));
            }
            chained -= alternatives
                .iter()
                .filter(|index| tags[**index].form == Form::Chain)
                .count();
            blocks.push(BlockEnds {
                alternatives,
                close: index,
            });
        }
        if open.len() + chained > limits.nesting {
            return Err(ParseError::exceeded(Limit::Nesting, tag.at));
        }
    }
    match open.last() {
        None => Ok(blocks),
        Some((start, _)) => {
            let tag = &tags[*start];
            Err(ParseError::new(
                tag.at,
                format!("the block '{}' is never closed", tag.name()),
            ))
        }
    }
}
