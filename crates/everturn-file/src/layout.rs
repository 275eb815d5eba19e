//! The paths of rows and pointers: `<root>/<scope>/<snapshot>.json` and
//! `<root>/<scope>/.pointers/<session>.json`.
//!
//! Ids come from clients, so every segment is checked before it becomes part of a path.

use std::path::{Path, PathBuf};

use everturn_agent::store::{Scope, check_id};
use everturn_agent::{SessionId, SnapshotId};
use everturn_core::{Error, Result, hex};
use sha2::{Digest, Sha256};

/// The folder of one scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Returns the folder of a scope. A scope may be nested with `/`. Two scopes never share a folder, and a
    /// scope's folder is never the path of a row.
    pub(crate) fn of(root: &Path, scope: &Scope) -> Result<Self> {
        let mut folder = root.to_owned();
        for (level, segment) in scope.as_str().split('/').enumerate() {
            let segment = safe("scope", segment)?;
            let is_row = Path::new(segment)
                .extension()
                .is_some_and(|end| end.eq_ignore_ascii_case("json"));
            if level > 0 && is_row {
                return Err(Error::invalid_argument(format!(
                    "the nested scope '{segment}' ends in '.json' like the file of a snapshot; choose another name"
                )));
            }
            folder.push(segment);
        }
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn pointers(&self) -> PathBuf {
        self.0.join(".pointers")
    }

    /// Returns the file that holds the tenant's readable name.
    pub(crate) fn tenant(&self) -> PathBuf {
        self.0.join(".tenant")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join(".lock")
    }

    pub(crate) fn row(&self, id: &SnapshotId) -> Result<PathBuf> {
        Ok(self.0.join(format!("{}.json", safe("snapshot id", id.as_str())?)))
    }

    pub(crate) fn pointer(&self, session: &SessionId) -> Result<PathBuf> {
        Ok(self
            .pointers()
            .join(format!("{}.json", safe("session id", session.as_str())?)))
    }
}

/// Returns the name if it can be one segment of a path: if every store can keep it as an id.
fn safe<'a>(what: &str, name: &'a str) -> Result<&'a str> {
    check_id(what, name).map(|()| name)
}

/// Returns a file name that stands for several names, which together may be too long for one.
pub(crate) fn hashed_name<const N: usize>(names: [&str; N]) -> String {
    let mut hash = Sha256::new();
    for name in names {
        hash.update(name);
        hash.update([0]);
    }
    hex(&hash.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;

    #[test]
    fn hostile_names_never_become_paths() {
        let folder = Folder::of(Path::new("/data"), &Scope::default()).unwrap();
        let long = "x".repeat(10_000);

        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a\\b",
            ".hidden",
            "a..b",
            "a\0b",
            "a\nb",
            long.as_str(),
        ] {
            let error = folder.row(&SnapshotId::from(name)).unwrap_err();

            assert_eq!(error.status(), Status::InvalidArgument, "{name:?}");
        }
    }

    #[test]
    fn names_of_any_script_are_fine() {
        let folder = Folder::of(Path::new("/data"), &Scope::new("tenants/küche")).unwrap();

        let path = folder.row(&SnapshotId::from("スープ 1")).unwrap();

        assert_eq!(path, Path::new("/data/tenants/küche/スープ 1.json"));
    }

    #[test]
    fn a_scope_cannot_leave_the_root() {
        for scope in [
            "", "/", "..", "a/../b", "a\\b", "a/.b", "a//b", "/a", "a/", "a/b.json",
        ] {
            assert!(
                Folder::of(Path::new("/data"), &Scope::new(scope)).is_err(),
                "{scope:?}"
            );
        }
    }
}
