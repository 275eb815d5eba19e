//! Parsing of a `.prompt` source into its frontmatter and its template.

use std::ops::Range;
use std::sync::Arc;

use crate::position::Position;
use crate::whitespace::{is_space, line_break, trim};
use crate::{Error, ErrorKind, Location, Metadata, frontmatter};

/// A source that is parsed but not compiled: the metadata as written and the template's text.
///
/// Schemas and tool names are still as the author wrote them;
/// [`Dotprompt::render_metadata`](crate::Dotprompt::render_metadata) resolves them.
#[derive(Debug, Clone)]
pub struct ParsedPrompt {
    pub(crate) metadata: Metadata,
    pub(crate) template: String,
    pub(crate) template_start: Position,
    pub(crate) file: Option<Arc<str>>,
    yaml: Option<(String, Position)>,
    frontmatter_error: Option<Error>,
}

impl ParsedPrompt {
    /// Returns the frontmatter.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the template: the body trimmed at both ends, or the whole source if there is no frontmatter.
    pub fn template(&self) -> &str {
        &self.template
    }

    /// Returns the error of a frontmatter that could not be read.
    ///
    /// The format then takes the whole source as the template and continues without metadata. A caller that
    /// prefers to fail checks this error.
    pub fn frontmatter_error(&self) -> Option<&Error> {
        self.frontmatter_error.as_ref()
    }

    pub(crate) fn read(source: &str, file: Option<Arc<str>>) -> Self {
        // Editors on Windows write a byte order mark, which is not part of the prompt.
        let source = source.strip_prefix('\u{feff}').unwrap_or(source);
        let Some(sections) = split(source) else {
            return Self::plain(source, Position::START, file);
        };
        let yaml = &source[sections.yaml.clone()];
        let yaml_start = Position::START.advance(source, sections.yaml.start);
        match frontmatter::read(yaml) {
            Ok(metadata) => {
                let body = &source[sections.body.clone()];
                let template = trim(body);
                let start = sections.body.start + body.trim_start_matches(is_space).as_ptr() as usize
                    - body.as_ptr() as usize;
                Self {
                    metadata,
                    template: template.to_owned(),
                    template_start: Position::START.advance(source, start),
                    file,
                    yaml: Some((yaml.to_owned(), yaml_start)),
                    frontmatter_error: None,
                }
            }
            Err((message, position)) => {
                let template = trim(source);
                let start = template.as_ptr() as usize - source.as_ptr() as usize;
                let at = yaml_start.embed(position).in_file(file.as_ref());
                let mut parsed = Self::plain(template, Position::START.advance(source, start), file);
                parsed.frontmatter_error = Some(Error::at(ErrorKind::Frontmatter(message), at));
                parsed
            }
        }
    }

    fn plain(template: &str, template_start: Position, file: Option<Arc<str>>) -> Self {
        Self {
            metadata: Metadata::base(),
            template: template.to_owned(),
            template_start,
            file,
            yaml: None,
            frontmatter_error: None,
        }
    }

    /// Returns the place of a path of keys in the frontmatter, or of the nearest key above it. An item of a
    /// list counts as a key. Returns `None` if there is no frontmatter.
    pub fn locate(&self, path: &[impl AsRef<str>]) -> Option<Location> {
        let (yaml, start) = self.yaml.as_ref()?;
        let offset = frontmatter::locate(yaml, path);
        Some(start.advance(yaml, offset).in_file(self.file.as_ref()))
    }
}

#[derive(Debug, PartialEq)]
struct Sections {
    yaml: Range<usize>,
    body: Range<usize>,
}

/// Finds the two markers. Frontmatter starts after a line `---`, which only blank lines and lines starting
/// with `#` may precede, and ends at a later line `---` that ends in a line break.
fn split(source: &str) -> Option<Sections> {
    let open = skip_preamble(source);
    let after_open = source[open..].strip_prefix("---")?;
    let yaml_start = after_last_break(source, source.len() - after_open.len())?;

    let mut at = yaml_start;
    loop {
        at += source[at..].find(['\r', '\n'])?;
        let next = at + line_break(&source[at..])?;
        if let Some(rest) = source[next..].strip_prefix("---")
            && let Some(body) = after_last_break(source, source.len() - rest.len())
        {
            return (at > yaml_start).then_some(Sections {
                yaml: yaml_start..at,
                body: body..source.len(),
            });
        }
        at = next;
    }
}

fn skip_preamble(source: &str) -> usize {
    let mut at = 0;
    while let Some(length) = source[at..].find(['\r', '\n']) {
        let line = &source[at..at + length];
        if !line.starts_with('#') && !line.chars().all(is_space) {
            break;
        }
        at += length + line_break(&source[at + length..]).unwrap_or(1);
    }
    at
}

/// Returns the offset after the last line break in the white space at `at`, if there is a line break.
fn after_last_break(source: &str, at: usize) -> Option<usize> {
    let rest = &source[at..];
    let space = &rest[..rest.len() - rest.trim_start_matches(is_space).len()];
    space.rfind(['\r', '\n']).map(|last| at + last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections(source: &str) -> Option<(&str, &str)> {
        split(source).map(|found| (&source[found.yaml], &source[found.body]))
    }

    #[test]
    fn the_markers_may_use_any_line_break() {
        assert_eq!(sections("---\na: 1\n---\nbody\n"), Some(("a: 1", "body\n")));
        assert_eq!(sections("---\r\na: 1\r\n---\r\nbody"), Some(("a: 1", "body")));
        assert_eq!(sections("---\ra: 1\r---\rbody"), Some(("a: 1", "body")));
    }

    #[test]
    fn comments_and_blank_lines_may_precede_the_first_marker() {
        assert_eq!(
            sections("# licence\n\n#\n---\na: 1\n---\nbody"),
            Some(("a: 1", "body"))
        );
        assert_eq!(sections("text\n---\na: 1\n---\nbody"), None);
    }

    #[test]
    fn white_space_behind_a_marker_belongs_to_it() {
        assert_eq!(
            sections("---  \n\n  a: 1\n--- \t\n\n body"),
            Some(("  a: 1", " body"))
        );
    }

    #[test]
    fn a_marker_with_text_behind_it_is_no_marker() {
        assert_eq!(
            sections("---\na: 1\n--- x\n----\n---\nb"),
            Some(("a: 1\n--- x\n----", "b"))
        );
    }

    #[test]
    fn a_source_without_both_markers_has_no_frontmatter() {
        for source in [
            "",
            "---",
            "---\n",
            "---\n---\nbody\n",
            "---\na: 1\n---",
            "a: 1\n---\nbody",
        ] {
            assert_eq!(sections(source), None, "{source:?}");
        }
    }
}
