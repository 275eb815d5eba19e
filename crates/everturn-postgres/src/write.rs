//! Writing a row: read, mutation, rules, precondition, and one statement that writes everything or nothing.
//!
//! A commit is computed from a session at one version, mostly as this process remembers it. The
//! statement compares that version and sets the next one, so it writes only if nothing has changed; otherwise
//! all is read again and computed again. No lock is held while the caller's mutation runs, unless the commit
//! has lost several races ([`crate::session_lock`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use everturn_agent::store::{Detail, JournalKey, Mutation, Precondition, Scope, admit, id_to_save};
use everturn_agent::{SessionId, SessionState, Snapshot, SnapshotId};
use everturn_sql::{Document, to_time};

use crate::change::{Plan, Remember};
use crate::connection::{Patience, count};
use crate::fault::{Fault, Outcome, UnknownSave};
use crate::inner::Inner;
use crate::known::Tip;
use crate::listen::tag;
use crate::position::{Position, SessionKey, Tail};
use crate::read::Reading;
use crate::row::{Stored, StoredState, check_id, optional_text};
use crate::session_lock::{RACES, SessionLock};
use crate::statement::column;

/// How a session's tip changes.
pub(crate) enum NextTip {
    Is(Option<Tip>),
    /// It must be looked for, because the row was the tip.
    Search,
}

/// The outcome of one attempt to commit.
enum Attempt {
    Done(Option<Box<Snapshot>>),
    /// The attempt needs the stored state before it can continue.
    Look(Option<SessionKey>),
    /// The statement failed: it lost a race, or its connection.
    Failed {
        fault: Fault,
        session: SessionKey,
        row: Box<Snapshot>,
    },
}

/// The place to read before an attempt starts.
struct Look {
    /// The session, if it is known.
    session: Option<SessionKey>,
    /// The row of the attempt before, which may have been written.
    row: Option<Box<Snapshot>>,
}

/// The parameters of a commit.
pub(crate) struct Wish<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) id: Option<&'a SnapshotId>,
    pub(crate) precondition: &'a Precondition,
    pub(crate) mutation: &'a Mutation,
    pub(crate) journals: &'a [JournalKey],
}

impl Inner {
    /// Reads a row, applies the mutation and writes the result. Returns the written row, or `None` if the
    /// mutation wrote nothing.
    pub(crate) async fn commit(&self, wish: &Wish<'_>) -> Outcome<Option<Snapshot>> {
        let begun = Instant::now();
        let id = id_to_save(wish.id);
        check_id("scope", wish.scope.as_str())?;
        check_id("snapshot id", id.as_str())?;
        // Identifies this commit in the session, for all its attempts.
        let token = fastrand::i64(..);
        let mut patience = Patience::new(self.db.patience);
        let mut look = None;
        let mut lost_races = 0;
        // The fault of a statement that was sent and may still be carried out.
        let mut unanswered = None;
        let unknown = |unanswered: Option<UnknownSave>, fault| match unanswered {
            Some(save) => Fault::Unknown(Box::new(save)),
            None => fault,
        };
        loop {
            let attempt = match &look {
                Some(look) if lost_races >= RACES => {
                    // Boxed, because few commits lose as often.
                    match Box::pin(self.attempt_locked(wish, &id, token, look)).await {
                        // Nothing was written: the statement that writes reports its own faults.
                        Err(fault) if fault.is_lost() || fault.is_conflict() => {
                            lost_races = 0;
                            continue;
                        }
                        attempt => attempt,
                    }
                }
                look => {
                    self.attempt(wish, &id, token, look.as_ref(), self.reading())
                        .await
                }
            };
            look = match attempt {
                Ok(Attempt::Done(saved)) => {
                    count(&self.db.counters.commits);
                    let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    self.db.counters.commit_nanos.fetch_add(nanos, Ordering::Relaxed);
                    return Ok(saved.map(|row| *row));
                }
                Ok(Attempt::Look(session)) => Some(Look { session, row: None }),
                Ok(Attempt::Failed { fault, session, row }) => {
                    count(&self.db.counters.conflicts);
                    let goes_on = if fault.is_lost() {
                        patience.wait().await
                    } else {
                        lost_races += 1;
                        patience.wait_turn().await
                    };
                    if fault.is_unanswered() {
                        unanswered = Some(UnknownSave {
                            snapshot: id.clone(),
                            session: row.session_id.clone(),
                            why: fault.clone(),
                        });
                    }
                    if !goes_on {
                        return Err(unknown(unanswered, fault));
                    }
                    Some(Look {
                        session: Some(session),
                        row: Some(row),
                    })
                }
                Err(fault @ Fault::Refused(_)) => return Err(fault),
                Err(fault) => return Err(unknown(unanswered, fault)),
            };
        }
    }

    /// Makes an attempt while the session's row is locked.
    async fn attempt_locked(
        &self,
        wish: &Wish<'_>,
        id: &SnapshotId,
        token: i64,
        look: &Look,
    ) -> Outcome<Attempt> {
        let session = look.session.ok_or(Fault::Moved)?;
        let mut locked = SessionLock::new(&self.db).await?;
        let attempt = async {
            let transaction = locked.take(session).await?;
            let reading = self.reading_on(transaction.client());
            self.attempt(wish, id, token, Some(look), reading).await
        };
        let outcome = attempt.await;
        locked.end(match &outcome {
            Ok(Attempt::Failed { fault, .. }) | Err(fault) => Some(fault),
            Ok(_) => None,
        });
        outcome
    }

    /// Computes the row from the stored or cached state, and tries to write it.
    async fn attempt(
        &self,
        wish: &Wish<'_>,
        id: &SnapshotId,
        token: i64,
        look: Option<&Look>,
        reading: Reading<'_>,
    ) -> Outcome<Attempt> {
        let view = match look {
            Some(look) => Some(reading.view(wish.scope, id.as_str(), look.session).await?),
            None => None,
        };
        let view = view.as_ref();
        // A statement whose answer was lost is found by reading. Until the version has moved it may still
        // arrive; then it fails, because this attempt has moved the version, or this attempt does.
        let found = view.and_then(|view| view.session.as_ref());
        if let Some(Look { row: Some(row), .. }) = look
            && found.is_some_and(|session| session.tokens.contains(&token))
        {
            self.watchers.notice([(wish.scope.clone(), id.clone())]);
            return Ok(Attempt::Done(Some(row.clone())));
        }
        let before = view.and_then(|view| view.stored.as_ref());
        let existing = match before {
            Some(stored) => match reading.snapshot(stored.clone(), Detail::Whole).await {
                Ok(snapshot) => Some(snapshot),
                Err(Fault::Damaged(what)) => return reading.still_damaged(wish, id, stored, what).await,
                Err(fault) => return Err(fault),
            },
            None => None,
        };
        // Without a read, the row is assumed to be new, because most ids are. If the mutation needs an
        // existing row, the row is read.
        let applied = wish.mutation.apply(existing.as_ref());
        let row = match applied {
            Ok(Some(row)) => admit(id, existing.as_ref(), row),
            _ if view.is_none() => return Ok(Attempt::Look(None)),
            Ok(None) => return Ok(Attempt::Done(None)),
            Err(error) => Err(error),
        };
        let row = match row {
            Ok(row) => row,
            Err(_) if view.is_none() => return Ok(Attempt::Look(None)),
            Err(error) => return Err(error.into()),
        };
        let session_id = row.session_id.as_ref().expect("an admitted row has a session");
        check_id("session id", session_id.as_str())?;
        if let Some(parent) = &row.parent_id {
            check_id("parent id", parent.as_str())?;
        }
        let session = before.map_or_else(
            || SessionKey::of(wish.scope, session_id.as_str()),
            |row| row.session,
        );
        let verified = view.is_some_and(|view| view.looked == Some(session));
        let known = if verified {
            found.map(|found| Arc::clone(&found.known))
        } else {
            match self.cache.session(session) {
                None if !begins_session(wish.precondition) => return Ok(Attempt::Look(Some(session))),
                known => known,
            }
        };
        let found = match reading
            .found(wish.scope, session, known.as_deref(), wish.precondition, id)
            .await
        {
            Ok(found) => found,
            Err(fault) if fault.is_conflict() => {
                let row = Box::new(row);
                return Ok(Attempt::Failed { fault, session, row });
            }
            Err(fault) => return Err(fault),
        };
        if let Err(error) = wish.precondition.check(session_id, found.as_ref()) {
            if verified {
                // A tip whose row is missing is damage, and named as such.
                reading
                    .latest(wish.scope, session_id.as_str(), Detail::Metadata)
                    .await?;
                return Err(error.into());
            }
            return Ok(Attempt::Look(Some(session)));
        }
        if verified {
            reading
                .check_lock(wish.scope, session_id, wish.precondition)
                .await?;
        }
        let plan = Plan::new(reading, session, known);
        self.write(wish, plan, row, before, existing.as_ref(), token, verified)
            .await
    }

    #[expect(clippy::too_many_arguments, reason = "a row and what it replaces")]
    async fn write(
        &self,
        wish: &Wish<'_>,
        mut plan: Plan<'_>,
        row: Snapshot,
        before: Option<&Stored>,
        existing: Option<&Snapshot>,
        token: i64,
        verified: bool,
    ) -> Outcome<Attempt> {
        let own = before.and_then(|before| before.state.as_ref());
        let planned = match &row.state {
            Some(state) => plan.put_state(wish.scope, &row, state, own).await.map(Some),
            None => Ok(None),
        };
        let failed = |fault, row| {
            Ok(Attempt::Failed {
                fault,
                session: plan_session(before, wish.scope, &row),
                row: Box::new(row),
            })
        };
        let state = match planned {
            Ok(state) => state,
            Err(fault) if fault.is_conflict() => return failed(fault, row),
            Err(fault) => return Err(fault),
        };
        let tip = plan.next_tip(&row, existing);
        let statement = plan.statement(wish, &row, state.as_ref(), before.is_some(), &tip, token)?;
        let written = match plan.reading.write(&statement).await {
            Ok(rows) => rows,
            Err(fault) if fault.is_conflict() || fault.is_lost() => return failed(fault, row),
            Err(fault) => return Err(fault),
        };
        let Some(written) = written.first() else {
            // The messages before the new ones may differ from the cached ones: those of another session may
            // be deleted, and after a restore their positions may hold other messages.
            let is_foreign = plan.change.foreign.is_some();
            if let Some(place) = plan.found_by.filter(|_| is_foreign || verified) {
                self.cache.forget_place(place);
            }
            return failed(Fault::Moved, row);
        };
        let tip = match tip {
            NextTip::Is(tip) => tip,
            NextTip::Search => match (column::<Option<i64>>(written, 0)?, optional_text(written, 1)?) {
                (Some(at), Some(id)) => Some((to_time(at)?, id.into())),
                _ => None,
            },
        };
        self.db.time.learn(column(written, 3)?);
        if column(written, 2)?
            && let Some(session) = &row.session_id
        {
            self.announce_freed(wish.scope, session);
        }
        let session = plan.session;
        let is_tip = tip.as_ref().is_some_and(|(_, tip)| *tip == row.snapshot_id);
        plan.succeeded(&row, state.as_ref(), tip);
        let key = (wish.scope.clone(), row.snapshot_id.clone());
        if is_tip {
            self.cache.learn_tip(tag(&key), session);
        }
        if existing.is_none_or(|existing| existing.status != row.status) {
            if existing.is_some() {
                self.watchers.announce(&key);
            }
            self.watchers.notice([key]);
        }
        if let Some(own) = own
            && replaces(own, state.as_ref())
        {
            self.release_replaced(session, own).await;
        }
        Ok(Attempt::Done(Some(Box::new(row))))
    }
}

impl Reading<'_> {
    /// Reads a row again whose parts were missing: if it has changed, it was only read in between.
    async fn still_damaged(
        &self,
        wish: &Wish<'_>,
        id: &SnapshotId,
        stored: &Stored,
        what: String,
    ) -> Outcome<Attempt> {
        match self.find(wish.scope, id.as_str()).await? {
            Some((again, _)) if again.state == stored.state => Err(Fault::Damaged(what)),
            _ => Ok(Attempt::Look(Some(stored.session))),
        }
    }
}

/// Returns whether a turn of this condition expects no snapshot: it mostly begins the session.
fn begins_session(precondition: &Precondition) -> bool {
    matches!(
        precondition.on_snapshots(),
        Precondition::Tip(None) | Precondition::Unfollowed { snapshot: None, .. }
    )
}

fn plan_session(before: Option<&Stored>, scope: &Scope, row: &Snapshot) -> SessionKey {
    let name = row.session_id.as_ref().map(SessionId::as_str).unwrap_or_default();
    before.map_or_else(|| SessionKey::of(scope, name), |before| before.session)
}

/// Returns whether a rewritten row no longer refers to a part that it referred to before.
fn replaces(before: &StoredState, after: Option<&StoredState>) -> bool {
    let kept: Vec<i64> = after.into_iter().flat_map(StoredState::documents).collect();
    let messages = after.and_then(|after| after.messages);
    let shrunk = before.messages.is_some_and(|(before, _)| {
        messages.is_none_or(|(after, _)| after.lineage != before.lineage || after.len < before.len)
    });
    shrunk || before.documents().any(|document| !kept.contains(&document))
}

impl Plan<'_> {
    /// Plans to store the new parts of a state and returns references to all parts.
    async fn put_state(
        &mut self,
        scope: &Scope,
        row: &Snapshot,
        state: &SessionState,
        own: Option<&StoredState>,
    ) -> Outcome<StoredState> {
        let start = self.known_start(&state.messages).await?;
        let documents = state.custom.is_some() || state.prompt_input.is_some() || !state.artifacts.is_empty();
        let parent = match &row.parent_id {
            Some(parent) if documents || start.is_none() => self.parent(scope, parent).await?,
            _ => None,
        };
        let related: Vec<(Position, Tail)> = own
            .into_iter()
            .chain(parent.as_ref().map(|(state, _)| state))
            .filter_map(|state| state.messages)
            .collect();
        let messages = self.put_history(&state.messages, start, &related).await?;
        // Documents are shared within a session only.
        let parent = parent.and_then(|(state, is_own)| is_own.then_some(state));
        let parent = parent.as_ref();
        let artifacts = Some(&state.artifacts).filter(|artifacts| !artifacts.is_empty());
        let custom = state.custom.clone().map(Document::Json);
        let artifacts = artifacts.map(|artifacts| Document::Artifacts(Arc::clone(artifacts)));
        let prompt_input = state.prompt_input.clone().map(Document::Json);
        Ok(StoredState {
            messages,
            custom: self.put(custom, own, parent, |state| state.custom).await?,
            artifacts: self.put(artifacts, own, parent, |state| state.artifacts).await?,
            prompt_input: self
                .put(prompt_input, own, parent, |state| state.prompt_input)
                .await?,
            session_id: state.session_id.clone(),
            extra: state.extra.clone(),
        })
    }

    async fn put(
        &mut self,
        document: Option<Document>,
        own: Option<&StoredState>,
        parent: Option<&StoredState>,
        part: fn(&StoredState) -> Option<i64>,
    ) -> Outcome<Option<i64>> {
        let Some(document) = document else {
            return Ok(None);
        };
        let number = self
            .put_document(&document, own.and_then(part), parent.and_then(part))
            .await?;
        Ok(Some(number))
    }

    /// Returns the references of the parent's state, and whether the parent is in the same session.
    async fn parent(&self, scope: &Scope, parent: &SnapshotId) -> Outcome<Option<(StoredState, bool)>> {
        if let Some(row) = &self.known.row
            && row.snapshot.snapshot_id == *parent
        {
            return Ok(row.state.clone().map(|state| (state, true)));
        }
        let Some((stored, version)) = self.reading.find(scope, parent.as_str()).await? else {
            return Ok(None);
        };
        let is_own = stored.session == self.session;
        if is_own && (self.is_new || version != self.known.version) {
            return Err(Fault::Moved);
        }
        Ok(stored.state.map(|state| (state, is_own)))
    }

    fn next_tip(&self, row: &Snapshot, existing: Option<&Snapshot>) -> NextTip {
        let tip = self.known.tip.as_ref();
        let was_tip = tip.is_some_and(|(_, id)| *id == row.snapshot_id);
        let stays = existing.is_some_and(|existing| {
            existing.created_at == row.created_at && existing.orphaned == row.orphaned
        });
        if was_tip && !stays {
            return NextTip::Search;
        }
        let own = (row.created_at, row.snapshot_id.clone());
        let is_ahead = !row.orphaned && tip.is_none_or(|tip| *tip < own);
        NextTip::Is(if is_ahead { Some(own) } else { tip.cloned() })
    }

    /// Updates the cache after a successful commit.
    fn succeeded(mut self, row: &Snapshot, state: Option<&StoredState>, tip: Option<Tip>) {
        let cache = &self.store.cache;
        for fact in self.remember {
            match fact {
                Remember::History { lineage, grown } => cache.learn_grown(lineage, grown),
                Remember::Document {
                    number,
                    document,
                    depth,
                    bytes,
                } => cache.learn_document((self.session, number), &document, depth, bytes),
            }
        }
        self.known.version = self.next_version;
        self.known.tip = tip;
        self.known.row = Some(Arc::new(Stored {
            session: self.session,
            snapshot: Detail::Metadata.cut(row.clone()),
            state: state.cloned(),
        }));
        self.known.guard = None;
        cache.learn_session(self.session, Arc::new(self.known));
    }
}
