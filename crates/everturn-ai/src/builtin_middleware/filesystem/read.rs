//! The tool that reads files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cap_std::fs::OpenOptions;
use everturn_core::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use super::path::WorkspacePath;
use super::workspace::Sighting;
use super::workspace::{MAX_FILE_BYTES, MAX_SHOWN_BYTES, OpenFile, Workspace};
use crate::{Media, Part};

/// The input of the reading tool.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadFile {
    /// The file, relative to the root directory.
    file_path: String,
    /// The first line to read, counted from 1; the beginning if not given.
    #[serde(default)]
    offset: usize,
    /// How many lines to read; all if not given.
    #[serde(default)]
    limit: usize,
}

/// The result of a read.
#[derive(Debug)]
pub(super) struct Reading {
    /// The text that the tool answers with.
    pub(super) answer: String,
    /// The content for a message after the answer; empty if the conversation has it already.
    pub(super) content: Vec<Part>,
}

impl Workspace {
    /// Reads the content of a text file or an image.
    ///
    /// # Errors
    /// `NOT_FOUND`, `PERMISSION_DENIED` outside the root, `INVALID_ARGUMENT` for a directory or a file that
    /// is neither text nor an image, `RESOURCE_EXHAUSTED` over a limit, `OUT_OF_RANGE` past the last line.
    pub(super) fn read(&self, input: &ReadFile) -> Result<Reading> {
        let path = WorkspacePath::file(&input.file_path)?;
        let file = self.existing_file(&path, OpenOptions::new().read(true))?;
        match path.image_type() {
            Some(mime_type) => self.read_image(&path, file, mime_type),
            None => self.read_text(&path, file, LineRange::new(input.offset, input.limit)),
        }
    }

    fn read_image(&self, path: &WorkspacePath, mut file: OpenFile, mime_type: &str) -> Result<Reading> {
        file.check_size(path, MAX_FILE_BYTES, "the image cannot be shown")?;
        let data = STANDARD.encode(file.bytes(path)?);
        self.seen().record(
            path,
            Sighting {
                stamp: file.stamp,
                shown: None,
            },
        );
        let media = Media::new(format!("data:{mime_type};base64,{data}")).with_content_type(mime_type);
        Ok(Reading {
            answer: format!("Read the image '{path}'; it follows in the next message."),
            content: vec![
                Part::text(format!("<read_file path=\"{}\"/>", escaped(path.as_str()))),
                Part::from(media),
            ],
        })
    }

    fn read_text(&self, path: &WorkspacePath, mut file: OpenFile, range: LineRange) -> Result<Reading> {
        let sighting = Sighting {
            stamp: file.stamp,
            shown: Some(range),
        };
        // The content is already in the conversation, and repeating it costs tokens.
        if self.seen().get(path) == Some(sighting) {
            return Ok(Reading {
                answer: format!(
                    "'{path}' has not changed since it was read; what was read is still in this conversation."
                ),
                content: Vec::new(),
            });
        }
        // A few lines of a large file may be small, so the limit on shown bytes applies to them alone.
        let (limit, advice) = if range.is_everything() {
            (
                MAX_SHOWN_BYTES,
                "read some of its lines with `offset` and `limit`",
            )
        } else {
            (MAX_FILE_BYTES, "it cannot be read")
        };
        file.check_size(path, limit, advice)?;
        let text = file.text(path)?;
        let reading = describe(path, &text, range)?;
        self.seen().record(path, sighting);
        Ok(reading)
    }
}

fn describe(path: &WorkspacePath, text: &str, range: LineRange) -> Result<Reading> {
    let total = count_lines(text);
    let first = range.first();
    // The first line of an empty file can be read.
    if first > total.max(1) {
        return Err(Error::out_of_range(format!(
            "'{path}' has {total} lines; there is no line {first}"
        )));
    }
    let shown = range.of(text);
    if shown.len() as u64 > MAX_SHOWN_BYTES {
        let size = shown.len();
        return Err(Error::resource_exhausted(format!(
            "those lines of '{path}' have {size} bytes and the limit is {MAX_SHOWN_BYTES}; read fewer lines"
        )));
    }
    let attributes = format!("path=\"{}\"", escaped(path.as_str()));
    let (lines, attributes) = if range.is_everything() {
        (format!("all {total} lines"), attributes)
    } else {
        let last = first + count_lines(shown).saturating_sub(1);
        (
            format!("lines {first} to {last} of {total}"),
            format!("{attributes} lines=\"{first}-{last}\""),
        )
    };
    let line_end = if shown.is_empty() || shown.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let content = format!("<read_file {attributes} totalLines=\"{total}\">\n{shown}{line_end}</read_file>");
    Ok(Reading {
        answer: format!("Read {lines} of '{path}'; they follow in the next message."),
        content: vec![Part::text(content)],
    })
}

/// Escapes a path so that it cannot end the attribute that contains it.
fn escaped(path: &str) -> String {
    path.replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;")
        .replace('\n', "&#10;")
}

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
