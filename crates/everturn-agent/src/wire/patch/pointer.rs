//! JSON pointers (RFC 6901): reference tokens and their escapes.

use std::borrow::Cow;

use super::PatchError;

/// Splits a pointer into unescaped reference tokens; the empty pointer has none.
pub(super) fn tokens(pointer: &str) -> Result<Vec<Cow<'_, str>>, PatchError> {
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let rest = pointer
        .strip_prefix('/')
        .ok_or_else(|| PatchError::InvalidPointer(pointer.to_owned()))?;
    Ok(rest.split('/').map(unescape).collect())
}

/// Appends `/token` to a pointer, escaping the token.
pub(super) fn push(pointer: &mut String, token: &str) {
    pointer.push('/');
    for character in token.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

/// Parses a token as an array index: decimal digits without a leading zero.
pub(super) fn index(token: &str) -> Option<usize> {
    let canonical =
        token == "0" || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()));
    if canonical { token.parse().ok() } else { None }
}

fn unescape(token: &str) -> Cow<'_, str> {
    if token.contains('~') {
        // `~1` is replaced first, so that `~01` becomes `~1` and not a slash.
        Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_escaping_and_unescaping() {
        for token in ["", "a", "/", "~", "~1", "~01", "a/b~c", "~~//"] {
            let mut pointer = String::new();
            push(&mut pointer, token);

            assert_eq!(tokens(&pointer), Ok(vec![Cow::Borrowed(token)]), "{pointer}");
        }
    }

    #[test]
    fn an_escaped_tilde_before_a_one_is_not_a_slash() {
        assert_eq!(tokens("/~01"), Ok(vec![Cow::Borrowed("~1")]));
    }

    #[test]
    fn the_root_has_no_tokens_and_a_slash_has_one_empty_token() {
        assert_eq!(tokens(""), Ok(vec![]));
        assert_eq!(tokens("/"), Ok(vec![Cow::Borrowed("")]));
    }

    #[test]
    fn a_pointer_without_its_slash_is_an_error() {
        assert_eq!(tokens("a/b"), Err(PatchError::InvalidPointer("a/b".to_owned())));
    }

    #[test]
    fn only_canonical_decimal_tokens_are_indices() {
        assert_eq!(index("0"), Some(0));
        assert_eq!(index("10"), Some(10));
        for token in [
            "",
            "-",
            "-1",
            "+1",
            "01",
            "00",
            "1e0",
            "1.0",
            "x",
            "99999999999999999999999",
        ] {
            assert_eq!(index(token), None, "{token}");
        }
    }
}
