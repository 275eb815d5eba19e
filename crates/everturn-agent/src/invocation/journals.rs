//! The journals of the turns since the last row.

use std::sync::Arc;

use super::Driver;
use crate::journal::TurnJournal;
use crate::snapshot::OpenTurn;
use crate::store::JournalKey;
use crate::{AgentInput, CustomState, Session, SnapshotId};

#[derive(Default)]
pub(super) struct Journals(Vec<Arc<TurnJournal>>);

impl Journals {
    /// A row holds everything so far.
    pub(super) fn begin(&mut self) {
        self.0.clear();
    }

    /// The journals that hold anything.
    pub(super) fn written(&self) -> Vec<JournalKey> {
        self.0.iter().filter_map(|journal| journal.written()).collect()
    }

    /// The turn under way as it began, if it is written down.
    pub(super) fn begun(&self) -> Option<OpenTurn> {
        self.0.last().map(|journal| journal.beginning())
    }

    /// The turn under way as it is now, if anything of it is written down.
    pub(super) fn under_way(&self) -> Option<OpenTurn> {
        self.0.last()?.so_far()
    }

    /// The invocation wrote a snapshot; `tip` is now the session's latest.
    pub(super) fn tip_moved(&self, tip: Option<&SnapshotId>) {
        if let Some(journal) = self.0.last() {
            journal.tip_moved(tip);
        }
    }

    /// The journals that hold anything, which are then no longer followed.
    pub(super) fn take(&mut self) -> Vec<JournalKey> {
        let written = self.written();
        self.0.clear();
        written
    }
}

impl<S: CustomState> Driver<S> {
    /// The journal of the turn that begins, if what happens in it is written down.
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
