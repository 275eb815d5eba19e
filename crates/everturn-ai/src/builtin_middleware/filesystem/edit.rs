//! Replacing pieces of a text.

use everturn_core::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;

/// One replacement, by exact text.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Edit {
    /// The text to replace, exactly as it is in the file. It must occur once, unless `replaceAll` is true.
    pub(super) old_string: String,
    /// The text to put in its place.
    pub(super) new_string: String,
    /// Whether to replace every occurrence.
    #[serde(default)]
    pub(super) replace_all: bool,
}

impl Edit {
    /// Returns the text with this replacement made.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the edit is empty, `FAILED_PRECONDITION` if the text to replace is missing or,
    /// for a single replacement, occurs more than once.
    pub(super) fn apply(&self, text: &str) -> Result<String> {
        if self.old_string.is_empty() {
            return Err(Error::invalid_argument(
                "`oldString` is empty; write_file makes new files",
            ));
        }
        if self.old_string == self.new_string {
            return Err(Error::invalid_argument(
                "`oldString` and `newString` are the same",
            ));
        }
        match text.matches(&self.old_string).count() {
            0 => Err(not_there("`oldString`")),
            1 => Ok(text.replacen(&self.old_string, &self.new_string, 1)),
            _ if self.replace_all => Ok(text.replace(&self.old_string, &self.new_string)),
            count => Err(Error::failed_precondition(format!(
                "`oldString` is in the file {count} times; make it longer so that it is unique, or set `replaceAll`"
            ))),
        }
    }
}

/// Returns the text with a search-and-replace block applied to its first match.
///
/// Both halves of a block may themselves contain the separator line. Of all ways to split the block, the one
/// with the longest search text that occurs in the file is used.
///
/// # Errors
/// `INVALID_ARGUMENT` if `block` is not a search-and-replace block, `FAILED_PRECONDITION` if no search text
/// is in the file.
pub(super) fn apply_block(block: &str, text: &str) -> Result<String> {
    let body = block
        .trim()
        .strip_prefix("<<<<<<< SEARCH\n")
        .and_then(|block| block.strip_suffix(">>>>>>> REPLACE"))
        .ok_or_else(|| {
            malformed("it begins with the line '<<<<<<< SEARCH' and ends with '>>>>>>> REPLACE'")
        })?;
    let mut splits = splits(body).peekable();
    if splits.peek().is_none() {
        return Err(malformed(
            "a line '=======' stands between a search text, which is not empty, and its replacement",
        ));
    }
    let (search, replacement) = splits
        .filter(|(search, _)| text.contains(search))
        .max_by_key(|(search, _)| search.len())
        .ok_or_else(|| not_there("the search text"))?;
    Ok(text.replacen(search, replacement, 1))
}

/// Returns every way to read a block's body as a search text, the separator and a replacement, which may be
/// empty.
fn splits(body: &str) -> impl Iterator<Item = (&str, &str)> {
    const SEPARATOR: &str = "\n=======\n";

    let separators =
        (0..body.len()).filter(move |&at| body.as_bytes()[at..].starts_with(SEPARATOR.as_bytes()));
    separators.filter(|&at| at > 0).filter_map(move |at| {
        let replacement = &body[at + SEPARATOR.len()..];
        let replacement = if replacement.is_empty() {
            replacement
        } else {
            replacement.strip_suffix('\n')?
        };
        Some((&body[..at], replacement))
    })
}

fn malformed(rule: &str) -> Error {
    Error::invalid_argument(format!("not a search-and-replace block: {rule}"))
}

fn not_there(what: &str) -> Error {
    Error::failed_precondition(format!(
        "{what} is not in the file; it must match exactly, including spaces and indentation"
    ))
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;

    fn edit(old: &str, new: &str) -> Edit {
        Edit {
            old_string: old.to_owned(),
            new_string: new.to_owned(),
            replace_all: false,
        }
    }

    fn block(search: &str, replacement: &str) -> String {
        format!("<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE")
    }

    #[test]
    fn a_single_edit_needs_a_unique_match() {
        assert_eq!(edit("b", "x").apply("abc").unwrap(), "axc");
        assert_eq!(
            edit("b", "x").apply("abcb").unwrap_err().status(),
            Status::FailedPrecondition
        );
        assert_eq!(
            edit("z", "x").apply("abc").unwrap_err().status(),
            Status::FailedPrecondition
        );
    }

    #[test]
    fn all_matches_are_replaced_on_request() {
        let edit = Edit {
            replace_all: true,
            ..edit("b", "x")
        };

        assert_eq!(edit.apply("abcb").unwrap(), "axcx");
    }

    #[test]
    fn an_edit_that_changes_nothing_is_refused() {
        for nothing in [edit("", "x"), edit("b", "b")] {
            assert_eq!(
                nothing.apply("abc").unwrap_err().status(),
                Status::InvalidArgument
            );
        }
    }

    #[test]
    fn a_block_replaces_the_first_occurrence_only() {
        assert_eq!(apply_block(&block("b", "x"), "abcb").unwrap(), "axcb");
    }

    #[test]
    fn a_block_s_replacement_is_taken_literally() {
        assert_eq!(
            apply_block(&block("b", "$& $1 \\0"), "abc").unwrap(),
            "a$& $1 \\0c"
        );
    }

    #[test]
    fn a_block_can_delete_with_an_empty_line_or_none() {
        assert_eq!(apply_block(&block("b", ""), "abc").unwrap(), "ac");
        assert_eq!(
            apply_block("<<<<<<< SEARCH\nb\n=======\n>>>>>>> REPLACE", "abc").unwrap(),
            "ac"
        );
    }

    #[test]
    fn the_longest_search_text_that_matches_decides_where_a_block_is_split() {
        let ambiguous = block("left\n=======\nright", "resolved");

        assert_eq!(
            apply_block(&ambiguous, "left\n=======\nright\n").unwrap(),
            "resolved\n"
        );
        assert_eq!(
            apply_block(&ambiguous, "left\n").unwrap(),
            "right\n=======\nresolved\n"
        );
    }

    #[test]
    fn a_text_that_is_not_a_block_is_refused() {
        for wrong in [
            "",
            "b -> x",
            "<<<<<<< SEARCH\nb\n>>>>>>> REPLACE",
            &block("", "x")[..],
        ] {
            assert_eq!(
                apply_block(wrong, "abc").unwrap_err().status(),
                Status::InvalidArgument,
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_block_that_matches_nothing_is_an_error() {
        assert_eq!(
            apply_block(&block("z", "x"), "abc").unwrap_err().status(),
            Status::FailedPrecondition
        );
    }
}
