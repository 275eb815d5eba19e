//! Finding the conformance data, and skipping tests without it.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Returns the folder with the data. If it does not exist, prints so and returns `None`.
///
/// # Panics
/// If there is no such folder and `CI` is `true`.
pub fn directory() -> Option<PathBuf> {
    let folder = candidate(env::var_os("CONFORMANCE_DIR"), env::var_os("CARGO_MANIFEST_DIR"));
    if folder.is_dir() {
        return Some(folder);
    }
    skip(format_args!(
        "there is no conformance data in {}",
        folder.display()
    ));
    None
}

/// Returns the configured folder, or the default: `shared` next to the repository, two folders above the
/// crate.
fn candidate(chosen: Option<OsString>, manifest: Option<OsString>) -> PathBuf {
    match chosen.filter(|chosen| !chosen.is_empty()) {
        Some(chosen) => chosen.into(),
        None => Path::new(&manifest.unwrap_or_default()).join("../../../shared/conformance"),
    }
}

/// Prints that the running test is skipped, with the reason.
///
/// # Panics
/// If `CI` is `true`: all requirements of a test must be met there.
pub fn skip(reason: impl Display) {
    assert!(
        !is_ci(env::var_os("CI")),
        "a test cannot be skipped in CI: {reason}"
    );
    eprintln!("skipped: {reason}");
}

fn is_ci(value: Option<OsString>) -> bool {
    value.is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_wins_over_the_folder_beside_the_repository() {
        let chosen = candidate(Some("/data".into()), Some("/repository/crates/one".into()));
        let beside = candidate(None, Some("/repository/crates/one".into()));

        assert_eq!(chosen, Path::new("/data"));
        assert_eq!(
            beside,
            Path::new("/repository/crates/one/../../../shared/conformance")
        );
        assert_eq!(
            candidate(Some("".into()), Some("/repository/crates/one".into())),
            beside
        );
    }

    #[test]
    fn only_the_word_true_means_ci() {
        assert!(is_ci(Some("true".into())));
        assert!(!is_ci(Some("1".into())));
        assert!(!is_ci(None));
    }
}
