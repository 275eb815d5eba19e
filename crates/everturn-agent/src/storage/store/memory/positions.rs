//! The sorted positions of a session's rows.

use std::collections::{VecDeque, vec_deque};
use std::ops::Bound;

use jiff::Timestamp;

use crate::SnapshotId;

pub(super) type Position = (Timestamp, SnapshotId);

/// Positions in order. They are added and removed at the ends, and most sessions have few: a tree would be
/// several times as large.
#[derive(Default)]
pub(super) struct Positions(VecDeque<Position>);

impl Positions {
    pub(super) fn insert(&mut self, position: Position) {
        if let Err(index) = self.0.binary_search(&position) {
            // Many sessions have one row, and no room for more is made for it.
            if self.0.is_empty() {
                self.0.reserve_exact(1);
            }
            self.0.insert(index, position);
        }
    }

    pub(super) fn remove(&mut self, position: &Position) {
        if let Ok(index) = self.0.binary_search(position) {
            self.0.remove(index);
        }
    }

    pub(super) fn last(&self) -> Option<&Position> {
        self.0.back()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> vec_deque::Iter<'_, Position> {
        self.0.iter()
    }

    pub(super) fn range(
        &self,
        (from, to): (Bound<Position>, Bound<Position>),
    ) -> vec_deque::Iter<'_, Position> {
        let start = match from {
            Bound::Included(edge) => self.0.partition_point(|position| *position < edge),
            Bound::Excluded(edge) => self.0.partition_point(|position| *position <= edge),
            Bound::Unbounded => 0,
        };
        let end = match to {
            Bound::Included(edge) => self.0.partition_point(|position| *position <= edge),
            Bound::Excluded(edge) => self.0.partition_point(|position| *position < edge),
            Bound::Unbounded => self.0.len(),
        };
        self.0.range(start..end)
    }
}
