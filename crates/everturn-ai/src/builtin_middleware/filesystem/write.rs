//! The tools that change files.
//!
//! A model may change an existing file only after it has seen its current content: the file must have been
//! read or written in the same generate call, and its size and time of modification must not have changed
//! since.

use cap_std::fs::OpenOptions;
use everturn_core::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use super::edit::{Edit, apply_block};
use super::path::WorkspacePath;
use super::workspace::{MAX_FILE_BYTES, OpenFile, Workspace, failure};
use super::workspace::{SeenFiles, Sighting, Stamp};

/// The input of the writing tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriteFile {
    /// The file, relative to the root directory.
    file_path: String,
    /// The complete new content of the file.
    content: String,
}

/// The input of the editing tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EditFile {
    /// The file, relative to the root directory.
    file_path: String,
    /// The replacements, made one after the other; either all are made or none.
    edits: Vec<Edit>,
}

/// The input of the search-and-replace tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SearchAndReplace {
    /// The file, relative to the root directory.
    file_path: String,
    /// The replacements, made one after the other; either all are made or none. Each is a block of the form
    /// `<<<<<<< SEARCH`, the text to replace, `=======`, the text to put in its place, `>>>>>>> REPLACE`,
    /// each on lines of its own.
    edits: Vec<String>,
}

impl Workspace {
    /// Creates a file and the directories that lead to it, or replaces the content of an existing file.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the file exists and the model has not seen its current content,
    /// `PERMISSION_DENIED` outside the root, `INVALID_ARGUMENT` for a directory.
    pub(super) fn write(&self, input: &WriteFile) -> Result<String> {
        let path = WorkspacePath::file(&input.file_path)?;
        // The guard is held until the end, so that the file cannot change between the check and the write.
        let mut seen = self.seen();
        let existing = self.open_file(&path, OpenOptions::new().read(true).write(true))?;
        let verb = if existing.is_some() { "Replaced" } else { "Created" };
        let file = match existing {
            Some(file) => {
                check_seen(&seen, &path, file.stamp)?;
                file
            }
            None => self.create(&path)?,
        };
        let stamp = file.replace(&path, &input.content)?;
        seen.record(&path, Sighting { stamp, shown: None });
        Ok(format!("{verb} '{path}' with {} bytes.", input.content.len()))
    }

    /// Makes replacements in a file.
    ///
    /// # Errors
    /// As [`Workspace::write`] and [`Edit::apply`]; also `NOT_FOUND`.
    pub(super) fn edit(&self, input: &EditFile) -> Result<String> {
        self.change(&input.file_path, &input.edits, Edit::apply)
    }

    /// Makes replacements, given as blocks, in a file.
    ///
    /// # Errors
    /// As [`Workspace::write`] and [`apply_block`]; also `NOT_FOUND`.
    pub(super) fn search_and_replace(&self, input: &SearchAndReplace) -> Result<String> {
        self.change(&input.file_path, &input.edits, |block, text| {
            apply_block(block, text)
        })
    }

    fn change<E>(
        &self,
        path: &str,
        edits: &[E],
        apply: impl Fn(&E, &str) -> Result<String>,
    ) -> Result<String> {
        let path = WorkspacePath::file(path)?;
        if edits.is_empty() {
            return Err(Error::invalid_argument("`edits` is empty"));
        }
        let mut seen = self.seen();
        let mut file = self.existing_file(&path, OpenOptions::new().read(true).write(true))?;
        check_seen(&seen, &path, file.stamp)?;
        file.check_size(&path, MAX_FILE_BYTES, "it cannot be edited")?;
        let mut text = file.text(&path)?;
        // Edits are made in memory first: either all are made or none.
        for (index, edit) in edits.iter().enumerate() {
            text = apply(edit, &text)
                .map_err(|error| error.context(format_args!("edit {} of '{path}'", index + 1)))?;
        }
        let stamp = file.replace(&path, &text)?;
        // The new content was not shown to the model, so a read afterwards shows it.
        seen.record(&path, Sighting { stamp, shown: None });
        Ok(format!("Made {} edits in '{path}'.", edits.len()))
    }

    fn create(&self, path: &WorkspacePath) -> Result<OpenFile> {
        if let Some(parent) = path.parent() {
            self.root
                .create_dir_all(&parent)
                .map_err(|error| failure(parent.display(), &error))?;
        }
        // Exclusive creation follows no dangling link and overwrites no file that appeared in the meantime.
        let mut new_file = OpenOptions::new();
        new_file.write(true).create_new(true);
        let file = self
            .root
            .open_with(path, &new_file)
            .map_err(|error| failure(path, &error))?;
        OpenFile::new(file).map_err(|error| failure(path, &error))
    }
}

fn check_seen(seen: &SeenFiles, path: &WorkspacePath, stamp: Stamp) -> Result<()> {
    match seen.get(path) {
        Some(sighting) if sighting.stamp == stamp => Ok(()),
        Some(_) => Err(Error::failed_precondition(format!(
            "'{path}' has changed since it was read; read it again first"
        ))),
        None => Err(Error::failed_precondition(format!(
            "'{path}' exists and has not been read; read it first"
        ))),
    }
}
