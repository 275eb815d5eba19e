//! The file with which the tools find a program: `.genkit/runtimes/*.json` in the project's root.

use std::path::{Path, PathBuf};

use everturn_core::{Error, Result};
use serde_json::Value;

/// The files that mark a project's root for the tools. `Cargo.toml` is not one of them, so the tools would
/// not find a file next to it.
const MARKERS: [&str; 8] = [
    "package.json",
    "go.mod",
    "pyproject.toml",
    "requirements.txt",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "pubspec.yaml",
];

/// Returns the project's root as the tools compute it: the nearest folder at or above `start` with a marker
/// file, else `start`. The root of the file system is not checked.
pub(crate) fn project_root(start: &Path) -> PathBuf {
    start
        .ancestors()
        .filter(|folder| folder.parent().is_some())
        .find(|folder| MARKERS.iter().any(|marker| folder.join(marker).exists()))
        .unwrap_or(start)
        .to_owned()
}

/// The file, which exists while the program can be reached; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct RuntimeFile(PathBuf);

impl RuntimeFile {
    /// Writes the file under `root`, atomically: the tools read a file as soon as it exists.
    ///
    /// # Errors
    /// The operating system's error, with the path.
    pub(crate) fn write(root: &Path, pid: u32, port: u16, info: &Value) -> Result<Self> {
        let folder = root.join(".genkit").join("runtimes");
        let millis = jiff::Timestamp::now().as_millisecond();
        let path = folder.join(format!("{pid}-{port}-{millis}.json"));
        let unfinished = path.with_extension("tmp");
        let text = serde_json::to_string_pretty(info)?;
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&unfinished, text))
            .and_then(|()| std::fs::rename(&unfinished, &path))
            .map_err(|error| {
                Error::unavailable(format!(
                    "the tools' file {} cannot be written: {error}",
                    path.display()
                ))
            })?;
        Ok(Self(path))
    }
}

impl Drop for RuntimeFile {
    fn drop(&mut self) {
        // The tools may have removed the file already.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_nearest_folder_with_a_marker() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("crates/app");
        std::fs::create_dir_all(&inner).expect("folders");
        std::fs::write(folder.path().join("crates/app/Cargo.toml"), "").expect("a file");
        assert_eq!(project_root(&inner), inner);

        std::fs::write(folder.path().join("go.mod"), "").expect("a file");
        assert_eq!(project_root(&inner), folder.path());
    }
}
