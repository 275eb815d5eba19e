//! The tool that lists directories.

use std::io::ErrorKind;

use cap_std::fs::DirEntry;
use everturn_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::path::WorkspacePath;
use super::workspace::{Workspace, failure};

/// The most entries that one listing holds.
const MAX_ENTRIES: usize = 10_000;

/// The input of the listing tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListFiles {
    /// The directory, relative to the root directory; the root directory if not given.
    #[serde(default)]
    dir_path: String,
    /// Whether to include subdirectories.
    #[serde(default)]
    recursive: bool,
}

/// One file or directory.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    /// The path, relative to the directory that was listed.
    path: String,
    /// Whether it is a directory.
    is_directory: bool,
    /// The size of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
}

impl Workspace {
    /// Returns the entries of a directory by name, the entries of each subdirectory right after it.
    ///
    /// A symbolic link is listed as a file and not followed. A subdirectory that cannot be opened is listed
    /// without its entries.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such directory, `PERMISSION_DENIED` if it is outside the root,
    /// `RESOURCE_EXHAUSTED` if it has too many entries.
    pub(super) fn list(&self, input: &ListFiles) -> Result<Vec<Entry>> {
        let top = WorkspacePath::directory(&input.dir_path)?;
        let mut pending = self.children(&top, "")?;
        let mut listed = Vec::new();
        while let Some(entry) = pending.pop() {
            if listed.len() + pending.len() >= MAX_ENTRIES {
                return Err(Error::resource_exhausted(format!(
                    "'{top}' holds more than {MAX_ENTRIES} files; list its subdirectories one by one"
                )));
            }
            if input.recursive && entry.is_directory {
                let within = format!("{}/", entry.path);
                match self.children(&top.join(&entry.path), &within) {
                    Ok(children) => pending.extend(children),
                    Err(error) => tracing::debug!(%error, "a directory is listed without its entries"),
                }
            }
            listed.push(entry);
        }
        Ok(listed)
    }

    /// Returns the entries of a directory in reverse order, with `prefix` before their names.
    fn children(&self, directory: &WorkspacePath, prefix: &str) -> Result<Vec<Entry>> {
        let read = || {
            self.root
                .read_dir(directory)?
                .take(MAX_ENTRIES + 1)
                .collect::<Result<Vec<_>, _>>()
        };
        let mut entries: Vec<Entry> = read()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => Error::not_found(format!("there is no directory '{directory}'")),
                _ => failure(directory, &error),
            })?
            .iter()
            .map(|entry| describe(entry, prefix))
            .collect();
        entries.sort_unstable_by(|one, other| other.path.cmp(&one.path));
        Ok(entries)
    }
}

fn describe(entry: &DirEntry, prefix: &str) -> Entry {
    let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
    let size = || entry.metadata().ok().map(|metadata| metadata.len());
    Entry {
        path: format!("{prefix}{}", entry.file_name().to_string_lossy()),
        is_directory,
        size_bytes: if is_directory { None } else { size() },
    }
}
