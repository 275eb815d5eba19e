//! Stores of prompts and partials: the trait, and the store over a directory.

mod dir;
mod name;

use std::fmt;

pub use self::dir::DirStore;

/// Holds prompts and partials by name.
///
/// Names may have folders in them (`support/refund`). A name may exist in several variants; the version is
/// derived from the content, so that a caller can require the version it has tested.
pub trait PromptStore: Send + Sync {
    /// Returns all prompts, ordered by name and variant.
    fn list(&self) -> Result<Vec<PromptRef>, StoreError>;

    /// Returns all partials, ordered by name and variant.
    fn list_partials(&self) -> Result<Vec<PromptRef>, StoreError>;

    /// Returns the source of a prompt.
    ///
    /// Fails with [`StoreErrorKind::NotFound`] if no prompt has that name and variant, and with
    /// [`StoreErrorKind::VersionMismatch`] if `prompt` has a version and the stored one differs.
    fn load(&self, prompt: &PromptRef) -> Result<StoredPrompt, StoreError>;

    /// Returns the source of a partial; fails as [`load`](Self::load) does.
    fn load_partial(&self, partial: &PromptRef) -> Result<StoredPrompt, StoreError>;
}

/// A reference to a prompt or partial: its name, variant and version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromptRef {
    /// The name, with the folders it is in.
    pub name: String,
    /// The variant; `None` is the prompt without a variant.
    pub variant: Option<String>,
    /// The required version; `None` accepts any version.
    pub version: Option<String>,
}

impl PromptRef {
    /// Refers to the prompt of that name, without a variant, in any version.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            variant: None,
            version: None,
        }
    }

    setters! {
        /// Sets the variant.
        pub fn variant(mut self, variant: impl Into<String>) { self.variant = Some(variant.into()) }

        /// Sets the required version.
        pub fn version(mut self, version: impl Into<String>) { self.version = Some(version.into()) }
    }
}

impl fmt::Display for PromptRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.name)?;
        if let Some(variant) = &self.variant {
            write!(f, " (variant '{variant}')")?;
        }
        Ok(())
    }
}

/// A prompt or partial as a store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPrompt {
    /// The source.
    pub source: String,
    /// The version of this source.
    pub version: String,
    /// The file that holds the source, for error messages.
    pub file: Option<String>,
}

/// The failure of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
}

/// The kind of a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store has no prompt or partial of that name and variant.
    NotFound,
    /// The name or variant is not safe as a path in every file system.
    InvalidName,
    /// The stored version is not the required one.
    VersionMismatch,
    /// The file system failed.
    Io,
}

impl StoreError {
    /// Creates a failure with a message that names the prompt.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}
