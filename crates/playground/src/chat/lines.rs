//! Lines of standard input.

use std::io::{self, BufRead, IsTerminal};

use tokio::sync::mpsc;

/// Lines from a terminal or a pipe.
pub(crate) struct Lines {
    typed: mpsc::Receiver<String>,
    is_echoed: bool,
}

impl Lines {
    /// Opens standard input.
    pub(crate) fn open() -> Self {
        Self {
            typed: from_stdin(),
            is_echoed: !io::stdin().is_terminal(),
        }
    }

    /// Returns the next line; `None` after the last. Dropping this future loses no line.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.typed.recv().await
    }

    /// Returns whether lines must be printed to be visible, because no terminal has echoed them.
    pub(crate) fn is_echoed(&self) -> bool {
        self.is_echoed
    }
}

/// A separate thread reads: a blocking read cannot be cancelled, and the program must be able to end.
fn from_stdin() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(io::Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
