//! The lines of each file that the model has seen, and the state of the file at that time.

use std::collections::{HashMap, VecDeque};

use cap_std::fs::Metadata;
use cap_std::time::SystemTime;

use super::lines::LineRange;
use super::path::WorkspacePath;

/// The number of files that are remembered; the oldest is removed first.
const CAPACITY: usize = 200;

/// The state of a file, as far as it is known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    size: u64,
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            modified: metadata.modified().ok(),
            size: metadata.len(),
        }
    }
}

/// A file that the model has read or written: its state then, and the lines that were shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sighting {
    /// The file's state at that time.
    pub(super) stamp: Stamp,
    /// The lines that the conversation holds; `None` if the file was written since, or is an image.
    pub(super) shown: Option<LineRange>,
}

/// The files that the model has seen in this generate call.
#[derive(Debug, Default)]
pub(super) struct SeenFiles {
    sightings: HashMap<WorkspacePath, Sighting>,
    order: VecDeque<WorkspacePath>,
}

impl SeenFiles {
    pub(super) fn get(&self, path: &WorkspacePath) -> Option<Sighting> {
        self.sightings.get(path).copied()
    }

    /// Records a sighting. It replaces an earlier one of the same file, which keeps its position in the
    /// order.
    pub(super) fn record(&mut self, path: &WorkspacePath, sighting: Sighting) {
        if self.sightings.insert(path.clone(), sighting).is_some() {
            return;
        }
        self.order.push_back(path.clone());
        if self.order.len() > CAPACITY
            && let Some(first) = self.order.pop_front()
        {
            self.sightings.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(n: usize) -> WorkspacePath {
        WorkspacePath::file(&format!("{n}.txt")).unwrap()
    }

    fn sighting(size: u64) -> Sighting {
        Sighting {
            stamp: Stamp { modified: None, size },
            shown: None,
        }
    }

    #[test]
    fn the_file_seen_first_is_forgotten_first() {
        let mut seen = SeenFiles::default();

        for n in 0..=CAPACITY {
            seen.record(&path(n), sighting(0));
        }

        assert_eq!(seen.get(&path(0)), None);
        assert!(seen.get(&path(1)).is_some());
        assert_eq!(seen.sightings.len(), CAPACITY);
    }

    #[test]
    fn seeing_a_file_again_updates_it_and_does_not_make_it_younger() {
        let mut seen = SeenFiles::default();

        for n in 0..CAPACITY {
            seen.record(&path(n), sighting(0));
        }
        seen.record(&path(0), sighting(7));
        assert_eq!(seen.get(&path(0)), Some(sighting(7)));
        seen.record(&path(CAPACITY), sighting(0));

        assert_eq!(seen.get(&path(0)), None);
        assert!(seen.get(&path(1)).is_some());
    }
}
