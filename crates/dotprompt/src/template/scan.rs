//! The pass over the source before the `handlebars` crate parses it.
//!
//! It finds the tags and the text between them, in four steps:
//!
//! 1. [`tag`] reads one tag after the other, enforcing the limits before a recursive parser sees anything.
//! 2. [`outline`] pairs blocks with their ends.
//! 3. [`strip`] removes white space around tags, by JavaScript's rules: those of the crate differ at the end of a
//!    file, around comments and between chained alternatives.
//! 4. [`skeleton`] writes the tags down again for the parser, with one letter in place of each text, numbers in
//!    place of strings, and what JavaScript's Handlebars accepts and the crate does not (`{{^x}}`, `{{#a.b}}`,
//!    `{{.}}`, `{{> "a b"}}`) in terms that it accepts.
//!
//! The syntax tree lists the same tags and texts in the same order, so that what the skeleton leaves out is
//! found again by counting.

mod outline;
mod skeleton;
mod strip;
mod tag;
mod word;

use std::borrow::Cow;

pub(super) use self::tag::{Form, Head, Tag};
use crate::error::ErrorKind;
use crate::limits::{Limit, Limits};

/// The source as the parser shall see it, and what it does not tell the parser.
pub(super) struct Scan {
    pub(super) skeleton: String,
    /// The tags that have a place in the syntax tree.
    pub(super) tags: Vec<Tag>,
    /// The texts that are left after white space control and are not empty.
    pub(super) texts: Vec<String>,
    /// The string literals, by the number that stands for them.
    pub(super) strings: Vec<String>,
    /// How many tags of any kind there are.
    pub(super) seen: usize,
    /// Where each tag starts in the skeleton and in the source.
    places: Vec<(usize, usize)>,
}

impl Scan {
    /// The offset in the source of the tag that the skeleton has at the given line and column.
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

/// Something wrong with the source, and the offset where.
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

/// The tags of the source and the text before each and after the last.
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
            // Nothing in a raw block is a tag but its end.
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

/// One backslash before a tag makes it text; two are a backslash and a tag.
fn is_escaped(text: &str) -> bool {
    text.ends_with('\\') && !text.ends_with("\\\\")
}

/// The text without the backslashes that escape tags in it and, if a tag follows, before that tag.
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
