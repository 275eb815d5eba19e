//! The output: text with colours on a terminal, or JSON; and the progress of long operations.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use everturn_core::Error;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};

/// The style of secondary text.
pub(crate) const DIM: Style = AnsiColor::BrightBlack.on_default();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();

/// Standard output and standard error. Colours are removed if the stream is not a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    is_json: bool,
    colours: ColorChoice,
}

impl Output {
    pub(crate) fn new(is_json: bool) -> Self {
        Self {
            is_json,
            colours: AutoStream::choice(&io::stdout()),
        }
    }

    /// Returns whether the output is JSON.
    pub(crate) fn is_json(self) -> bool {
        self.is_json
    }

    /// Prints a text without a line end, and flushes it.
    pub(crate) fn text(self, text: &str) -> Outcome<()> {
        let mut out = AutoStream::new(io::stdout().lock(), self.colours);
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Prints a line.
    pub(crate) fn line(self, line: impl AsRef<str>) -> Outcome<()> {
        self.text(&format!("{}\n", line.as_ref()))
    }

    /// Prints a value as a line of JSON, if the output is JSON.
    pub(crate) fn json(self, value: &impl Serialize) -> Outcome<()> {
        if !self.is_json {
            return Ok(());
        }
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        // Bypasses the colour filter: control characters inside JSON are already escaped.
        let mut out = io::stdout().lock();
        out.write_all(&line)?;
        Ok(out.flush()?)
    }

    /// Prints a value as JSON or as text.
    pub(crate) fn show(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Outcome<()> {
        if self.is_json {
            return self.json(value);
        }
        self.text(&text())
    }

    /// Prints a remark to standard error.
    pub(crate) fn remark(self, remark: impl AsRef<str>) {
        if !self.is_json {
            // An error on standard error is ignored.
            let _ = writeln!(anstream::stderr(), "{DIM}{}{DIM:#}", remark.as_ref());
        }
    }

    /// Prints the error of a command, and returns its exit code.
    pub(crate) fn failure(self, failure: &Failure) -> Exit {
        let Failure::Error { error, next, exit } = failure else {
            return Exit::Done;
        };
        let mut out = anstream::stderr();
        let _ = if self.is_json {
            writeln!(out, "{}", failed(error, next.as_deref()))
        } else {
            let mut text = format!("{RED}everturn:{RED:#} {}", clean(error.message()));
            if let Some(next) = next {
                let _ = write!(text, "\n{DIM}next:{DIM:#} {}", clean(next));
            }
            writeln!(out, "{text}")
        };
        *exit
    }
}

fn failed(error: &Error, next: Option<&str>) -> Value {
    let mut failed = json!({ "status": error.status().name(), "message": error.message() });
    if let Some(next) = next {
        failed["next"] = next.into();
    }
    if let Some(details) = error.details() {
        failed["details"] = details.clone();
    }
    json!({ "error": failed })
}

/// Escapes control characters other than line ends and tabs, and marks that change the direction of writing.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for character in text.chars() {
        let is_mark =
            matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if matches!(character, '\n' | '\t') || !(character.is_control() || is_mark) {
            cleaned.push(character);
        } else {
            cleaned.extend(character.escape_unicode());
        }
    }
    cleaned
}

/// Returns the beginning of a text on one line.
pub(crate) fn excerpt(text: &str, limit: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut characters = line.chars();
    let mut shown: String = characters.by_ref().take(limit).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    clean(&shown)
}

/// Formats rows as columns under a heading.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| excerpt(cell, 80)))
        .collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([heading[column].chars().count()])
            .max()
            .unwrap_or_default()
    });
    let line = |cells: [&str; N]| {
        let mut line = String::new();
        for (cell, width) in cells.into_iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        line.trim_end().to_owned()
    };
    let mut table = format!("{BOLD}{}{BOLD:#}\n", line(heading));
    for row in &rows {
        table.push_str(&line(row.each_ref().map(String::as_str)));
        table.push('\n');
    }
    table
}

const TICK: Duration = Duration::from_millis(100);

const BAR: &str = "{msg} {wide_bar} {pos}/{len} {eta}";
const BYTES_BAR: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {eta}";
const SPINNER: &str = "{spinner} {msg} {elapsed}";
const BYTES_SPINNER: &str = "{spinner} {msg} {bytes} {elapsed}";

/// Returns a bar for an operation of known size.
pub(crate) fn bar(output: Output, what: &'static str, amount: u64) -> ProgressBar {
    styled(output, ProgressBar::new(amount), what, BAR)
}

/// Returns a bar for a file of a known size.
pub(crate) fn bytes_bar(output: Output, what: &'static str, amount: u64) -> ProgressBar {
    styled(output, ProgressBar::new(amount), what, BYTES_BAR)
}

/// Returns a spinner for an operation of unknown size.
pub(crate) fn spinner(output: Output, what: &'static str) -> ProgressBar {
    styled(output, ProgressBar::new_spinner(), what, SPINNER)
}

/// Returns a spinner with the bytes so far.
pub(crate) fn bytes_spinner(output: Output, what: &'static str) -> ProgressBar {
    styled(output, ProgressBar::new_spinner(), what, BYTES_SPINNER)
}

/// `indicatif` draws bars on standard error, and only if that is a terminal.
fn styled(output: Output, bar: ProgressBar, what: &'static str, template: &str) -> ProgressBar {
    if output.is_json() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("a constant template");
    let bar = bar.with_style(style).with_message(what);
    bar.enable_steady_tick(TICK);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_cannot_move_the_cursor() {
        assert_eq!(clean("a\u{1b}[2J\nb\u{202e}"), "a\\u{1b}[2J\nb\\u{202e}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["dinner".to_owned(), "1".to_owned()],
            ["é".to_owned(), "2".to_owned()],
        ];

        let table = anstream::adapter::strip_str(&table(["ID", "N"], &rows)).to_string();

        assert_eq!(table, "ID      N\ndinner  1\né       2\n");
    }

    #[test]
    fn an_excerpt_is_one_line() {
        assert_eq!(excerpt("leek\n soup", 20), "leek soup");
        assert_eq!(excerpt("leek soup", 4), "leek…");
    }
}
