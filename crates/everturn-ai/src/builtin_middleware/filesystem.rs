//! A directory that the model may read and, if allowed, write.

mod bundle;
mod edit;
mod list;
mod path;
mod read;
mod tools;
mod workspace;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use everturn_core::Result;
use schemars::JsonSchema;
use serde::Deserialize;

use self::bundle::Bundle;
use self::workspace::Workspace;
use crate::{IntoMiddleware, MiddlewareSource};

/// Gives the model tools for the files in one directory, and nothing outside it.
///
/// | tool | what it does |
/// |---|---|
/// | `list_files` | lists a directory, optionally with its subdirectories |
/// | `read_file` | reads a text file, some of its lines, or an image |
/// | `write_file` | creates or replaces a file |
/// | `edit_file` | replaces exact pieces of a file |
/// | `search_and_replace` | the same with `SEARCH`/`REPLACE` blocks |
///
/// The last three exist only with [`allow_write`](Self::allow_write). Paths are relative to the root
/// directory; `..` and symbolic links are followed only inside it. The content of a file reaches the model as
/// a user message right after the tool's answer, wrapped in a `read_file` element. A tool that fails returns
/// the reason to the model and the generation continues.
///
/// Limits: 256 KiB for one read, 10 MiB for any file, 10,000 entries for one listing. An existing file may be
/// written only after it was read in the same generate call, and only if its size and time of modification
/// have not changed. Reading the same lines of an unchanged file again returns a short note. The last 200
/// files are remembered for this.
///
/// ```no_run
/// use everturn_ai::builtin_middleware::Filesystem;
///
/// let workspace = Filesystem::new("workspace").allow_write().tool_name_prefix("ws_");
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Filesystem {
    /// The directory that everything is confined to.
    root_directory: PathBuf,
    /// Whether the writing tools exist.
    #[serde(default)]
    allow_write_access: bool,
    /// The prefix of the tools' names, which distinguishes several directories.
    #[serde(default)]
    tool_name_prefix: String,
}

impl Filesystem {
    /// Creates middleware that lets the model read below a directory, which must exist when a generation
    /// begins.
    pub fn new(root_directory: impl Into<PathBuf>) -> Self {
        Self {
            root_directory: root_directory.into(),
            allow_write_access: false,
            tool_name_prefix: String::new(),
        }
    }

    everturn_core::setters! {
        /// Lets the model write too.
        pub fn allow_write(mut self) { self.allow_write_access = true }

        /// Sets the prefix of the tools' names, which distinguishes several directories.
        pub fn tool_name_prefix(mut self, prefix: impl Into<String>) { self.tool_name_prefix = prefix.into() }
    }

    /// Opens the directory for one generate call.
    pub(super) fn open(&self) -> Result<Bundle> {
        let workspace = Workspace::open(&self.root_directory)?;
        Ok(Bundle::new(
            workspace,
            &self.tool_name_prefix,
            self.allow_write_access,
        ))
    }
}

/// Opens a bundle for each generate call, because the seen files and the pending contents belong to one call.
impl IntoMiddleware for Filesystem {
    fn into_middleware(self) -> MiddlewareSource {
        MiddlewareSource::factory(move |_| Ok(Arc::new(self.open()?)))
    }
}
