//! White space as the format's JavaScript origin defines it, which differs from Unicode's in U+FEFF and
//! U+0085.

pub(crate) fn is_space(c: char) -> bool {
    matches!(c, '\u{feff}') || (c.is_whitespace() && c != '\u{85}')
}

pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Returns the length of the line break at the start of `text`: CRLF, CR or LF.
pub(crate) fn line_break(text: &str) -> Option<usize> {
    match text.as_bytes() {
        [b'\r', b'\n', ..] => Some(2),
        [b'\r' | b'\n', ..] => Some(1),
        _ => None,
    }
}
