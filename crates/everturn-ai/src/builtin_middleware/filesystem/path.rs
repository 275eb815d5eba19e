//! Paths as a model writes them.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use everturn_core::{Error, Result};

/// A path below the root of a workspace, without redundant dots and slashes.
///
/// It may still contain `..` and lead through symbolic links. Whether those stay inside the root is decided
/// where the path is opened, by the operating system's own resolution and not by the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WorkspacePath(String);

impl WorkspacePath {
    /// Parses the path of a file.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is empty or absolute.
    pub(super) fn file(text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            return Err(Error::invalid_argument("`filePath` is empty"));
        }
        Self::read(text)
    }

    /// Parses the path of a directory; an empty path, or a lone `/`, is the root of the workspace.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is absolute.
    pub(super) fn directory(text: &str) -> Result<Self> {
        let is_root = text.trim().trim_start_matches('/').is_empty();
        Self::read(if is_root { "." } else { text })
    }

    fn read(text: &str) -> Result<Self> {
        let text = text.trim();
        let mut names = Vec::new();
        for component in Path::new(text).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => names.push(".."),
                // The path was made from a string, so its parts are strings.
                Component::Normal(name) => names.extend(name.to_str()),
                Component::RootDir | Component::Prefix(_) => {
                    return Err(Error::invalid_argument(format!(
                        "'{text}' is an absolute path; give it relative to the root directory"
                    )));
                }
            }
        }
        Ok(Self(if names.is_empty() {
            ".".to_owned()
        } else {
            names.join("/")
        }))
    }

    /// Returns the path of an entry of this directory.
    pub(super) fn join(&self, name: &str) -> Self {
        if self.0 == "." {
            Self(name.to_owned())
        } else {
            Self(format!("{}/{name}", self.0))
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the directory that holds this entry; `None` for an entry of the root.
    pub(super) fn parent(&self) -> Option<PathBuf> {
        Path::new(&self.0)
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .map(Path::to_path_buf)
    }

    /// Returns the MIME type, if the name is that of an image that models can look at.
    pub(super) fn image_type(&self) -> Option<&'static str> {
        let extension = Path::new(&self.0).extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "avif" => "image/avif",
            "bmp" => "image/bmp",
            "gif" => "image/gif",
            "heic" => "image/heic",
            "jpeg" | "jpg" => "image/jpeg",
            "png" => "image/png",
            "tif" | "tiff" => "image/tiff",
            "webp" => "image/webp",
            _ => return None,
        })
    }
}

impl AsRef<Path> for WorkspacePath {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;

    #[test]
    fn spellings_of_one_path_are_one_path() {
        for spelling in ["src/main.rs", "./src/main.rs", " src//main.rs ", "src/./main.rs"] {
            assert_eq!(WorkspacePath::file(spelling).unwrap().as_str(), "src/main.rs");
        }
    }

    #[test]
    fn the_root_has_many_names_as_a_directory() {
        for root in ["", ".", "./", "/", " "] {
            assert_eq!(WorkspacePath::directory(root).unwrap().as_str(), ".");
        }
    }

    #[test]
    fn an_absolute_path_is_refused() {
        for refused in [
            WorkspacePath::file("/etc/passwd"),
            WorkspacePath::directory("/etc"),
        ] {
            assert_eq!(refused.unwrap_err().status(), Status::InvalidArgument);
        }
    }

    #[test]
    fn images_are_recognised_by_extension_in_any_case() {
        assert_eq!(
            WorkspacePath::file("a/Photo.JPG").unwrap().image_type(),
            Some("image/jpeg")
        );
        assert_eq!(WorkspacePath::file("png").unwrap().image_type(), None);
        assert_eq!(WorkspacePath::file("drawing.svg").unwrap().image_type(), None);
    }
}
