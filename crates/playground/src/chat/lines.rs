//! Where typed lines come from.

use std::io::{self, BufRead, IsTerminal};

use tokio::sync::mpsc;

/// Lines from a terminal or a pipe.
pub(crate) struct Lines {
    typed: mpsc::Receiver<String>,
    is_echoed: bool,
}

impl Lines {
    /// The lines of standard input.
    pub(crate) fn open() -> Self {
        Self {
            typed: from_stdin(),
            is_echoed: !io::stdin().is_terminal(),
        }
    }

    /// The next line; `None` after the last. Giving up on this loses no line.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.typed.recv().await
    }

    /// Whether a line has to be printed to be seen, because no terminal did.
    pub(crate) fn is_echoed(&self) -> bool {
        self.is_echoed
    }
}

/// A thread of its own: a read that waits for a key cannot be cancelled, and the program must be able to end.
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
