//! The output of a template: text, and marks at offsets in it.

use crate::message::{Media, Role};

/// A role, history, media or section that a template puts at a place in its text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mark {
    Role(Role),
    History,
    Media(Media),
    Section(String),
}

/// Text with marks at byte offsets, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Output {
    pub(crate) text: String,
    pub(crate) marks: Vec<(usize, Mark)>,
}

impl Output {
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.marks.push((self.text.len(), mark));
    }

    pub(crate) fn append(&mut self, other: Self) {
        let offset = self.text.len();
        self.text.push_str(&other.text);
        self.marks
            .extend(other.marks.into_iter().map(|(at, mark)| (at + offset, mark)));
    }

    /// Puts `indent` before every line, except before an empty last line.
    pub(crate) fn indented(self, indent: &str) -> Self {
        let mut result = Self::default();
        let mut marks = self.marks.into_iter().peekable();
        let mut at = 0;
        loop {
            let end = self.text[at..]
                .find('\n')
                .map_or(self.text.len(), |newline| at + newline + 1);
            let is_last = !self.text[at..end].ends_with('\n');
            if !(is_last && at == end && marks.peek().is_none()) {
                result.text.push_str(indent);
            }
            let moved = result.text.len() - at;
            while let Some((offset, mark)) = marks.next_if(|(offset, _)| is_last || *offset < end) {
                result.marks.push((offset + moved, mark));
            }
            result.text.push_str(&self.text[at..end]);
            if is_last {
                return result;
            }
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_indented_but_an_empty_last_one() {
        let output = Output {
            text: "a\n\nb\n".to_owned(),
            marks: Vec::new(),
        };

        assert_eq!(output.indented("  ").text, "  a\n  \n  b\n");
    }

    #[test]
    fn marks_move_with_the_text_they_stand_at() {
        let marks = vec![
            (0, Mark::History),
            (2, Mark::Section("s".to_owned())),
            (4, Mark::History),
        ];
        let output = Output {
            text: "a\nb\n".to_owned(),
            marks,
        };

        let indented = output.indented("..");

        assert_eq!(indented.text, "..a\n..b\n..");
        let offsets: Vec<usize> = indented.marks.iter().map(|(at, _)| *at).collect();
        assert_eq!(offsets, [2, 6, 10]);
    }
}
