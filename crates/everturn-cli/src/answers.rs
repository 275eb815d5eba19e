//! Lines of standard input, and answers to interrupts: tool calls that wait for a person.

use std::io::{self, BufRead, IsTerminal, Write};

use everturn_agent::Interrupt;
use everturn_ai::Part;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::failure::{Failure, Outcome};
use crate::output::{BOLD, DIM, Output, clean, excerpt};
use crate::transcript::approval;

/// Formats the question as a line.
pub(crate) fn question(interrupt: &Interrupt) -> String {
    let data: Value = interrupt.data().unwrap_or_default();
    let question = [&data, &data["question"], &data["message"]]
        .into_iter()
        .find_map(Value::as_str);
    let input: Value = interrupt.input().unwrap_or_default();
    let mut call = format!("{} {}", clean(interrupt.name()), excerpt(&input.to_string(), 200));
    for line in interrupt.approval().iter().flat_map(approval) {
        call = format!("{call}; {line}");
    }
    match question {
        Some(question) => format!("{BOLD}{}{BOLD:#} {DIM}[{call}]{DIM:#}", clean(question)),
        None if interrupt.is_outcome_unknown() => {
            format!(
                "{BOLD}It is unknown whether this took effect. Call it again?{BOLD:#} {DIM}[{call}]{DIM:#}"
            )
        }
        None => format!("{BOLD}May this be called?{BOLD:#} {DIM}[{call}]{DIM:#}"),
    }
}

/// Parses an answer: `y` runs the tool again with an approval, `n` rejects the call, and any JSON replaces
/// the tool's output.
pub(crate) fn answer(interrupt: &Interrupt, typed: &str) -> Outcome<Part> {
    let decided = |is_approved: bool| {
        // The field names that tools and the approval middleware read.
        interrupt.restart(json!({ "approved": is_approved, "toolApproved": is_approved }))
    };
    if is_yes(typed) {
        return Ok(decided(true)?);
    }
    if is_no(typed) {
        return Ok(decided(false)?);
    }
    let output: Value = serde_json::from_str(typed.trim()).map_err(|_| {
        Failure::wrong(format!("'{}' is neither y, n nor JSON", excerpt(typed, 80)))
            .or_next("answer y, n, or with the tool's output as JSON")
    })?;
    Ok(interrupt.respond(output)?)
}

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
