//! Checks of names before they become paths.
//!
//! Names come from templates and callers, sometimes from a network. A name is accepted only if every file
//! system reads it as a path below the store, so the rules reject more than any one system would need.

use crate::store::{StoreError, StoreErrorKind};

/// Checks a prompt's name, which may have folders.
pub(super) fn check_name(name: &str) -> Result<(), StoreError> {
    match flaw(name) {
        None => Ok(()),
        Some(flaw) => Err(refuse("name", name, flaw)),
    }
}

/// Checks a variant, which may have neither folders nor dots.
pub(super) fn check_variant(variant: &str) -> Result<(), StoreError> {
    let flaw = if variant.contains('/') {
        Some("contains a slash")
    } else if variant.contains('.') {
        Some("contains a dot")
    } else {
        flaw(variant)
    };
    match flaw {
        None => Ok(()),
        Some(flaw) => Err(refuse("variant", variant, flaw)),
    }
}

fn refuse(what: &str, name: &str, flaw: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::InvalidName,
        format!("invalid prompt {what} {name:?}: it {flaw}"),
    )
}

fn flaw(name: &str) -> Option<&'static str> {
    if name.trim().is_empty() {
        return Some("is empty");
    }
    if !name.is_ascii() {
        return Some("contains characters beyond ASCII");
    }
    if name.chars().any(|c| c.is_ascii_control()) || name.contains("\\0") {
        return Some("contains control characters");
    }
    if has_percent_escape(name) {
        return Some("contains percent escapes");
    }
    if name.contains('\\') {
        return Some("contains a backslash");
    }
    if name.contains([':', '*', '?', '"', '<', '>', '|']) {
        return Some("contains a character that some file systems reserve");
    }
    if name.starts_with('/') || name.starts_with('~') {
        return Some("is an absolute path");
    }
    name.split('/').find_map(segment_flaw)
}

fn segment_flaw(segment: &str) -> Option<&'static str> {
    match segment {
        "" => Some("has an empty folder or file name"),
        "." | ".." => Some("has a relative path segment"),
        _ if segment.starts_with('.') => Some("has a hidden folder or file name"),
        _ if segment.ends_with('.') || segment.trim() != segment => {
            Some("has a folder or file name with a dot or a space at its end")
        }
        _ => None,
    }
}

fn has_percent_escape(name: &str) -> bool {
    let is_escape =
        |bytes: &[u8]| matches!(bytes, [b'%', digits @ ..] if digits.iter().all(u8::is_ascii_hexdigit));
    name.as_bytes().windows(3).any(is_escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_with_folders_are_accepted() {
        for name in [
            "greet",
            "support/refund",
            "a-b_c.d",
            "a b",
            "x/y/z",
            "100%",
            "50%off",
        ] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn names_that_could_lead_elsewhere_are_refused() {
        let names = [
            "",
            " ",
            "..",
            "../x",
            "a/../b",
            "a/..",
            ".",
            "./a",
            "a/./b",
            "/etc/passwd",
            "a//b",
            "a/",
            "~/x",
            "C:/x",
            "c:x",
            "\\\\host\\x",
            "a\\b",
            "a\0b",
            "a\\0b",
            "a\nb",
            "%2e%2e/x",
            "%252e%252e",
            "%25252e",
            "a%2Fb",
            "%00",
            "caf\u{e9}",
            "\u{ff0e}\u{ff0e}/x",
            "a\u{202e}b",
            ".hidden",
            "a/.git/x",
            "a.",
            "a /b",
            "a*",
            "a|b",
        ];
        for name in names {
            let error = check_name(name).expect_err(name);
            assert_eq!(error.kind(), StoreErrorKind::InvalidName, "{name}");
        }
    }

    #[test]
    fn a_variant_is_one_word() {
        assert!(check_variant("formal").is_ok());
        for variant in ["", "a/b", "a.b", "..", "%2e"] {
            assert!(check_variant(variant).is_err(), "{variant}");
        }
    }
}
