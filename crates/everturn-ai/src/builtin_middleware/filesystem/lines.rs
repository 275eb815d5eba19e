//! Lines of a text, counted from 1.

/// The lines that a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineRange {
    first: usize,
    /// `None` reads to the end.
    count: Option<usize>,
}

impl LineRange {
    /// Creates the range of `limit` lines from the `offset`-th; 0 stands for the first line and for no limit.
    pub(super) fn new(offset: usize, limit: usize) -> Self {
        Self {
            first: offset.max(1),
            count: (limit > 0).then_some(limit),
        }
    }

    /// Returns whether the range covers a whole text of any length.
    pub(super) fn is_everything(self) -> bool {
        self.first == 1 && self.count.is_none()
    }

    pub(super) fn first(self) -> usize {
        self.first
    }

    /// Returns the lines of the range, each with its line end.
    pub(super) fn of(self, text: &str) -> &str {
        let start = line_start(text, self.first - 1);
        let rest = &text[start..];
        &rest[..self.count.map_or(rest.len(), |count| line_start(rest, count))]
    }
}

/// Returns the offset at which the line after `lines_before` lines begins, or the text's length if there are
/// fewer lines.
fn line_start(text: &str, lines_before: usize) -> usize {
    text.split_inclusive('\n').take(lines_before).map(str::len).sum()
}

/// Counts the lines of a text; a line end at the very end does not begin another one.
pub(super) fn count_lines(text: &str) -> usize {
    text.split_inclusive('\n').count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_keeps_line_ends_and_stops_at_the_text_s_end() {
        let text = "one\r\ntwo\nthree";

        assert_eq!(LineRange::new(0, 1).of(text), "one\r\n");
        assert_eq!(LineRange::new(2, 0).of(text), "two\nthree");
        assert_eq!(LineRange::new(3, usize::MAX).of(text), "three");
        assert_eq!(LineRange::new(usize::MAX, 1).of(text), "");
    }

    #[test]
    fn a_trailing_line_end_is_no_line() {
        assert_eq!(
            [
                count_lines(""),
                count_lines("a"),
                count_lines("a\n"),
                count_lines("a\n\n")
            ],
            [0, 1, 1, 2]
        );
    }

    proptest! {
        #[test]
        fn consecutive_ranges_cover_the_text(text in "[a\\n\u{e9}]{0,40}", step in 1_usize..5) {
            let total = count_lines(&text);

            let joined: String = (1..=total).step_by(step).map(|first| LineRange::new(first, step).of(&text)).collect();

            prop_assert_eq!(joined, text);
        }
    }
}
