//! Iteration over a history.

use std::{collections::VecDeque, iter::FusedIterator};

use super::{History, Lineage};
use crate::Message;

/// An iterator over the messages of a [`History`], in either direction.
#[derive(Clone)]
pub struct Iter<'a> {
    spans: VecDeque<Span<'a>>,
    remaining: usize,
}

/// The messages `start..end` of the history, which are all in `lineage`.
#[derive(Clone)]
struct Span<'a> {
    lineage: &'a Lineage,
    start: usize,
    end: usize,
}

impl<'a> Iter<'a> {
    pub(super) fn new(history: &'a History, start: usize) -> Self {
        let remaining = history.len().saturating_sub(start);
        let mut spans = VecDeque::new();
        let mut position = Some(history);
        while let Some(history) = position
            && history.len() > start
        {
            let lineage = history.lineage();
            spans.push_front(Span {
                lineage,
                start: lineage.base().max(start),
                end: history.len(),
            });
            position = lineage.parent();
        }
        Self { spans, remaining }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Message;

    fn next(&mut self) -> Option<&'a Message> {
        let span = self.spans.front_mut()?;
        let message = &span.lineage.entry(span.start).message;
        span.start += 1;
        if span.start == span.end {
            self.spans.pop_front();
        }
        self.remaining -= 1;
        Some(message)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<'a> DoubleEndedIterator for Iter<'a> {
    fn next_back(&mut self) -> Option<&'a Message> {
        let span = self.spans.back_mut()?;
        span.end -= 1;
        let message = &span.lineage.entry(span.end).message;
        if span.start == span.end {
            self.spans.pop_back();
        }
        self.remaining -= 1;
        Some(message)
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}
