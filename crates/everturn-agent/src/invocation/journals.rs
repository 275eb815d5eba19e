//! The journals of the turns since the newest snapshot.

use std::sync::Arc;

use super::Driver;
use crate::journal::TurnJournal;
use crate::snapshot::OpenTurn;
use crate::store::JournalKey;
use crate::{AgentInput, CustomState, Session, SnapshotId};

#[derive(Default)]
pub(super) struct Journals(Vec<Arc<TurnJournal>>);

impl Journals {
    /// Forgets the journals, because a snapshot now holds their turns.
    pub(super) fn begin(&mut self) {
        self.0.clear();
    }

    /// Returns the journals that have records in the store.
    pub(super) fn written(&self) -> Vec<JournalKey> {
        self.0.iter().filter_map(|journal| journal.written()).collect()
    }

    /// Returns the beginning of the turn under way, if it has a journal.
    pub(super) fn begun(&self) -> Option<OpenTurn> {
        self.0.last().map(|journal| journal.beginning())
    }

    /// Returns the turn under way with its records so far, if there are any.
    pub(super) fn under_way(&self) -> Option<OpenTurn> {
        self.0.last()?.so_far()
    }

    /// The invocation wrote a snapshot; `tip` is now the session's latest.
    pub(super) fn tip_moved(&self, tip: Option<&SnapshotId>) {
        if let Some(journal) = self.0.last() {
            journal.tip_moved(tip);
        }
    }

    /// Forgets the journals and returns those that have records in the store.
    pub(super) fn take(&mut self) -> Vec<JournalKey> {
        let written = self.written();
        self.0.clear();
        written
    }
}

impl<S: CustomState> Driver<S> {
    /// Opens the journal of the turn that begins, if the agent and its store keep journals.
    pub(super) fn journal_for(
        &mut self,
        input: &AgentInput,
        reserved: Option<&SnapshotId>,
    ) -> Option<Arc<TurnJournal>> {
        let retention = Arc::clone(self.definition.journals.as_ref()?);
        let length = self.session.state().messages.len();
        let location = self.ledger.as_ref()?.journal(length, input, reserved?)?;
        let session = Session::new(Arc::clone(&self.session)).handle();
        let journal = Arc::new(TurnJournal::new(location, session, retention));
        self.journals.0.push(Arc::clone(&journal));
        Some(journal)
    }
}
