//! The rule for ids that every store can keep.

use everturn_core::{Error, Result};

/// The greatest length of an id, in bytes: with an ending and a temporary mark it is still a file name.
pub const MAX_ID_BYTES: usize = 200;

/// Checks that every store can keep an id: an id becomes a file name in some of them.
///
/// It has 1 to [`MAX_ID_BYTES`] bytes, no path separator, no control character, no `..` and no leading dot.
/// An agent checks the id of a new session with it before anything runs. `what` names the id in the error.
///
/// # Errors
/// `INVALID_ARGUMENT` with the fault of the id.
pub fn check_id(what: &str, id: &str) -> Result<()> {
    let fault = if id.is_empty() {
        "is empty".to_owned()
    } else if id.len() > MAX_ID_BYTES {
        format!("has {} bytes, and {MAX_ID_BYTES} are allowed", id.len())
    } else if id.contains(['/', '\\']) {
        "contains a path separator".to_owned()
    } else if id.contains("..") {
        "contains '..'".to_owned()
    } else if id.starts_with('.') {
        "starts with a dot".to_owned()
    } else if id.chars().any(|character| character < '\u{20}') {
        "contains a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::invalid_argument(format!("the {what} {fault}; use letters, digits and dashes")).with_public())
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;

    #[test]
    fn an_id_that_some_store_cannot_keep_is_refused() {
        let long = "x".repeat(MAX_ID_BYTES + 1);
        for id in ["", ".", "..", "a/b", "a\\b", "a..b", ".a", "a\0b", "a\nb", &long] {
            let error = check_id("session id", id).unwrap_err();

            assert_eq!(error.status(), Status::InvalidArgument, "{id:?}");
        }
    }

    #[test]
    fn ids_of_any_script_are_kept() {
        for id in ["a", "7f0c", "küche 1", "スープ", "a.b", "user@example.org|42"] {
            assert!(check_id("session id", id).is_ok(), "{id:?}");
        }
    }
}
