//! Labels and notes that people put on snapshots.

use everturn_core::{Error, Result};

use super::Snapshot;

/// The greatest number of labels on a snapshot.
pub const MAX_LABELS: usize = 32;

/// A change of a snapshot's labels or of its note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Annotation {
    /// Adds a label after the others.
    Label(String),
    /// Removes a label.
    Unlabel(String),
    /// Replaces the note.
    Note(Option<String>),
}

impl Annotation {
    /// Annotates a snapshot; returns whether that changed it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the snapshot has [`MAX_LABELS`] labels and would get another.
    pub(super) fn write_on(&self, snapshot: &mut Snapshot) -> Result<bool> {
        match self {
            Self::Label(label) => {
                if snapshot.labels.contains(label) {
                    return Ok(false);
                }
                if snapshot.labels.len() >= MAX_LABELS {
                    return Err(Error::invalid_argument(format!(
                        "snapshot '{}' has {MAX_LABELS} labels: take one off first",
                        snapshot.snapshot_id
                    ))
                    .with_public());
                }
                snapshot.labels.push(label.clone());
                Ok(true)
            }
            Self::Unlabel(label) => {
                let before = snapshot.labels.len();
                snapshot.labels.retain(|existing| existing != label);
                Ok(snapshot.labels.len() != before)
            }
            Self::Note(note) => {
                let is_changed = snapshot.note != *note;
                snapshot.note.clone_from(note);
                Ok(is_changed)
            }
        }
    }
}
