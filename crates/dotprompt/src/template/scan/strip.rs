//! White space control, by the rules of JavaScript's Handlebars.
//!
//! `~` strips all white space on its side. A tag that is alone on its line removes the whole line: the blanks
//! before it and everything up to the line break after it. That holds for partials, comments, and the starts,
//! ends and alternatives of blocks, but not for tags that print.

use std::borrow::Cow;

use super::BlockEnds;
use super::tag::{Form, Tag};
use crate::whitespace::{is_blank, is_space};

/// The white space to remove at one end of a text.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Cut {
    Nothing,
    /// At the start up to the first line break, at the end back to the last.
    Line,
    Everything,
}

/// Strips the texts and finds the indentation of partials; `texts[i]` is the text before `tags[i]`.
pub(super) fn strip(tags: &mut [Tag<'_>], texts: &[Cow<'_, str>], blocks: &[BlockEnds]) -> Vec<String> {
    let mut cuts = Cuts {
        starts: vec![Cut::Nothing; texts.len()],
        ends: vec![Cut::Nothing; texts.len()],
    };
    for (index, tag) in tags.iter().enumerate() {
        cuts.tildes(index, tag);
        let before = has_line_start(texts, index);
        let alone = match tag.form {
            Form::Partial | Form::Comment => before && has_line_end(texts, index),
            form if form.opens() => before && starts_with_line_end(&texts[index + 1]),
            form if form.is_alternative() => {
                ends_with_line_start(&texts[index]) && starts_with_line_end(&texts[index + 1])
            }
            _ => false,
        };
        if alone {
            cuts.line(index);
        }
    }
    for block in blocks {
        cuts.close(tags, texts, block);
    }
    for index in 0..tags.len() {
        if tags[index].form == Form::Partial && cuts.ends[index] == Cut::Line {
            tags[index].indent = indentation(tags, &texts[index], &cuts, index);
        }
    }
    texts
        .iter()
        .enumerate()
        .map(|(index, text)| cuts.apply(index, text))
        .collect()
}

struct Cuts {
    starts: Vec<Cut>,
    ends: Vec<Cut>,
}

impl Cuts {
    fn tildes(&mut self, index: usize, tag: &Tag<'_>) {
        if tag.strips_left {
            self.ends[index] = Cut::Everything;
        }
        if tag.strips_right {
            self.starts[index + 1] = Cut::Everything;
        }
    }

    /// Removes the line of a tag that is alone on it.
    fn line(&mut self, index: usize) {
        raise(&mut self.ends[index], Cut::Line);
        raise(&mut self.starts[index + 1], Cut::Line);
    }

    /// Strips around the end of a block. With `else if`, the original checks the text before the second
    /// alternative and keeps the blanks before the end; with `~`, it strips before every later alternative
    /// too.
    fn close(&mut self, tags: &[Tag<'_>], texts: &[Cow<'_, str>], block: &BlockEnds) {
        let is_chained = block
            .alternatives
            .first()
            .is_some_and(|first| tags[*first].form == Form::Chain);
        let later = block.alternatives.get(1..).unwrap_or_default();
        let decisive = if is_chained {
            later.first().copied().unwrap_or(block.close)
        } else {
            block.close
        };
        if ends_with_line_start(&texts[decisive]) && has_line_end(texts, block.close) {
            raise(&mut self.starts[block.close + 1], Cut::Line);
            if !is_chained {
                raise(&mut self.ends[block.close], Cut::Line);
            }
        }
        if is_chained && tags[block.close].strips_left {
            for alternative in later {
                self.ends[*alternative] = Cut::Everything;
            }
        }
    }

    fn apply(&self, index: usize, text: &str) -> String {
        let text = cut_start(text, self.starts[index]);
        match self.ends[index] {
            Cut::Nothing => text,
            Cut::Line => text.trim_end_matches(BLANKS),
            Cut::Everything => text.trim_end_matches(is_space),
        }
        .to_owned()
    }
}

const BLANKS: [char; 2] = [' ', '\t'];

fn raise(cut: &mut Cut, to: Cut) {
    if *cut < to {
        *cut = to;
    }
}

fn cut_start(text: &str, cut: Cut) -> &str {
    match cut {
        Cut::Nothing => text,
        Cut::Line => {
            let text = text.trim_start_matches(BLANKS);
            text.strip_prefix("\r\n")
                .or_else(|| text.strip_prefix(['\r', '\n']))
                .unwrap_or(text)
        }
        Cut::Everything => text.trim_start_matches(is_space),
    }
}

/// Returns the blanks before a partial that is alone on its line. Blanks that a neighbouring tag stripped do
/// not count; blanks that the start of the enclosing block strips do.
fn indentation(tags: &[Tag<'_>], text: &str, cuts: &Cuts, index: usize) -> Option<Box<str>> {
    let is_first_in_block = index
        .checked_sub(1)
        .is_some_and(|before| tags[before].form.opens() || tags[before].form.is_alternative());
    let text = if is_first_in_block {
        text
    } else {
        cut_start(text, cuts.starts[index])
    };
    let indent = &text[text.trim_end_matches(BLANKS).len()..];
    (!indent.is_empty()).then(|| indent.into())
}

/// Returns whether only white space is before the tag on its line.
fn has_line_start(texts: &[Cow<'_, str>], index: usize) -> bool {
    let text = &texts[index];
    ends_with_line_start(text) || (index == 0 && is_blank(text))
}

/// Returns whether only white space is after the tag on its line.
fn has_line_end(texts: &[Cow<'_, str>], index: usize) -> bool {
    let text = &texts[index + 1];
    starts_with_line_end(text) || (index + 2 == texts.len() && is_blank(text))
}

fn ends_with_line_start(text: &str) -> bool {
    text[text.trim_end_matches(is_space).len()..].contains('\n')
}

fn starts_with_line_end(text: &str) -> bool {
    text[..text.len() - text.trim_start_matches(is_space).len()].contains('\n')
}
