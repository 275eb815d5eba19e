//! What people write on snapshots: labels and notes.

use everturn_core::{Error, Result};

use super::plain::is_harmless;
use super::{Archive, named_snapshot};
use crate::snapshot::{Annotation, Transition};
use crate::store::Detail;
use crate::{Snapshot, SnapshotId};

/// The greatest length of a label, in bytes.
pub const MAX_LABEL: usize = 100;

/// The greatest length of a note, in bytes.
pub const MAX_NOTE: usize = 16 * 1024;

impl Archive {
    /// Puts a label on a snapshot, after those it has; one that it has already stays where it is.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such snapshot; `INVALID_ARGUMENT` for a label that is empty, longer than
    /// [`MAX_LABEL`], begins or ends with a space, or has characters that do not show, and for one more than
    /// [`MAX_LABELS`](super::MAX_LABELS).
    pub async fn label(&self, id: impl Into<SnapshotId>, label: impl Into<String>) -> Result<Snapshot> {
        let label = label.into();
        check_label(&label)?;
        self.write_on(id, Annotation::Label(label)).await
    }

    /// Takes a label off a snapshot; one that it does not have is no error.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such snapshot.
    pub async fn unlabel(&self, id: impl Into<SnapshotId>, label: impl Into<String>) -> Result<Snapshot> {
        self.write_on(id, Annotation::Unlabel(label.into())).await
    }

    /// Writes a note on a snapshot, in place of the one it has; an empty one takes it off.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such snapshot; `INVALID_ARGUMENT` for a note longer than [`MAX_NOTE`] or with
    /// characters that do not show, line breaks and tabs apart.
    pub async fn annotate(&self, id: impl Into<SnapshotId>, note: impl Into<String>) -> Result<Snapshot> {
        let note = note.into();
        check_note(&note)?;
        let note = Some(note).filter(|note| !note.is_empty());
        self.write_on(id, Annotation::Note(note)).await
    }

    /// Annotates a snapshot in one step, also one that is over.
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
