//! Where the rows of one invocation go: after which row, under which claim, with which precondition.

use std::sync::Arc;

use everturn_core::{Error, Result};
use jiff::{SignedDuration, Timestamp};

use crate::claim::{Claim, Interest};
use crate::content_id::holds_the_same;
use crate::store::{Detail, Mutation, Precondition, Scope, SessionStore, StatusStream, tip_moved};
use crate::timeline::Rewind;
use crate::{
    Clock, Concurrency, SessionId, Snapshot, SnapshotEvent, SnapshotId, SnapshotIds, SnapshotStatus, Timeline,
};

/// An invocation's place among the rows of its session.
pub(crate) struct Ledger {
    store: Arc<dyn SessionStore>,
    scope: Scope,
    session_id: SessionId,
    clock: Clock,
    policy: Concurrency,
    timeline: Timeline,
    ids: SnapshotIds,
    interest: Arc<Interest>,
    claim: Option<Claim>,
    /// The row the next one goes on from.
    last: Option<Mark>,
    /// The session's latest row as far as this invocation knows.
    tip: Option<Mark>,
    /// Whether the next row goes to the tip; if not, it begins a branch.
    at_tip: bool,
    /// On a linear timeline, the return to an earlier row that the next row carries out.
    rewind: Option<Rewind>,
}

/// A row that is in the store.
pub(crate) struct Saved {
    pub(crate) row: Snapshot,
    /// Whether it was written now: a row that is named after what it holds may have been there.
    pub(crate) is_new: bool,
    /// Whether the rewind that came with it was carried out.
    rewound: bool,
}

/// What a row's successor must know of it.
#[derive(Debug, Clone, PartialEq)]
struct Mark {
    id: SnapshotId,
    created_at: Timestamp,
    index: Option<u64>,
    turn_index: Option<u64>,
    event: Option<SnapshotEvent>,
}

impl From<&Snapshot> for Mark {
    fn from(row: &Snapshot) -> Self {
        Self {
            id: row.snapshot_id.clone(),
            created_at: row.created_at,
            index: row.index,
            turn_index: row.turn_index,
            event: row.event,
        }
    }
}

/// What a turn needs before it may start.
pub(crate) enum Admission {
    /// Nothing more.
    Granted,
    /// Its turn in the queue; give what it yields to [`Ledger::admit`].
    Queued(QueuedTurn),
}

/// A turn that waits for the session.
pub(crate) struct QueuedTurn {
    store: Arc<dyn SessionStore>,
    scope: Scope,
    session_id: SessionId,
    interest: Arc<Interest>,
    turn: SnapshotId,
    known_tip: Option<SnapshotId>,
}

/// A turn that waited, with the row it must go on from if the session moved on meanwhile.
pub(crate) struct Admitted {
    claim: Claim,
    moved_to: Option<Snapshot>,
}

impl Ledger {
    pub(crate) fn new(
        store: Arc<dyn SessionStore>,
        scope: Scope,
        session_id: SessionId,
        policy: Concurrency,
        clock: Clock,
    ) -> Self {
        let interest = Arc::new(Interest::in_session(&store, &scope, &session_id));
        Self {
            store,
            scope,
            session_id,
            clock,
            policy,
            timeline: Timeline::default(),
            ids: SnapshotIds::default(),
            interest,
            claim: None,
            last: None,
            tip: None,
            at_tip: true,
            rewind: None,
        }
    }

    /// The same place, on such a timeline, with rows named in such a way.
    pub(crate) fn with_rules(self, timeline: Timeline, ids: SnapshotIds) -> Self {
        Self {
            timeline,
            ids,
            ..self
        }
    }

    /// Goes on from exactly this row, where `latest` is the session's latest: below it, that begins a branch or, on a
    /// linear timeline, a rewind.
    pub(crate) fn resume_from(&mut self, row: &Snapshot, latest: Option<&Snapshot>) {
        self.tip = latest.map(Mark::from);
        self.go_back_to(row);
    }

    /// Goes on from an earlier row, or from the tip.
    fn go_back_to(&mut self, row: &Snapshot) {
        self.last = Some(Mark::from(row));
        self.at_tip = self.last() == self.tip_id();
        let rewinds = !self.at_tip && self.timeline == Timeline::Linear;
        self.rewind = rewinds.then(|| Rewind {
            store: Arc::clone(&self.store),
            scope: self.scope.clone(),
            session: self.session_id.clone(),
            to: row.snapshot_id.clone(),
            since: Vec::new(),
        });
    }

    /// Goes on where the session is: after its latest row. `good` is that row, or an older one that stands in for it
    /// because nobody can go on from it.
    pub(crate) fn resume_latest(&mut self, good: Option<&Snapshot>, latest: Option<&Snapshot>) {
        self.last = good.map(Mark::from);
        self.tip = latest.map(Mark::from);
        self.at_tip = true;
    }

    pub(crate) fn can_watch(&self) -> bool {
        self.store.can_watch()
    }

    /// The last row this invocation committed or resumed from.
    pub(crate) fn last(&self) -> Option<&SnapshotId> {
        self.last.as_ref().map(|mark| &mark.id)
    }

    fn tip_id(&self) -> Option<&SnapshotId> {
        self.tip.as_ref().map(|mark| &mark.id)
    }

    /// Whether the next row must land at the tip. A rewind must, lest it leaves behind what it never saw.
    fn is_exclusive(&self) -> bool {
        (self.at_tip || self.timeline == Timeline::Linear) && self.policy != Concurrency::Fork
    }

    /// Asks for the session, for a turn or a background run of that id.
    ///
    /// # Errors
    /// `ABORTED` if the policy is to reject and another turn holds the session or has moved its tip.
    pub(crate) fn request(&mut self, turn: &SnapshotId) -> Result<Admission> {
        if !self.is_exclusive() || self.claim.is_some() {
            return Ok(Admission::Granted);
        }
        let claim = self
            .interest
            .claim_now(turn)
            .and_then(|claim| match self.interest.tip() {
                Some(tip) if Some(&tip) != self.tip_id() => {
                    Err(tip_moved(&self.session_id, self.tip_id(), Some(&tip)))
                }
                _ => Ok(claim),
            });
        match claim {
            Ok(claim) => {
                self.claim = Some(claim);
                Ok(Admission::Granted)
            }
            Err(_) if self.policy == Concurrency::Queue => Ok(Admission::Queued(QueuedTurn {
                store: Arc::clone(&self.store),
                scope: self.scope.clone(),
                session_id: self.session_id.clone(),
                interest: Arc::clone(&self.interest),
                turn: turn.clone(),
                known_tip: self.tip_id().cloned(),
            })),
            Err(error) => Err(error),
        }
    }

    /// Takes the session after waiting for it; returns the row to go on from if the session moved on.
    pub(crate) fn admit(&mut self, admitted: Admitted) -> Option<Snapshot> {
        self.claim = Some(admitted.claim);
        let row = admitted.moved_to?;
        self.tip = Some(Mark::from(&row));
        // A rewind goes back to where it was asked to, whatever came after.
        if self.rewind.is_some() {
            return None;
        }
        self.last.clone_from(&self.tip);
        Some(row)
    }

    /// The number of the next turn in the line of ancestors. A turn that has only rows from its middle did not come to
    /// its end and does not count.
    pub(crate) fn next_turn(&self) -> u64 {
        let number = |mark: &Mark| match mark.event {
            Some(SnapshotEvent::ToolIterationEnd) => mark.turn_index,
            _ => mark.turn_index.map(|turn| turn + 1),
        };
        self.last.as_ref().and_then(number).unwrap_or_default()
    }

    /// Lets others have the session.
    pub(crate) fn release(&mut self) {
        self.claim = None;
    }

    fn precondition(&self) -> Precondition {
        if self.is_exclusive() {
            Precondition::Tip(self.tip_id().cloned())
        } else {
            Precondition::None
        }
    }

    /// A new row after the last one. It sorts after both its parent and the tip, whatever the clocks of other processes
    /// say, so that the latest row of a session is the one committed last.
    pub(crate) fn row(&self, id: SnapshotId) -> Snapshot {
        let after = |mark: &Mark| mark.created_at.saturating_add(SignedDuration::from_micros(1));
        let floor = [&self.last, &self.tip]
            .into_iter()
            .flatten()
            .filter_map(|mark| after(mark).ok())
            .max();
        let now = self.clock.now();
        let created_at = floor.map_or(now, |floor| floor.max(now));
        let next = |number: Option<u64>| number.map_or(0, |number| number + 1);
        Snapshot {
            parent_id: self.last().cloned(),
            updated_at: Some(created_at),
            index: Some(next(self.tip.as_ref().and_then(|mark| mark.index))),
            turn_index: Some(self.next_turn()),
            event: Some(SnapshotEvent::TurnEnd),
            ..Snapshot::new(id, self.session_id.clone(), created_at)
        }
    }

    /// Writes a new row. Report what it returns to [`Ledger::wrote`].
    pub(crate) fn create(&self, row: Snapshot) -> impl Future<Output = Result<Saved>> + Send + use<> {
        let precondition = self.precondition();
        let (store, scope) = (Arc::clone(&self.store), self.scope.clone());
        let rewind = self.rewind.clone();
        let keep = self.ids == SnapshotIds::ContentAddressed && row.snapshot_id.is_content_addressed();
        async move {
            let id = row.snapshot_id.clone();
            let written = row.clone();
            let mutation: Mutation = Arc::new(move |existing| match existing.filter(|_| keep) {
                Some(existing) => check_equal(existing, &written).map(|()| None),
                None => Ok(Some(written.clone())),
            });
            if store
                .save(&scope, Some(&id), precondition, mutation)
                .await?
                .is_none()
            {
                let found = store.get(&scope, &id, Detail::Metadata).await?;
                let found = found.ok_or_else(|| {
                    Error::aborted(format!("snapshot '{id}' was deleted as it was to be saved again"))
                })?;
                return Ok(Saved {
                    row: Snapshot {
                        state: row.state,
                        ..found
                    },
                    is_new: false,
                    rewound: false,
                });
            }
            let rewound = match &rewind {
                Some(rewind) => settled(&rewind.carry_out(&id).await, &id),
                None => false,
            };
            Ok(Saved {
                row,
                is_new: true,
                rewound,
            })
        }
    }

    /// Takes note of a row that was saved: it is now the session's latest, unless it was there before.
    pub(crate) fn wrote(&mut self, saved: &Saved) {
        let row = &saved.row;
        if !saved.is_new {
            return self.go_back_to(row);
        }
        if saved.rewound {
            self.rewind = None;
        } else if let Some(rewind) = &mut self.rewind {
            rewind.since.push(row.snapshot_id.clone());
        }
        self.interest.committed(&row.snapshot_id);
        self.tip = Some(Mark::from(row));
        self.at_tip = true;
        if row.status == SnapshotStatus::Completed {
            self.last.clone_from(&self.tip);
        }
    }

    /// Rewrites a row.
    pub(crate) fn rewrite(
        &self,
        id: SnapshotId,
        mutation: Mutation,
    ) -> impl Future<Output = Result<Option<Snapshot>>> + Send + use<> {
        let (store, scope) = (Arc::clone(&self.store), self.scope.clone());
        async move { store.save(&scope, Some(&id), Precondition::None, mutation).await }
    }

    /// Reads a row without its state.
    pub(crate) fn status(
        &self,
        id: SnapshotId,
    ) -> impl Future<Output = Result<Option<SnapshotStatus>>> + Send + use<> {
        let (store, scope) = (Arc::clone(&self.store), self.scope.clone());
        async move {
            Ok(store
                .get(&scope, &id, Detail::Metadata)
                .await?
                .map(|row| row.status))
        }
    }

    pub(crate) fn watch(&self, id: &SnapshotId) -> Option<StatusStream> {
        self.store.watch(&self.scope, id)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Two states with the same name are the same, but for numbers that the name cannot tell apart.
fn check_equal(existing: &Snapshot, row: &Snapshot) -> Result<()> {
    if let (Some(existing), Some(state)) = (&existing.state, &row.state)
        && holds_the_same(existing, state)
    {
        return Ok(());
    }
    Err(Error::failed_precondition(format!(
        "snapshot '{}' holds a state that differs in numbers beyond 2^53, which content-addressed names cannot tell \
         apart; keep such numbers as text",
        row.snapshot_id
    )))
}

/// A rewind that could not be carried out to its end is no failure of the turn, which is durable: it is tried again
/// with the next row.
fn settled(outcome: &Result<()>, tip: &SnapshotId) -> bool {
    if let Err(error) = outcome {
        tracing::warn!(%tip, %error, "not all that a rewind leaves behind could be marked");
    }
    outcome.is_ok()
}

impl QueuedTurn {
    /// Waits for those that came before, and looks where they left the session.
    ///
    /// # Errors
    /// What the store fails with; `FAILED_PRECONDITION` if they left it where nobody can go on.
    pub(crate) async fn wait(self) -> Result<Admitted> {
        let claim = self.interest.claim_in_order(&self.turn).await;
        let moved = self
            .interest
            .tip()
            .is_some_and(|tip| Some(&tip) != self.known_tip.as_ref());
        let moved_to = if moved {
            let latest = self
                .store
                .latest(&self.scope, &self.session_id, Detail::Whole)
                .await?;
            latest.map(crate::opening::resumable).transpose()?
        } else {
            None
        };
        Ok(Admitted { claim, moved_to })
    }
}
