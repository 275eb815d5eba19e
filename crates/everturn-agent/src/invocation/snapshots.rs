//! The snapshots of an invocation: the snapshot policy is asked, and what it wants is written.

use std::collections::VecDeque;

use everturn_ai::{History, Messages};
use everturn_core::{Error, Result};
use futures::FutureExt;

use super::machine::{Commit, Event, TakeoverPoint};
use super::outbox::Answer;
use super::{AgentEvent, Driver, Written};
use crate::content_id::SNAPSHOT_ID_ENTRY;
use crate::cursor::Saved;
use crate::{
    AgentStreamChunk, CustomState, SessionState, Snapshot, SnapshotCreated, SnapshotEvent, SnapshotId,
    SnapshotIds, SnapshotMoment,
};

/// The snapshots of the invocation, as far as the driver must remember them.
pub(super) struct Snapshots {
    /// The state in the newest snapshot, and the one from which a worker would take the run over.
    pub(super) takeover: TakeoverPoint<SessionState>,
    /// The state in the snapshot that was just written, until its event is noted.
    pub(super) written: Option<SessionState>,
    /// How many turns came since the newest snapshot and have none of their own.
    unsaved_turns: u64,
    /// Every snapshot written, in order.
    created: Vec<SnapshotId>,
    /// Rounds whose generations wait for a snapshot, in order.
    rounds: VecDeque<Round>,
}

/// A round whose tools have answered.
struct Round {
    /// The conversation so far; `None` once it is being written.
    conversation: Option<Messages>,
    settled: Answer<()>,
}

/// The outcome of writing a snapshot.
pub(super) struct RowWritten {
    event: SnapshotEvent,
    /// The snapshot's messages, without the snapshot's id in the last one.
    messages: History,
    saved: Result<Box<Saved>>,
}

impl Snapshots {
    /// Begins after the snapshot with the `newest` state, if there is one; `unsaved` is the state to begin with where it
    /// differs from that.
    pub(super) fn after(newest: Option<SessionState>, unsaved: Option<SessionState>) -> Self {
        Self {
            takeover: TakeoverPoint::new(newest, unsaved),
            written: None,
            unsaved_turns: 0,
            created: Vec::new(),
            rounds: VecDeque::new(),
        }
    }

    pub(super) fn wait(&mut self, conversation: Messages, settled: Answer<()>) {
        self.rounds.push_back(Round {
            conversation: Some(conversation),
            settled,
        });
    }

    pub(super) fn settle_round(&mut self, outcome: Result<(), Error>) {
        if let Some(round) = self.rounds.pop_front() {
            // The generation may have been dropped while it waited.
            let _ = round.settled.send(outcome);
        }
    }

    pub(super) fn note_created(&mut self, id: &SnapshotId) {
        self.created.push(id.clone());
    }
}

impl<S: CustomState> Driver<S> {
    pub(super) fn commit_turn(&mut self) {
        let state = self.session.state();
        if self.ledger.is_none() {
            self.last_good = Some(state.clone());
        }
        match self.save(SnapshotEvent::TurnEnd, state) {
            Ok(true) => {}
            Ok(false) => {
                self.snapshots.unsaved_turns += 1;
                if let Some(ledger) = &mut self.ledger {
                    ledger.turn_ended(true);
                }
                self.forget_journals();
            }
            Err(error) => self.raised.push_back(Event::CommitFailed(error)),
        }
    }

    /// Drops the journals of a turn that gets no snapshot.
    fn forget_journals(&mut self) {
        let journals = self.journals.take();
        match &self.ledger {
            Some(ledger) if !journals.is_empty() => {
                let forgotten = ledger.forget(journals).map(|()| Written::NoRow);
                self.writes.push(forgotten.boxed());
            }
            _ => self.raised.push_back(Event::TurnCommitted(Commit::Nothing)),
        }
    }

    pub(super) fn commit_round(&mut self) {
        let waiting = self.snapshots.rounds.front_mut();
        let saved = match waiting.and_then(|round| round.conversation.take()) {
            Some(conversation) => {
                let state = self.session.state_with(conversation);
                self.save(SnapshotEvent::ToolIterationEnd, state)
            }
            None => Ok(false),
        };
        self.answer_unless_written(saved, Event::RoundCommitted(Commit::Nothing));
    }

    pub(super) fn commit_end(&mut self) {
        let saved = self.save(SnapshotEvent::InvocationEnd, self.session.state());
        self.answer_unless_written(saved, Event::EndCommitted(Commit::Nothing));
    }

    fn answer_unless_written(&mut self, saved: Result<bool>, committed: AgentEvent) {
        match saved {
            Ok(true) => {}
            Ok(false) => self.raised.push_back(committed),
            Err(error) => self.raised.push_back(Event::CommitFailed(error)),
        }
    }

    /// Begins to write a snapshot if there is a store and the policy wants one; returns whether it did.
    fn save(&mut self, event: SnapshotEvent, state: SessionState) -> Result<bool> {
        let Some(ledger) = &self.ledger else {
            return Ok(false);
        };
        let next_turn = ledger.next_turn() + self.snapshots.unsaved_turns;
        let turn_index = match event {
            SnapshotEvent::InvocationEnd => next_turn.checked_sub(1),
            _ => Some(next_turn),
        };
        let own = self.turns.reserved().filter(|_| event == SnapshotEvent::TurnEnd);
        let row = ledger.row(own.cloned().unwrap_or_else(SnapshotId::fresh));
        let moment = SnapshotMoment {
            event,
            state: &state,
            previous: self.snapshots.takeover.newest(),
            index: row.index.unwrap_or_default(),
            turn_index: turn_index.unwrap_or_default(),
        };
        if !self.definition.snapshots.wants(&moment)? {
            return Ok(false);
        }
        let snapshot_id = match self.definition.snapshot_ids {
            SnapshotIds::Uuid => row.snapshot_id.clone(),
            SnapshotIds::ContentAddressed => SnapshotId::of_state(&state)?,
        };
        let messages = state.messages.clone();
        let named = if self.definition.names_messages {
            naming(&messages, &snapshot_id)
        } else {
            messages.clone()
        };
        let mut row = Snapshot {
            snapshot_id,
            turn_index,
            event: Some(event),
            finish_reason: match event {
                SnapshotEvent::TurnEnd => self.turns.reason(),
                SnapshotEvent::InvocationEnd => self.finish_reason(),
                SnapshotEvent::ToolIterationEnd => None,
            },
            state: Some(SessionState {
                messages: named,
                ..state
            }),
            ..row
        };
        if let Some(turn) = self
            .journals
            .under_way()
            .filter(|_| event == SnapshotEvent::ToolIterationEnd)
        {
            row.set_open_turn(turn);
        }
        let journals = match event {
            SnapshotEvent::TurnEnd => self.journals.written(),
            // The turn is still under way, or its own snapshot has dropped them.
            _ => Vec::new(),
        };
        let written = ledger.create(row, journals).map(move |saved| {
            Written::Row(RowWritten {
                event,
                messages,
                saved: saved.map(Box::new),
            })
        });
        self.writes.push(written.boxed());
        Ok(true)
    }

    /// Takes note of a snapshot that was written, or could not be.
    pub(super) fn row_written(&mut self, written: RowWritten) -> AgentEvent {
        let RowWritten {
            event,
            messages,
            saved,
        } = written;
        let saved = match saved {
            Ok(saved) => saved,
            Err(error) => {
                return Event::CommitFailed(error.context(match event {
                    SnapshotEvent::TurnEnd => "the turn could not be saved",
                    SnapshotEvent::ToolIterationEnd => "the tools' answers could not be saved",
                    SnapshotEvent::InvocationEnd => "the end of the invocation could not be saved",
                }));
            }
        };
        if let Some(ledger) = &mut self.ledger {
            ledger.wrote(&saved);
            self.journals.tip_moved(ledger.tip_id());
        }
        let Saved { row, is_new, .. } = *saved;
        if let Some(named) = row.state.as_ref().map(|state| &state.messages) {
            match event {
                SnapshotEvent::ToolIterationEnd => self.session.saved_ahead(&messages, named),
                _ if self.definition.names_messages => self.session.adopt_named(&messages, named),
                _ => {}
            }
        }
        self.snapshots.written = row.state;
        self.snapshots.unsaved_turns = 0;
        if is_new {
            self.report(&row.snapshot_id, event);
        }
        match event {
            SnapshotEvent::TurnEnd => {
                self.journals.begin();
                self.turns.committed(row.snapshot_id);
                Event::TurnCommitted(Commit::Snapshot)
            }
            SnapshotEvent::ToolIterationEnd => Event::RoundCommitted(Commit::Snapshot),
            SnapshotEvent::InvocationEnd => Event::EndCommitted(Commit::Snapshot),
        }
    }

    fn report(&mut self, id: &SnapshotId, event: SnapshotEvent) {
        self.snapshots.note_created(id);
        if self.reports_snapshots() {
            self.announce(AgentStreamChunk::snapshot_created(SnapshotCreated {
                snapshot_id: id.clone(),
                event,
            }));
        }
    }

    /// Returns whether the client is told of each snapshot; under the default policy the `turnEnd` chunks tell of all.
    fn reports_snapshots(&self) -> bool {
        self.ledger.is_some() && !self.definition.snapshots.is_default()
    }

    /// Returns the ids of this invocation's snapshots, if the client is told of them.
    pub(super) fn reported_rows(&self) -> Option<Vec<SnapshotId>> {
        self.reports_snapshots().then(|| self.snapshots.created.clone())
    }
}

/// Returns the messages with the snapshot's id in the metadata of the last one.
fn naming(messages: &History, id: &SnapshotId) -> History {
    let Some(last) = messages.last() else {
        return messages.clone();
    };
    let mut named = messages.truncate_to(messages.len() - 1);
    named.push(last.clone().with_metadata_entry(SNAPSHOT_ID_ENTRY, id.as_str()));
    named
}
