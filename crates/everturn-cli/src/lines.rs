//! Lines of standard input.

use std::io::{self, BufRead, IsTerminal, Write};

use tokio::sync::mpsc;

use crate::output::Output;

/// Lines of standard input.
pub(crate) struct Lines {
    typed: mpsc::Receiver<String>,
    is_terminal: bool,
}

impl Lines {
    /// Opens standard input. A separate thread reads it: a blocking read cannot be cancelled, and the program
    /// must be able to end.
    pub(crate) fn open() -> Self {
        let (sender, typed) = mpsc::channel(16);
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(io::Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            typed,
            is_terminal: io::stdin().is_terminal(),
        }
    }

    /// Prints a prompt and returns the next line; `None` after the last line and after Ctrl-C.
    pub(crate) async fn ask(&mut self, output: Output, prompt: &str) -> Option<String> {
        if self.is_terminal && !output.is_json() {
            let mut err = anstream::stderr();
            let _ = write!(err, "{prompt} ").and_then(|()| err.flush());
        }
        tokio::select! {
            line = self.typed.recv() => line,
            _ = tokio::signal::ctrl_c() => None,
        }
    }
}

/// Asks a yes-or-no question on the terminal; `None` without a terminal.
pub(crate) fn confirm(question: &str) -> Option<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return None;
    }
    let mut err = anstream::stderr();
    write!(err, "{question} [y/N] ").and_then(|()| err.flush()).ok()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).ok()?;
    Some(is_yes(&line))
}

pub(crate) fn is_yes(text: &str) -> bool {
    matches!(text.trim().to_lowercase().as_str(), "y" | "yes")
}

pub(crate) fn is_no(text: &str) -> bool {
    matches!(text.trim().to_lowercase().as_str(), "n" | "no")
}
