//! The snapshots of an invocation: asking the snapshot policy and writing.

use std::collections::VecDeque;
use std::sync::Arc;

use everturn_ai::{History, Messages, UsageTotal, reason};
use everturn_core::{Error, Result, SpanKind, SpanRecorder, in_span};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::{AgentEvent, Driver, Written};
use crate::invocation::client::lost_the_session;
use crate::invocation::cursor::Saved;
use crate::invocation::function::{Answer, Committed};
use crate::invocation::generate::conversation_so_far;
use crate::invocation::machine::{Commit, Event, TakeoverPoint};
use crate::invocation::repeated::unknown_to_client;
use crate::journal::TurnJournal;
use crate::storage::content_id::SNAPSHOT_ID_ENTRY;
use crate::storage::snapshot::OpenTurn;
use crate::store::{JournalKey, Precondition, SAVE_UNKNOWN, TurnAccount};
use crate::{
    AgentFinishReason, AgentInput, AgentStreamChunk, FailedTurns, ServerNote, SessionState, Snapshot,
    SnapshotCreated, SnapshotEvent, SnapshotId, SnapshotIds, SnapshotMoment, SnapshotStatus,
};

/// The snapshots of the invocation, as far as the driver must remember them.
pub(super) struct Snapshots {
    /// The state in the newest snapshot, and the one from which a worker would take the run over.
    pub(super) takeover: TakeoverPoint<SessionState>,
    /// The state in the snapshot that was just written, until its event is noted.
    pub(super) written: Option<SessionState>,
    /// The state in the last snapshot, if there is one: not that of a head.
    listed: Option<SessionState>,
    /// Whether this invocation has written anything.
    has_written: bool,
    /// Every snapshot written, in order; heads are not among them.
    created: Arc<Mutex<Vec<SnapshotId>>>,
    /// The number of messages with which the latest turn began.
    begun_with: Option<usize>,
    /// The state that the session returns to if the turn in progress fails and has committed nothing.
    before_turn: Option<SessionState>,
    /// Whether the latest turn failed after it had committed something.
    is_committed: bool,
    /// Rounds whose generations wait for a snapshot, in order.
    rounds: VecDeque<Round>,
    /// The mark of the call that the first turn answers, until that turn begins.
    next_call: Option<String>,
    /// The mark of the call that the turn answers.
    call: Option<String>,
}

/// A round whose tools have answered.
struct Round {
    /// The conversation so far; `None` once it is being written.
    conversation: Option<Messages>,
    /// The snapshot that was written of it.
    snapshot: Option<SnapshotId>,
    settled: Answer<Option<SnapshotId>>,
}

/// The outcome of writing a snapshot.
pub(super) struct SnapshotWritten {
    event: SnapshotEvent,
    /// Whether it is the snapshot of a turn that failed.
    is_failure: bool,
    id: SnapshotId,
    /// The snapshot's messages, without the snapshot's id in the last one.
    messages: History,
    saved: Result<Box<Saved>>,
}

impl Snapshots {
    /// Begins after the stored `newest` state, if there is one; `unsaved` is the state to begin with where it
    /// differs from that, and `listed` the state in the last snapshot. The snapshot of the first turn records
    /// the mark of its `call`.
    pub(super) fn after(
        newest: Option<SessionState>,
        unsaved: Option<SessionState>,
        listed: Option<SessionState>,
        call: Option<String>,
    ) -> Self {
        Self {
            takeover: TakeoverPoint::new(newest, unsaved),
            written: None,
            listed,
            has_written: false,
            created: Arc::default(),
            begun_with: None,
            before_turn: None,
            is_committed: false,
            rounds: VecDeque::new(),
            next_call: call,
            call: None,
        }
    }

    /// Returns whether the call of the turn that is about to begin is answered in a snapshot.
    pub(super) fn is_answered_in(&self, snapshot: &Snapshot) -> bool {
        let call = self.next_call.as_deref();
        call.is_some_and(|call| snapshot.answers_call(call))
    }

    /// Notes the state at which a turn begins.
    pub(super) fn turn_begins(&mut self, state: SessionState) {
        self.begun_with = Some(state.messages.len());
        self.before_turn = Some(state);
        self.is_committed = false;
        self.call = self.next_call.take();
    }

    /// Returns the number of messages with which the last turn began.
    pub(super) fn begun_with(&self) -> Option<usize> {
        self.begun_with
    }

    pub(super) fn wait(&mut self, conversation: Messages, settled: Answer<Option<SnapshotId>>) {
        self.rounds.push_back(Round {
            conversation: Some(conversation),
            snapshot: None,
            settled,
        });
    }

    pub(super) fn settle_round(&mut self, outcome: Result<(), Error>) {
        if let Some(round) = self.rounds.pop_front() {
            // The generation may have been dropped while it waited.
            let snapshot = round.snapshot;
            let _ = round.settled.send(outcome.map(|()| snapshot));
        }
    }

    /// Returns the ids of the snapshots, for code that runs concurrently with the driver.
    pub(super) fn created(&self) -> Arc<Mutex<Vec<SnapshotId>>> {
        Arc::clone(&self.created)
    }

    /// Returns whether this invocation has written nothing.
    pub(super) fn is_none_written(&self) -> bool {
        !self.has_written
    }

    pub(super) fn note_created(&mut self, id: &SnapshotId) {
        self.has_written = true;
        self.created.lock().push(id.clone());
    }
}

impl Driver {
    pub(super) fn commit_turn(&mut self) {
        let state = self.session.state();
        // Without a store a failed invocation returns this state, from which the client continues.
        if self.cursor.is_none() {
            self.outcome.last_good = Some(Box::new(state.clone()));
        }
        let saved = self.save(SnapshotEvent::TurnEnd, state);
        self.answer_unless_written(saved, Event::TurnCommitted(Commit::Nothing));
    }

    /// Leaves of the turn that failed what it had committed, or nothing. A turn that another worker has is
    /// not this one's to keep.
    pub(super) fn roll_back(&mut self, error: &Error) {
        let committed = self.signals.take_committed().map(|committed| {
            let Committed { state, asked } = *committed;
            let Some((history, request)) = asked else {
                return state;
            };
            let conversation = conversation_so_far(&state.messages, &history, &request);
            SessionState {
                messages: self.session.live().state_with(conversation).messages,
                ..state
            }
        });
        let limit = self.definition.state_limit();
        // An answer that was refused leaves no trace: the question is open as before.
        let is_kept = !lost_the_session(error) && !is_refused_answer(error);
        let committed = committed.filter(|state| is_kept && limit.check(state).is_ok());
        self.snapshots.is_committed = committed.is_some();
        let Some(state) = committed.or_else(|| self.snapshots.before_turn.take()) else {
            return;
        };
        if let Err(error) = self.session.live().reload(state) {
            self.failed_work().log("rolling back a turn that failed", &error);
        }
        // Without a store a failed invocation returns this state, from which the client continues.
        if self.cursor.is_none() && self.definition.failed_turns == FailedTurns::Keep {
            self.outcome.last_good = Some(Box::new(self.session.state()));
        }
    }

    /// Returns the journal of the turn that failed, as the snapshot with what it had committed names it.
    pub(super) fn left_turn(&self) -> Option<OpenTurn> {
        self.journals.left().filter(|_| self.snapshots.is_committed)
    }

    /// Keeps the turn that failed: what it had committed, and its error.
    pub(super) fn keep_turn(&mut self) {
        let Some(cursor) = self.cursor.as_ref().filter(|_| self.snapshots.is_committed) else {
            self.raised.push_back(Event::TurnKept(Commit::Nothing));
            return;
        };
        let state = self.session.state();
        let id = self.turns.reserved.clone().unwrap_or_else(SnapshotId::generate);
        let messages = state.messages.clone();
        let finish_reason = self.turns.last.failure();
        let snapshot = Snapshot {
            status: match finish_reason {
                AgentFinishReason::Aborted => SnapshotStatus::Aborted,
                _ => SnapshotStatus::Failed,
            },
            finish_reason: Some(finish_reason),
            error: self.turns.last.error.as_ref().map(Error::for_operator),
            state: Some(state),
            ..cursor.next_snapshot(id)
        };
        self.write(snapshot, messages, SnapshotEvent::TurnEnd);
    }

    pub(super) fn commit_round(&mut self) {
        let waiting = self.snapshots.rounds.front_mut();
        let saved = match waiting.and_then(|round| round.conversation.take()) {
            Some(conversation) => {
                let state = self.session.live().state_with(conversation);
                self.save(SnapshotEvent::RoundEnd, state)
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

    /// Begins to write the state if there is a store, and the policy takes a snapshot or a turn has ended;
    /// returns whether it did. Without a snapshot, a turn becomes the session's head.
    fn save(&mut self, event: SnapshotEvent, state: SessionState) -> Result<bool> {
        let Some(cursor) = &self.cursor else {
            return Ok(false);
        };
        let next_turn = cursor.next_turn();
        let turn_index = match event {
            // The end of an invocation belongs to the turn before it, if there was one.
            SnapshotEvent::InvocationEnd => next_turn.checked_sub(1),
            _ => Some(next_turn),
        };
        // Only a turn's own snapshot has the reserved id: the turn's code has received that id.
        let own = self
            .turns
            .reserved
            .as_ref()
            .filter(|_| event == SnapshotEvent::TurnEnd);
        let mut snapshot = cursor.next_snapshot(own.cloned().unwrap_or_else(SnapshotId::generate));
        let moment = SnapshotMoment {
            event,
            state: &state,
            previous: self.snapshots.listed.as_ref(),
            index: snapshot.index.unwrap_or_default(),
            turn_index: turn_index.unwrap_or_default(),
            context: self.client.context(),
        };
        let is_head = !self.definition.snapshots.wants(&moment)?;
        if is_head && event != SnapshotEvent::TurnEnd {
            return Ok(false);
        }
        if is_head {
            snapshot.set_listing(true, cursor.listed().cloned());
            snapshot.index = snapshot.index.and_then(|index| index.checked_sub(1));
        } else if self.definition.snapshot_ids == SnapshotIds::ContentAddressed {
            // Computed before the id is put into the messages: an id cannot be part of what it names.
            snapshot.snapshot_id = SnapshotId::of_state(&state)?;
        }
        let messages = state.messages.clone();
        let named = if self.definition.names_messages && !is_head {
            naming(&messages, &snapshot.snapshot_id)
        } else {
            messages.clone()
        };
        let snapshot = Snapshot {
            turn_index,
            event: Some(event),
            finish_reason: match event {
                SnapshotEvent::TurnEnd => self.turns.last.reason,
                SnapshotEvent::InvocationEnd => self.finish_reason(),
                SnapshotEvent::RoundEnd => None,
            },
            state: Some(SessionState {
                messages: named,
                ..state
            }),
            ..snapshot
        };
        self.write(snapshot, messages, event);
        Ok(true)
    }

    /// Adds the framework's notes to a snapshot and begins to write it. `messages` are those of its state,
    /// without the snapshot's id in the last one.
    fn write(&mut self, mut snapshot: Snapshot, messages: History, event: SnapshotEvent) {
        let Some(cursor) = &self.cursor else {
            return;
        };
        let is_failure = snapshot.status != SnapshotStatus::Completed;
        snapshot.set_usage(self.used_until_now());
        snapshot.set_counted_with(self.usage.counted_with());
        self.add_note(&mut snapshot);
        // Resuming the middle of a turn, or trying a turn again, continues its journal.
        let turn = match event {
            SnapshotEvent::RoundEnd => self.journals.under_way(),
            _ if is_failure => self.left_turn(),
            _ => None,
        };
        if let Some(turn) = turn {
            snapshot.set_open_turn(turn);
        }
        // Repeating the call of a turn that failed continues the turn.
        let own_call = self.snapshots.call.as_deref();
        let own_call = own_call.filter(|_| event == SnapshotEvent::TurnEnd);
        snapshot.set_calls(own_call, cursor.calls());
        let id = snapshot.snapshot_id.clone();
        let written = match event {
            _ if is_failure => cursor.keep(snapshot).boxed(),
            SnapshotEvent::TurnEnd => cursor.create(snapshot, self.turns_held()).boxed(),
            // The turn is still in progress, or its own snapshot has dropped its journals.
            _ => cursor.create(snapshot, Vec::new()).boxed(),
        };
        let (context, input) = (self.client.context().clone(), id.clone());
        let traced = in_span("snapshot", SpanKind::Util, context, async move |_, recorder| {
            recorder.input(input.as_str());
            written.await
        });
        let written = traced.map(move |saved| {
            Written::Snapshot(SnapshotWritten {
                event,
                is_failure,
                id,
                messages,
                saved: saved.map(Box::new),
            })
        });
        self.writes.push(written.boxed());
    }

    /// Adds the note of the server that called.
    pub(super) fn add_note(&self, snapshot: &mut Snapshot) {
        if let Some(note) = self.client.context().extension::<ServerNote>() {
            snapshot.set_server_note(&note.0);
        }
    }

    /// Handles the outcome of writing a snapshot.
    pub(super) fn snapshot_written(&mut self, written: SnapshotWritten) -> AgentEvent {
        let (event, is_failure, messages) = (written.event, written.is_failure, written.messages);
        let saved = match written.saved {
            Ok(saved) => saved,
            Err(error) if is_failure => {
                self.failed_work().log("keeping a turn that failed", &error);
                return Event::CommitFailed(error);
            }
            Err(error) if error.is(SAVE_UNKNOWN) => {
                let (context, session) = (self.client.context(), self.session.session_id());
                return Event::CommitFailed(unknown_to_client(error, context, session, &written.id));
            }
            Err(error) => {
                return Event::CommitFailed(error.context(match event {
                    SnapshotEvent::TurnEnd => "the turn could not be saved",
                    SnapshotEvent::RoundEnd => "the tools' answers could not be saved",
                    SnapshotEvent::InvocationEnd => "the end of the invocation could not be saved",
                }));
            }
        };
        if is_failure {
            return self.turn_kept(*saved);
        }
        if let Some(cursor) = &mut self.cursor {
            cursor.wrote(&saved);
            self.journals.moved_on(cursor.precondition());
        }
        let Saved { snapshot, is_new, .. } = *saved;
        if let Some(named) = snapshot.state.as_ref().map(|state| &state.messages) {
            match event {
                SnapshotEvent::RoundEnd => self.session.live().saved_ahead(&messages, named),
                _ if self.definition.names_messages => self.session.live().adopt_named(&messages, named),
                _ => {}
            }
        }
        let is_head = snapshot.is_head();
        if !is_head {
            self.snapshots.listed.clone_from(&snapshot.state);
        }
        self.snapshots.written = snapshot.state;
        self.snapshots.has_written = true;
        // With content ids the snapshot may have existed before; then there is no new one to report.
        if is_new && !is_head {
            self.report(&snapshot.snapshot_id, event);
        }
        match event {
            SnapshotEvent::TurnEnd => {
                // The store dropped the records together with writing the snapshot.
                self.lock.releases.extend(self.journals.begin());
                if !is_head {
                    self.turns.last.snapshot = Some(snapshot.snapshot_id);
                }
                Event::TurnCommitted(Commit::Snapshot)
            }
            SnapshotEvent::RoundEnd => {
                // The next snapshot follows this one, whatever becomes of the turn.
                self.snapshots.before_turn.clone_from(&self.snapshots.written);
                if let Some(round) = self.snapshots.rounds.front_mut() {
                    round.snapshot = Some(snapshot.snapshot_id);
                }
                Event::RoundCommitted(Commit::Snapshot)
            }
            SnapshotEvent::InvocationEnd => Event::EndCommitted(Commit::Snapshot),
        }
    }

    /// Takes note that a turn that failed was kept. Its journal stays, for the turn that tries again.
    fn turn_kept(&mut self, saved: Saved) -> AgentEvent {
        if let Some(cursor) = self.cursor.as_mut().filter(|_| !saved.snapshot.orphaned) {
            cursor.wrote(&saved);
        }
        let Saved { snapshot, .. } = saved;
        self.snapshots.listed.clone_from(&snapshot.state);
        self.snapshots.written = snapshot.state;
        self.report(&snapshot.snapshot_id, SnapshotEvent::TurnEnd);
        self.turns.last.kept = Some(snapshot.snapshot_id.clone());
        self.turns.last.snapshot = Some(snapshot.snapshot_id);
        Event::TurnKept(Commit::Snapshot)
    }

    /// Returns what the conversation has used up to now, this invocation included.
    pub(super) fn used_until_now(&self) -> Option<UsageTotal> {
        Some(self.usage.of_session()).filter(|total| !total.is_zero())
    }

    fn report(&mut self, id: &SnapshotId, event: SnapshotEvent) {
        self.snapshots.note_created(id);
        if event == SnapshotEvent::InvocationEnd {
            let recorder = SpanRecorder::of(self.client.context());
            recorder.snapshot_id(id.as_str());
            if self.definition.is_session_flow {
                recorder.session_flow(&self.definition.name, id.as_str());
            }
        }
        if self.reports_snapshots() {
            self.announce(AgentStreamChunk::snapshot_created(SnapshotCreated {
                snapshot_id: id.clone(),
                event,
            }));
        }
    }

    /// Returns whether each snapshot is reported to the client; under the default policy the `turnEnd` chunks
    /// report all.
    fn reports_snapshots(&self) -> bool {
        self.cursor.is_some() && !self.definition.snapshots.is_default()
    }

    /// Returns the ids of this invocation's snapshots, if they are reported to the client.
    pub(super) fn reported_snapshots(&self) -> Option<Vec<SnapshotId>> {
        self.reports_snapshots()
            .then(|| self.snapshots.created.lock().clone())
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

#[derive(Default)]
pub(super) struct Journals(Vec<Arc<TurnJournal>>);

impl Journals {
    /// Forgets the journals, because a snapshot now holds their turns. Returns the work that is left.
    pub(super) fn begin(&mut self) -> Vec<BoxFuture<'static, ()>> {
        let notes = self.settled();
        self.0.clear();
        notes
    }

    /// Returns the work that is left once a snapshot holds the turns.
    pub(super) fn settled(&self) -> Vec<BoxFuture<'static, ()>> {
        self.0.iter().filter_map(|journal| journal.settled()).collect()
    }

    /// Returns the journals to drop with the turns.
    pub(super) fn to_drop(&self) -> Vec<JournalKey> {
        self.0.iter().filter_map(|journal| journal.to_drop()).collect()
    }

    /// Stops showing that the turn is in progress: its code has ended.
    pub(super) fn rest(&self) {
        if let Some(journal) = self.0.last() {
            journal.rest();
        }
    }

    /// Returns the beginning of the turn in progress, if it has a journal.
    pub(super) fn begun(&self) -> Option<OpenTurn> {
        self.0.last().map(|journal| journal.beginning())
    }

    /// Returns the turn in progress as it is left if it fails, if it has a journal.
    fn left(&self) -> Option<OpenTurn> {
        self.0.last().map(|journal| journal.left())
    }

    /// Returns the turn in progress with its records so far, if there are any.
    pub(super) fn under_way(&self) -> Option<OpenTurn> {
        self.0.last()?.so_far()
    }

    /// The invocation wrote a snapshot; the next one is written under this condition.
    pub(super) fn moved_on(&self, precondition: Precondition) {
        if let Some(journal) = self.0.last() {
            journal.moved_on(precondition);
        }
    }
}

impl Driver {
    /// Returns the names of the turns that the next snapshot holds, as far as the store has a journal or an
    /// account of them.
    pub(super) fn turns_held(&self) -> Vec<JournalKey> {
        let mut turns = self.journals.to_drop();
        turns.extend(self.usage.account().filter(|turn| !turns.contains(turn)));
        turns
    }

    /// Returns the first snapshot of the branch that the next snapshot is counted with; `None` for the
    /// session's first branch, and where sessions are not limited.
    pub(super) fn counted_with(&self, own: &SnapshotId) -> Option<SnapshotId> {
        let cursor = self.cursor.as_ref().filter(|_| self.usage.limits_sessions())?;
        cursor.counted_with(own)
    }

    /// Returns the account of the turn that begins; `None` without a store, and where nothing is counted
    /// there.
    pub(super) fn account_for(
        &self,
        input: &AgentInput,
        reserved: Option<&SnapshotId>,
    ) -> Option<TurnAccount> {
        let cursor = self.cursor.as_ref().filter(|_| self.usage.is_entered())?;
        let length = self.session.state().messages.len();
        let key = cursor.turn_name(length, input, reserved?, self.snapshots.call.as_deref());
        Some(TurnAccount::new(JournalKey::clone(&key), cursor.last().cloned()))
    }

    /// Opens the journal of the turn that begins, if the agent and its store keep journals.
    pub(super) fn journal_for(
        &mut self,
        input: &AgentInput,
        reserved: Option<&SnapshotId>,
    ) -> Option<Arc<TurnJournal>> {
        let retention = Arc::clone(self.definition.journals.as_ref()?);
        let length = self.session.state().messages.len();
        let call = self.snapshots.call.as_deref();
        let location = self.cursor.as_ref()?.journal(length, input, reserved?, call)?;
        let session = self.session.clone();
        let journal = Arc::new(TurnJournal::new(location, session, retention));
        self.journals.0.push(Arc::clone(&journal));
        Some(journal)
    }
}

/// Returns whether an error refuses an answer to a tool request before anything ran.
fn is_refused_answer(error: &Error) -> bool {
    [
        reason::ANSWER_REFUSED,
        reason::QUESTION_EXPIRED,
        reason::UNRESOLVED_TOOL_REQUEST,
    ]
    .into_iter()
    .any(|reason| error.is(reason))
}
