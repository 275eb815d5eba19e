//! Labels and notes on snapshots.

use everturn_core::{Error, Result};

use super::plain::is_harmless;
use super::{Archive, named_snapshot};
use crate::storage::snapshot::{Annotation, Transition};
use crate::store::Detail;
use crate::{Snapshot, SnapshotId};

/// The greatest length of a label, in bytes.
pub const MAX_LABEL: usize = 100;

/// The greatest length of a note, in bytes.
pub const MAX_NOTE: usize = 16 * 1024;

impl Archive {
    /// Adds a label to a snapshot, after those it has; a label that it has already keeps its place.
    ///
    /// # Errors
    /// `NOT_FOUND` if the snapshot does not exist; `INVALID_ARGUMENT` for a label that is empty, longer than
    /// [`MAX_LABEL`], begins or ends with a space, or has invisible characters, and for more than
    /// [`MAX_LABELS`](super::MAX_LABELS) labels.
    pub async fn label(&self, id: impl Into<SnapshotId>, label: impl Into<String>) -> Result<Snapshot> {
        let label = label.into();
        check_label(&label)?;
        self.write_on(id, Annotation::Label(label)).await
    }

    /// Removes a label from a snapshot; a label that it does not have is not an error.
    ///
    /// # Errors
    /// `NOT_FOUND` if the snapshot does not exist.
    pub async fn unlabel(&self, id: impl Into<SnapshotId>, label: impl Into<String>) -> Result<Snapshot> {
        self.write_on(id, Annotation::Unlabel(label.into())).await
    }

    /// Sets the note of a snapshot; an empty text removes it.
    ///
    /// # Errors
    /// `NOT_FOUND` if the snapshot does not exist; `INVALID_ARGUMENT` for a note that is longer than
    /// [`MAX_NOTE`] or has invisible characters other than line breaks and tabs.
    pub async fn annotate(&self, id: impl Into<SnapshotId>, note: impl Into<String>) -> Result<Snapshot> {
        let note = note.into();
        check_note(&note)?;
        let note = Some(note).filter(|note| !note.is_empty());
        self.write_on(id, Annotation::Note(note)).await
    }

    /// Annotates a snapshot, final or not, in one step.
    async fn write_on(&self, id: impl Into<SnapshotId>, annotation: Annotation) -> Result<Snapshot> {
        let id = named_snapshot(id)?;
        let annotate = Transition::Annotate {
            annotation,
            now: self.clock.now(),
        };
        match self.tenant.change(&id, annotate).await? {
            Some(snapshot) => self.show(snapshot),
            None => self.show(self.stored(&id, Detail::Whole).await?),
        }
    }
}

fn refusal(message: String) -> Error {
    Error::invalid_argument(message).with_public()
}

fn check_label(label: &str) -> Result<()> {
    let fault = if label.is_empty() {
        "is empty".to_owned()
    } else if label.len() > MAX_LABEL {
        format!("has {} bytes, and {MAX_LABEL} are allowed", label.len())
    } else if label.trim() != label {
        "begins or ends with a space".to_owned()
    } else if !label.chars().all(is_harmless) {
        "has characters that do not show".to_owned()
    } else {
        return Ok(());
    };
    Err(refusal(format!("the label {fault}")))
}

fn check_note(note: &str) -> Result<()> {
    let shows = |character: char| matches!(character, '\n' | '\t') || is_harmless(character);
    let fault = if note.len() > MAX_NOTE {
        format!("has {} bytes, and {MAX_NOTE} are allowed", note.len())
    } else if !note.chars().all(shows) {
        "has characters that do not show".to_owned()
    } else {
        return Ok(());
    };
    Err(refusal(format!("the note {fault}")))
}
