//! Where prompts and partials are kept: the contract of a store, and the store over a directory.

mod dir;
mod name;

use std::fmt;

pub use self::dir::DirStore;

/// A place that holds prompts and partials by name.
///
/// Names may have folders in them (`support/refund`). A name may exist in several variants; the version is
/// derived from the content, so that a caller can insist on the one it has tested.
pub trait PromptStore: Send + Sync {
    /// All prompts, in the order of their names and variants.
    fn list(&self) -> Result<Vec<PromptRef>, StoreError>;

    /// All partials, in the order of their names and variants.
    fn list_partials(&self) -> Result<Vec<PromptRef>, StoreError>;

    /// The source of a prompt.
    ///
    /// Fails with [`StoreErrorKind::NotFound`] if there is none of that name and variant, and with
    /// [`StoreErrorKind::VersionMismatch`] if a version is asked for and the stored one differs.
    fn load(&self, prompt: &PromptRef) -> Result<StoredPrompt, StoreError>;

    /// The source of a partial; fails as [`load`](Self::load) does.
    fn load_partial(&self, partial: &PromptRef) -> Result<StoredPrompt, StoreError>;
}

/// Which prompt or partial is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromptRef {
    /// The name, with the folders it is in.
    pub name: String,
    /// The variant; none is the prompt itself.
    pub variant: Option<String>,
    /// The version; none is whatever is stored.
    pub version: Option<String>,
}

impl PromptRef {
    /// The prompt of that name, without a variant, in whatever version.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            variant: None,
            version: None,
        }
    }

    /// The same prompt in a variant.
    #[must_use]
    pub fn variant(mut self, variant: impl Into<String>) -> Self {
        self.variant = Some(variant.into());
        self
    }

    /// The same prompt, only if it has that version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
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
    /// The file it is in, for error messages.
    pub file: Option<String>,
}

/// Why a store failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Nothing of that name and variant is stored.
    NotFound,
    /// The name or variant could be mistaken for something else by a file system.
    InvalidName,
    /// The stored version is not the one asked for.
    VersionMismatch,
    /// The file system failed.
    Io,
}

impl StoreError {
    /// A failure with a message that says which prompt it concerns.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// What kind of failure it is.
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
