//! A file of recorded model calls.

mod canonical;
mod recording;
mod secrets;

use std::fs;
use std::path::Path;

use everturn_core::{Error, Result};
use serde::{Deserialize, Serialize};

pub(crate) use self::canonical::{canonical, remove};
pub(crate) use self::recording::{Outcome, Recording};
pub(crate) use self::secrets::Secrets;

/// The version of the file format.
const VERSION: u32 = 1;

/// Recorded calls, in the order in which they ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cassette {
    version: u32,
    pub(crate) recordings: Vec<Recording>,
}

impl Cassette {
    pub(crate) fn new() -> Self {
        Self {
            version: VERSION,
            recordings: Vec::new(),
        }
    }

    pub(crate) fn load(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path).map_err(|error| {
            Error::not_found(format!("cannot read the cassette {name}: {error}")).with_source(error)
        })?;
        let broken =
            |problem: String| Error::invalid_argument(format!("{name} is not a cassette: {problem}"));
        let cassette: Self = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        if cassette.version != VERSION {
            return Err(broken(format!(
                "it has version {}, and this program reads {VERSION}",
                cassette.version
            )));
        }
        Ok(cassette)
    }

    /// Returns the content of the file.
    pub(crate) fn to_text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// Writes the file under a temporary name and renames it, so that a reader never sees half of it.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::internal(format!("cannot write the cassette {}: {error}", path.display())).with_source(error)
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, text).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}
