//! Stored text for a terminal: one line of bounded length without control characters.

use std::fmt::{self, Write};

/// Formats a text on one line: runs of whitespace become a space, control characters are shown as escapes,
/// and a text longer than `limit` characters ends with an ellipsis.
pub(super) struct Plain<'a> {
    text: &'a str,
    limit: usize,
}

pub(super) fn plain(text: &str, limit: usize) -> Plain<'_> {
    Plain { text, limit }
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut written, mut is_after_space) = (0, false);
        // Ends at the limit: a word may be as long as the text.
        for character in self.text.chars() {
            if character.is_whitespace() {
                is_after_space = written > 0;
                continue;
            }
            if is_after_space {
                f.write_char(' ')?;
                written += 1;
                is_after_space = false;
            }
            if written >= self.limit {
                return f.write_char('…');
            }
            if is_harmless(character) {
                f.write_char(character)?;
            } else {
                write!(f, "{}", character.escape_unicode())?;
            }
            written += 1;
        }
        Ok(())
    }
}

/// Returns whether a character can be shown: neither a control character nor one that changes the direction
/// of text.
pub(super) fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_cannot_move_the_cursor() {
        let shown = plain("a\u{1b}[2Jb\r\nc\u{202e}d", 100).to_string();

        assert_eq!(shown, "a\\u{1b}[2Jb c\\u{202e}d");
    }

    #[test]
    fn long_text_ends_with_an_ellipsis() {
        assert_eq!(plain("leek soup", 9).to_string(), "leek soup");
        assert_eq!(plain("leek soup", 6).to_string(), "leek s…");
        assert_eq!(plain("leek soup", 4).to_string(), "leek …");
        assert_eq!(plain("  ", 4).to_string(), "");
    }
}
