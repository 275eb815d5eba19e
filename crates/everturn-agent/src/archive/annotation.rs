//! What people write on snapshots: labels and notes.

use std::sync::Arc;

use everturn_core::{Error, Result};

use super::plain::is_harmless;
use super::{Archive, named_snapshot};
use crate::store::{Detail, Mutation, Precondition};
use crate::{Snapshot, SnapshotId};

/// How many bytes a label has at most.
pub const MAX_LABEL: usize = 100;

/// How many labels a snapshot has at most.
pub const MAX_LABELS: usize = 32;

/// How many bytes a note has at most.
pub const MAX_NOTE: usize = 16 * 1024;

impl Archive {
    /// Puts a label on a snapshot, after those it has; one that it has already stays where it is.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such snapshot; `INVALID_ARGUMENT` for a label that is empty, longer than [`MAX_LABEL`],
    /// begins or ends with a space, or has characters that do not show, and for one more than [`MAX_LABELS`].
    pub async fn label(&self, id: impl Into<SnapshotId>, label: impl Into<String>) -> Result<Snapshot> {
        let label = label.into();
        check_label(&label)?;
        self.change(id, move |row| {
            if row.labels.contains(&label) {
                return Ok(false);
            }
            if row.labels.len() >= MAX_LABELS {
                return Err(refusal(format!(
                    "snapshot '{}' has {MAX_LABELS} labels: take one off first",
                    row.snapshot_id
                )));
            }
            row.labels.push(label.clone());
            Ok(true)
        })
        .await
    }

    /// Takes a label off a snapshot; one that it does not have is no error.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such snapshot.
    pub async fn unlabel(&self, id: impl Into<SnapshotId>, label: impl Into<String>) -> Result<Snapshot> {
        let label = label.into();
        self.change(id, move |row| {
            let before = row.labels.len();
            row.labels.retain(|existing| *existing != label);
            Ok(row.labels.len() != before)
        })
        .await
    }

    /// Writes a note on a snapshot, in place of the one it has; an empty one takes it off.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such snapshot; `INVALID_ARGUMENT` for a note longer than [`MAX_NOTE`] or with characters
    /// that do not show, line breaks and tabs apart.
    pub async fn annotate(&self, id: impl Into<SnapshotId>, note: impl Into<String>) -> Result<Snapshot> {
        let note = note.into();
        check_note(&note)?;
        let note = Some(note).filter(|note| !note.is_empty());
        self.change(id, move |row| {
            let changed = row.note != note;
            row.note.clone_from(&note);
            Ok(changed)
        })
        .await
    }

    /// Changes a row in one step, also a final one; `change` says whether there was anything to do.
    async fn change(
        &self,
        id: impl Into<SnapshotId>,
        change: impl Fn(&mut Snapshot) -> Result<bool> + Send + Sync + 'static,
    ) -> Result<Snapshot> {
        let id = named_snapshot(id)?;
        let now = self.clock.now();
        let mutation: Mutation = Arc::new(move |row| {
            let Some(row) = row else {
                return Ok(None);
            };
            let mut changed = row.clone();
            if !change(&mut changed)? {
                return Ok(None);
            }
            changed.updated_at = row.updated_at.max(Some(now.max(row.created_at)));
            Ok(Some(changed))
        });
        let written = self
            .store
            .save(&self.scope, Some(&id), Precondition::None, mutation)
            .await?;
        match written {
            Some(row) => self.show(row),
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
