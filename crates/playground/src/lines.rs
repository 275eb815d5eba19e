//! Where typed lines come from.

use std::collections::VecDeque;
use std::io::{self, BufRead, IsTerminal};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::screen::Screen;
use crate::tour;

/// How long a pipe may be silent before it is taken for one that nobody writes to, such as that of a build server.
const FIRST_LINE: Duration = Duration::from_secs(3);

/// Lines from a terminal or a pipe, or those of the tour.
pub(crate) struct Lines {
    ahead: VecDeque<String>,
    typed: Option<mpsc::Receiver<String>>,
    is_echoed: bool,
}

impl Lines {
    /// Finds out who types.
    pub(crate) async fn open(screen: &mut Screen) -> Self {
        let mut typed = from_stdin();
        if io::stdin().is_terminal() {
            return Self {
                ahead: VecDeque::new(),
                typed: Some(typed),
                is_echoed: false,
            };
        }
        if let Ok(Some(first)) = tokio::time::timeout(FIRST_LINE, typed.recv()).await {
            return Self {
                ahead: VecDeque::from([first]),
                typed: Some(typed),
                is_echoed: true,
            };
        }
        screen.line("Nobody is typing, so this is a short tour.\n");
        let ahead = tour::LINES.iter().map(|&line| line.to_owned()).collect();
        Self {
            ahead,
            typed: None,
            is_echoed: true,
        }
    }

    /// The next line; `None` after the last. Giving up on this loses no line.
    pub(crate) async fn next(&mut self) -> Option<String> {
        match self.ahead.pop_front() {
            Some(line) => Some(line),
            None => self.typed.as_mut()?.recv().await,
        }
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
