//! A store over a directory: `name.variant.prompt`, partials with a leading underscore.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use super::name::{check_name, check_variant};
use crate::store::{PromptRef, PromptStore, StoreError, StoreErrorKind, StoredPrompt};

const EXTENSION: &str = ".prompt";
/// The deepest folder that a listing enters; it bounds links that form a circle.
const MAX_FOLDERS: usize = 32;

/// The prompts in a directory and its folders.
///
/// A file `support/refund.formal.prompt` is the prompt `support/refund` in its variant `formal`; a file
/// `support/_tone.prompt` is the partial `support/tone`. The text between the last two dots is the variant.
/// The version is the first eight hexadecimal digits of the content's SHA-1.
///
/// Names are checked strictly before they become paths, and a link that leads out of the directory is not
/// followed.
#[derive(Debug, Clone)]
pub struct DirStore {
    directory: PathBuf,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Prompt,
    Partial,
}

impl DirStore {
    /// Creates a store over `directory`, which need not exist yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// Returns the version that a source has in this store.
    pub fn version_of(source: &str) -> String {
        let [a, b, c, d, ..]: [u8; 20] = Sha1::digest(source.as_bytes()).into();
        format!("{a:02x}{b:02x}{c:02x}{d:02x}")
    }

    /// Writes a prompt, replacing an earlier one, and returns its version.
    pub fn save(&self, prompt: &PromptRef, source: &str) -> Result<String, StoreError> {
        self.write(Kind::Prompt, prompt, source)
    }

    /// Writes a partial, replacing an earlier one, and returns its version.
    pub fn save_partial(&self, partial: &PromptRef, source: &str) -> Result<String, StoreError> {
        self.write(Kind::Partial, partial, source)
    }

    /// Removes a prompt; fails with [`StoreErrorKind::NotFound`] if there is none.
    pub fn delete(&self, prompt: &PromptRef) -> Result<(), StoreError> {
        self.remove(Kind::Prompt, prompt)
    }

    /// Removes a partial; fails with [`StoreErrorKind::NotFound`] if there is none.
    pub fn delete_partial(&self, partial: &PromptRef) -> Result<(), StoreError> {
        self.remove(Kind::Partial, partial)
    }

    fn write(&self, kind: Kind, prompt: &PromptRef, source: &str) -> Result<String, StoreError> {
        let path = self.path(kind, prompt)?;
        let failed = |error| failure(prompt, "written", &error);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
            self.inside(folder, prompt)?;
        }
        if fs::symlink_metadata(&path).is_ok() {
            self.inside(&path, prompt)?;
        }
        fs::write(&path, source).map_err(failed)?;
        Ok(Self::version_of(source))
    }

    fn remove(&self, kind: Kind, prompt: &PromptRef) -> Result<(), StoreError> {
        let path = self.path(kind, prompt)?;
        if let Some(folder) = path.parent() {
            self.inside(folder, prompt)?;
        }
        fs::remove_file(path).map_err(|error| failure(prompt, "deleted", &error))
    }

    fn read(&self, kind: Kind, prompt: &PromptRef) -> Result<StoredPrompt, StoreError> {
        let path = self.path(kind, prompt)?;
        self.inside(&path, prompt)?;
        let source = fs::read_to_string(&path).map_err(|error| failure(prompt, "read", &error))?;
        let version = Self::version_of(&source);
        if let Some(wanted) = prompt.version.as_ref().filter(|wanted| **wanted != version) {
            let message = format!("prompt {prompt} has version {version}, not {wanted}");
            return Err(StoreError::new(StoreErrorKind::VersionMismatch, message));
        }
        Ok(StoredPrompt {
            source,
            version,
            file: Some(path.display().to_string()),
        })
    }

    fn path(&self, kind: Kind, prompt: &PromptRef) -> Result<PathBuf, StoreError> {
        check_name(&prompt.name)?;
        let (folder, base) = prompt.name.rsplit_once('/').unwrap_or(("", &prompt.name));
        let mut file = String::from(if kind == Kind::Partial { "_" } else { "" });
        file.push_str(base);
        if let Some(variant) = &prompt.variant {
            check_variant(variant)?;
            file.push('.');
            file.push_str(variant);
        }
        file.push_str(EXTENSION);
        Ok(self.directory.join(folder).join(file))
    }

    /// Refuses a path that leads out of the directory through a link.
    fn inside(&self, path: &Path, prompt: &PromptRef) -> Result<(), StoreError> {
        let failed = |error| failure(prompt, "found", &error);
        let root = fs::canonicalize(&self.directory).map_err(failed)?;
        if fs::canonicalize(path).map_err(failed)?.starts_with(root) {
            return Ok(());
        }
        let message = format!("prompt {prompt} lies outside the store");
        Err(StoreError::new(StoreErrorKind::InvalidName, message))
    }

    fn scan(&self, kind: Kind) -> Result<Vec<PromptRef>, StoreError> {
        let mut found = Vec::new();
        self.scan_folder(kind, "", 0, &mut found)?;
        found.sort();
        Ok(found)
    }

    fn scan_folder(
        &self,
        kind: Kind,
        folder: &str,
        depth: usize,
        found: &mut Vec<PromptRef>,
    ) -> Result<(), StoreError> {
        let failed = |error: io::Error| {
            StoreError::new(
                StoreErrorKind::Io,
                format!("the folder '{folder}' could not be listed: {error}"),
            )
        };
        for entry in fs::read_dir(self.directory.join(folder)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(file) = entry.file_name().into_string() else {
                continue;
            };
            let path = if folder.is_empty() {
                file.clone()
            } else {
                format!("{folder}/{file}")
            };
            if entry.path().is_dir() {
                if depth < MAX_FOLDERS && check_name(&path).is_ok() {
                    self.scan_folder(kind, &path, depth + 1, found)?;
                }
            } else if let Some(prompt) = named_by(kind, folder, &file) {
                // Skipped: a file deleted meanwhile, one outside the directory, or one whose name is not
                // valid here.
                if let Ok(stored) = self.read(kind, &prompt) {
                    found.push(prompt.version(stored.version));
                }
            }
        }
        Ok(())
    }
}

/// Returns the prompt or partial that belongs to a file name.
fn named_by(kind: Kind, folder: &str, file: &str) -> Option<PromptRef> {
    let stem = file.strip_suffix(EXTENSION)?;
    let stem = match (kind, stem.strip_prefix('_')) {
        (Kind::Partial, Some(stem)) => stem,
        (Kind::Prompt, None) => stem,
        _ => return None,
    };
    let (name, variant) = match stem.rsplit_once('.') {
        Some((name, variant)) => (name, Some(variant.to_owned())),
        None => (stem, None),
    };
    let name = if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    };
    Some(PromptRef {
        name,
        variant,
        version: None,
    })
}

fn failure(prompt: &PromptRef, what: &str, error: &io::Error) -> StoreError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StoreErrorKind::NotFound,
        _ => StoreErrorKind::Io,
    };
    StoreError::new(kind, format!("prompt {prompt} could not be {what}: {error}"))
}

impl PromptStore for DirStore {
    fn list(&self) -> Result<Vec<PromptRef>, StoreError> {
        self.scan(Kind::Prompt)
    }

    fn list_partials(&self) -> Result<Vec<PromptRef>, StoreError> {
        self.scan(Kind::Partial)
    }

    fn load(&self, prompt: &PromptRef) -> Result<StoredPrompt, StoreError> {
        self.read(Kind::Prompt, prompt)
    }

    fn load_partial(&self, partial: &PromptRef) -> Result<StoredPrompt, StoreError> {
        self.read(Kind::Partial, partial)
    }
}
