//! Pairs of block tags and their ends.

use super::ParseError;
use super::tag::{Form, Tag};
use crate::limits::{Limit, Limits};

/// A block's alternatives and its end, as indices of tags.
pub(super) struct BlockEnds {
    pub(super) alternatives: Vec<usize>,
    pub(super) close: usize,
}

/// Pairs blocks with their ends and checks how deep they nest.
pub(super) fn outline(tags: &[Tag<'_>], limits: &Limits) -> Result<Vec<BlockEnds>, ParseError> {
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
