//! The record of an approved call that must not be made twice.
//!
//! The journal of a turn is dropped with the turn, but its snapshot can be resumed again: on another branch,
//! by another process, a year later. An approved call therefore has a separate journal, which is named after
//! its question and kept as long as the session. Every resumption that leads to the call finds the record
//! there.

use std::sync::atomic::{AtomicU64, Ordering};

use everturn_ai::{Approval, ToolOutcome};
use everturn_core::{Error, Result};

use super::entry::{Batch, Entry};
use super::writer::JournalLocation;
use crate::session::Change;
use crate::store::{JournalKey, JournalRecord, RECORD_TAKEN};

/// An approved call, with its record in the store.
pub(super) struct ApprovedCall {
    key: JournalKey,
    /// The digest of the answer that approved it.
    answer: String,
    /// The turn and the attempt that write.
    by: String,
    next: AtomicU64,
}

/// The record of an approved call.
pub(super) enum Made {
    /// It was never made, or failed without effect.
    Never,
    /// It began, in the turn of that name, and its end is unknown.
    Began { turn: String },
    /// It ended.
    Ended {
        /// The digest of the answer that approved it.
        answer: String,
        turn: String,
        outcome: Box<ToolOutcome>,
        changes: Vec<Change>,
    },
}

impl ApprovedCall {
    /// Reads the record of a call.
    pub(super) async fn open(
        location: &JournalLocation,
        approval: &Approval,
        attempt: &str,
    ) -> Result<(Self, Made)> {
        // A copy of the session asks the question of the session it was copied from.
        let own = location.key.session();
        let session = approval
            .session
            .as_deref()
            .map_or_else(|| own.clone(), Into::into);
        let key = JournalKey::kept(session, &approval.id);
        let answer = approval.answers.last().map(|given| given.answer.clone());
        let records = location
            .journal()?
            .read(location.session.tenant().scope(), &key)
            .await?;
        let mut made = Made::Never;
        for record in &records {
            let Batch { by, entries, .. } = Batch::read(record)?;
            let turn = by.split('/').next().unwrap_or_default();
            for entry in entries {
                made = made.followed_by(entry, turn);
            }
        }
        let call = Self {
            key,
            answer: answer.unwrap_or_default(),
            by: format!("{}/{attempt}", location.turn.turn()),
            next: AtomicU64::new(records.last().map_or(0, |last| last.sequence + 1)),
        };
        Ok((call, made))
    }

    /// Returns the digest of the answer that approved the call.
    pub(super) fn answer(&self) -> &str {
        &self.answer
    }

    /// Adds an entry to the record.
    ///
    /// # Errors
    /// `ABORTED` if another resumption has added one since the record was read: then that one makes the call.
    /// The store's own errors.
    pub(super) async fn add(&self, location: &JournalLocation, entry: Entry) -> Result<()> {
        let journal = location.journal()?;
        let scope = location.session.tenant().scope();
        let sequence = self.next.load(Ordering::Acquire);
        let batch = Batch {
            by: self.by.clone(),
            turn: String::new(),
            entries: vec![entry],
        };
        let record = JournalRecord {
            sequence,
            body: batch.body()?,
        };
        // The turn's own journal has the guard, and is written first.
        match journal.append(scope, &self.key, record, None).await {
            Err(error) if error.is(RECORD_TAKEN) => {
                let records = journal.read(scope, &self.key).await?;
                let taken = records.iter().find(|record| record.sequence == sequence);
                // The answer to this attempt's own write may have been lost.
                let is_own = match taken {
                    Some(record) => Batch::read(record)?.by == self.by,
                    None => false,
                };
                if !is_own {
                    return Err(made_elsewhere());
                }
            }
            appended => appended?,
        }
        self.next.store(sequence + 1, Ordering::Release);
        Ok(())
    }
}

impl Made {
    fn followed_by(self, entry: Entry, turn: &str) -> Self {
        let turn = turn.to_owned();
        match entry {
            Entry::Started { .. } => Self::Began { turn },
            Entry::Ended {
                call,
                outcome,
                changes,
                ..
            } => Self::Ended {
                answer: call,
                turn,
                outcome,
                changes,
            },
            Entry::Failed { .. } => Self::Never,
            Entry::TakenUp | Entry::Replied { .. } | Entry::Adopted { .. } | Entry::Abandoned => self,
        }
    }
}

fn made_elsewhere() -> Error {
    Error::aborted(
        "another resumption of the conversation is making this approved call; retry when it has ended",
    )
    .with_public()
}
