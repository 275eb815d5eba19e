//! What is said in the session and what of it is in rows, kept as the driver keeps it.

use super::{Objection, ensure};
use crate::invocation::boundary::Boundary;

/// A conversation is the inputs whose turns began, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Conversation {
    live: Vec<u8>,
    /// What the newest row holds.
    row: Vec<u8>,
    boundary: Boundary<Vec<u8>>,
    /// Whether turns get rows of their own.
    pub(super) keeps_turns: bool,
    /// What the run's row is about to say, and what it says.
    recording: Option<Record>,
    recorded: Option<Record>,
}

/// What a pending row says: where to begin, and what is left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Record {
    begin: Vec<u8>,
    left: Vec<u8>,
}

impl Conversation {
    pub(super) fn new() -> Self {
        Self {
            live: Vec::new(),
            row: Vec::new(),
            boundary: Boundary::InRow,
            keeps_turns: true,
            recording: None,
            recorded: None,
        }
    }

    pub(super) fn begin_turn(&mut self, input: Option<u8>) -> Objection {
        let input = input.ok_or("a turn without an input")?;
        ensure!(
            self.live.last().is_none_or(|last| *last < input),
            "input {input} is said after {:?}",
            self.live
        );
        self.live.push(input);
        Ok(())
    }

    /// A turn ended without a row.
    pub(super) fn turn_left(&mut self) {
        self.boundary.turn_left(self.live.clone());
    }

    pub(super) fn turn_committed(&mut self) {
        if self.keeps_turns {
            self.row_written();
        } else {
            self.turn_left();
        }
    }

    pub(super) fn row_written(&mut self) {
        self.row.clone_from(&self.live);
        self.boundary.row_written();
    }

    pub(super) fn row_written_inside(&mut self) {
        let before = std::mem::replace(&mut self.row, self.live.clone());
        self.boundary.row_written_inside(|| before);
    }

    /// The run's row is being written.
    pub(super) fn record_boundary(&mut self, left: &[u8]) {
        self.recording = Some(Record {
            begin: self.boundary.beside().unwrap_or(&self.row).clone(),
            left: left.to_vec(),
        });
    }

    /// How far the run came is being recorded.
    pub(super) fn record_progress(&mut self, left: &[u8]) {
        self.recording = Some(Record {
            begin: self.live.clone(),
            left: left.to_vec(),
        });
    }

    pub(super) fn recorded(&mut self) {
        self.recorded = self.recording.take();
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// What another worker has to run, and in which conversation: the one in which this worker ran the first of it.
    pub(super) fn taken_over(&self) -> Result<(Vec<u8>, Self), String> {
        let Record { begin, left } = self.recorded.clone().ok_or("nothing is recorded")?;
        if let Some(first) = left.first() {
            let before: Vec<u8> = self.live.iter().copied().filter(|input| input < first).collect();
            ensure!(
                begin == before,
                "a takeover goes on with {left:?} after {begin:?} instead of {before:?}"
            );
        }
        let heir = Self {
            live: begin.clone(),
            row: begin.clone(),
            recorded: self.recorded.clone(),
            ..Self::new()
        };
        Ok((left, heir))
    }
}
