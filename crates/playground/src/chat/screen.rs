//! The output of the chat.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use everturn::Error;
use everturn::agent::AgentChunk;
use everturn::prelude::{Role, Value};

use super::command::HELP;
use crate::agents::Demo;

/// The pause before each word, for human readers.
const READING_PACE: Duration = Duration::from_millis(20);

/// Standard output. Once its reader has closed it, output is dropped and [`Screen::is_gone`] returns `true`.
pub(crate) struct Screen {
    is_gone: bool,
    is_inside_line: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self {
            is_gone: false,
            is_inside_line: false,
        }
    }

    /// Returns how long a model should pause before each word.
    pub(crate) fn pace() -> Duration {
        if io::stdout().is_terminal() {
            READING_PACE
        } else {
            Duration::ZERO
        }
    }

    /// Returns whether the reader of standard output has closed it.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    fn write(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.is_gone |= written.is_err();
        if let Some(last) = text.chars().last() {
            self.is_inside_line = last != '\n';
        }
    }

    /// Prints text in the middle of a line.
    fn text(&mut self, text: &str) {
        self.write(text);
    }

    /// Prints a whole line.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        let start = if self.is_inside_line { "\n" } else { "" };
        self.write(&format!("{start}{}\n", line.as_ref()));
    }

    /// Ends an unfinished line.
    pub(crate) fn end_line(&mut self) {
        if self.is_inside_line {
            self.write("\n");
        }
    }

    /// Prints a prompt.
    pub(crate) fn prompt(&mut self, prompt: &str) {
        self.end_line();
        self.write(&format!("{prompt} "));
    }

    /// Records the line typed after a prompt.
    pub(crate) fn typed(&mut self, line: &str, is_echoed: bool) {
        if is_echoed {
            self.text(line);
            self.write("\n");
        }
        // A terminal has echoed the line and its end.
        self.is_inside_line = false;
    }

    /// Prints an error.
    pub(crate) fn error(&mut self, error: &Error) {
        self.line(format!("! {}", error.message()));
    }

    pub(crate) fn greet(&mut self, demos: &[Demo], model: &str, database: &Path) {
        self.line(format!(
            "The Everturn playground. {model} Conversations are kept in {}.\n",
            database.display()
        ));
        self.agents(demos);
        self.line("\nSay something, or type /help for the commands.\n");
    }

    pub(crate) fn agents<'a>(&mut self, demos: impl IntoIterator<Item = &'a Demo>) {
        for Demo {
            name, about, hint, ..
        } in demos
        {
            self.line(format!("  {name:<8} {about}; try: {hint}"));
        }
    }

    pub(crate) fn help(&mut self) {
        for (usage, meaning) in HELP {
            self.line(format!("  {usage:<13} {meaning}"));
        }
    }

    /// Prints a chunk of a turn.
    pub(crate) fn chunk(&mut self, chunk: &AgentChunk) {
        let spoken = chunk
            .raw()
            .model_chunk
            .as_ref()
            .filter(|chunk| chunk.role != Some(Role::Tool));
        for request in spoken
            .into_iter()
            .flat_map(|chunk| &chunk.content)
            .filter_map(|part| part.as_tool_request())
            .filter(|request| !request.partial)
        {
            let input = request.input.clone().unwrap_or_default();
            self.line(format!("[calls {} {input}]", request.name));
        }
        if let Some(status) = &chunk.raw().status {
            self.line(format!(
                "[{}]",
                status.as_str().map_or_else(|| status.to_string(), str::to_owned)
            ));
        }
        if let Some(artifact) = chunk.artifact() {
            self.line(format!("[made {}]", artifact.given_name().unwrap_or("something")));
        }
        self.text(&chunk.text());
    }

    pub(crate) fn json(&mut self, value: &Value) {
        self.line(format!("{value:#}"));
    }
}
