//! The conversation, and what of it is in snapshots.

use super::{Happening, Objection, ensure};
use crate::invocation::machine::TakeoverPoint;

/// A conversation is the inputs whose turns began, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Conversation {
    live: Vec<u8>,
    takeover: TakeoverPoint<Vec<u8>>,
    /// The content of the pending snapshot: to be written, and written.
    recording: Option<Record>,
    recorded: Option<Record>,
}

/// The content of a pending snapshot: where to begin, and the remaining inputs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Record {
    begin: Vec<u8>,
    left: Vec<u8>,
}

impl Conversation {
    pub(super) fn new() -> Self {
        Self {
            live: Vec::new(),
            takeover: TakeoverPoint::new(None, None),
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

    pub(super) fn note(&mut self, event: &Happening) {
        self.takeover.note(event, || self.live.clone());
    }

    /// The pending snapshot is being written.
    pub(super) fn record_takeover_point(&mut self, left: &[u8]) {
        let newest = || self.takeover.newest().cloned().unwrap_or_default();
        self.recording = Some(Record {
            begin: self.takeover.unsaved(Vec::new).unwrap_or_else(newest),
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

    /// The inputs that another worker has to run, and their conversation: the one in which this worker ran
    /// the first of them.
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
            takeover: TakeoverPoint::new(Some(begin), None),
            recorded: self.recorded.clone(),
            ..Self::new()
        };
        Ok((left, heir))
    }
}
