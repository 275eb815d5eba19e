//! The pass over the source before the `handlebars` crate parses it.
//!
//! It finds the tags and the text between them, in four steps:
//!
//! 1. [`tag`] reads one tag after the other, enforcing the limits before a recursive parser sees anything.
//! 2. [`outline`] pairs blocks with their ends.
//! 3. [`strip`] removes white space around tags by JavaScript's rules; the crate's rules differ at the end of a
//!    file, around comments and between chained alternatives.
//! 4. [`skeleton`] writes the tags again for the parser, with one letter for each text and a number for each string.
//!    Tags that JavaScript's Handlebars accepts and the crate does not (`{{^x}}`, `{{#a.b}}`, `{{.}}`,
//!    `{{> "a b"}}`) are rewritten in a form that the crate accepts.
//!
//! The syntax tree has the same tags and texts in the same order, so lowering finds the replaced texts by counting.

mod outline;
mod skeleton;
mod strip;
mod tag;
mod word;

use std::borrow::Cow;

pub(super) use self::tag::{Form, Head, Tag};
use crate::error::ErrorKind;
use crate::limits::{Limit, Limits};

/// The skeleton of a source for the parser, and the tags and texts that the skeleton replaces.
pub(super) struct Scan {
    pub(super) skeleton: String,
    /// The tags that appear in the syntax tree.
    pub(super) tags: Vec<Tag>,
    /// The texts that are not empty after white space control.
    pub(super) texts: Vec<String>,
    /// The string literals, indexed by their number in the skeleton.
    pub(super) strings: Vec<String>,
    /// The number of tags of any kind.
    pub(super) seen: usize,
    /// The offset of each tag in the skeleton and in the source.
    places: Vec<(usize, usize)>,
}

impl Scan {
    /// Returns the source offset of the tag at the given line and column of the skeleton.
    pub(super) fn origin(&self, line: usize, column: usize) -> usize {
        let start: usize = self
            .skeleton
            .split_inclusive('\n')
            .take(line.saturating_sub(1))
            .map(str::len)
            .sum();
        let within = self.skeleton[start..]
            .char_indices()
            .nth(column.saturating_sub(1));
        let offset = within.map_or(self.skeleton.len(), |(at, _)| start + at);
        let after = self.places.partition_point(|(place, _)| *place <= offset);
        after
            .checked_sub(1)
            .and_then(|index| self.places.get(index))
            .map_or(0, |(_, origin)| *origin)
    }
}

/// A mistake in the source, with its offset.
pub(super) struct Flaw {
    pub(super) kind: ErrorKind,
    pub(super) offset: usize,
}

impl Flaw {
    fn new(offset: usize, message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Syntax(message.into()),
            offset,
        }
    }

    fn exceeded(limit: Limit, offset: usize) -> Self {
        Self {
            kind: ErrorKind::LimitExceeded(limit),
            offset,
        }
    }
}

pub(super) fn scan(source: &str, limits: &Limits) -> Result<Scan, Flaw> {
    let (mut tags, texts) = split(source, limits)?;
    let ends = outline::outline(&tags, limits)?;
    let texts = strip::strip(&mut tags, &texts, &ends);
    Ok(skeleton::write(tags, texts))
}

/// Splits the source into its tags and the texts before each tag and after the last.
fn split<'s>(source: &'s str, limits: &Limits) -> Result<(Vec<Tag>, Vec<Cow<'s, str>>), Flaw> {
    let mut tags: Vec<Tag> = Vec::new();
    let mut texts = Vec::new();
    let mut text = 0;
    let mut from = 0;
    while let Some(at) = source[from..].find("{{").map(|found| from + found) {
        if is_escaped(&source[text..at]) {
            from = at + 2;
            continue;
        }
        if tags.len() >= limits.tags {
            return Err(Flaw::exceeded(Limit::Tags, at));
        }
        texts.push(unescape(&source[text..at], true));
        let tag = tag::read(source, at, limits)?;
        text = tag.end;
        if tag.form == Form::RawOpen {
            // In a raw block only its end is a tag.
            let end = tag::find_raw_end(source, &tag)?;
            tags.push(tag);
            texts.push(Cow::Borrowed(&source[text..end]));
            tags.push(tag::read_raw_end(source, end, limits)?);
            text = tags.last().map_or(end, |tag| tag.end);
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
