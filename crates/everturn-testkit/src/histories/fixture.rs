//! A running program: the store, and the model to compare it with.

mod comparison;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use everturn_agent::archive::{Archive, Import, Retention};
use everturn_agent::store::{Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{
    Agent, AgentReply, Clock, SessionId, Snapshot, SnapshotId, SnapshotIds, SnapshotStatus, Timeline,
};
use everturn_core::{Error, Status};
use jiff::{SignedDuration, Timestamp};

use super::agent::{Gate, agent, user_text};
use super::model::{Model, Rules};
use super::step::{Return, Step};
use crate::certify::ensure;

/// The result of a step: nothing, or the difference.
type StepResult = Result<(), String>;

pub(super) struct Fixture {
    store: Arc<dyn SessionStore>,
    /// The agent that branches when it resumes an earlier snapshot.
    agent: Agent,
    /// The agent that rewinds when it resumes an earlier snapshot.
    rewinding: Agent,
    /// Like `agent`, with turns that wait at the gate before they end.
    gated: Agent,
    gate: Arc<Gate>,
    ids_by: SnapshotIds,
    archive: Archive,
    seconds: Arc<AtomicI64>,
    model: Model,
    /// Every session and snapshot ever created, including deleted ones.
    sessions: Vec<SessionId>,
    ids: Vec<SnapshotId>,
    /// The snapshot that the last step concerned.
    touched: Option<SnapshotId>,
}

/// The result of a turn.
enum Reached {
    New(SnapshotId),
    /// The turn reached an existing snapshot.
    To(SnapshotId),
}

impl Fixture {
    pub(super) fn new(store: Arc<dyn SessionStore>, ids: SnapshotIds) -> Self {
        let seconds = Arc::new(AtomicI64::new(0));
        let clock = Clock::new({
            let seconds = Arc::clone(&seconds);
            move || moment(seconds.load(Ordering::SeqCst))
        });
        let on = |timeline, gate| agent(Arc::clone(&store), clock.clone(), ids, timeline, gate);
        let gate = Gate::closed();
        Self {
            agent: on(Timeline::Branching, None),
            rewinding: on(Timeline::Linear, None),
            gated: on(Timeline::Branching, Some(Arc::clone(&gate))),
            gate,
            ids_by: ids,
            archive: Archive::of(Arc::clone(&store), Scope::default()).with_clock(clock),
            store,
            seconds,
            model: Model::default(),
            sessions: vec!["a".into(), "b".into(), "c".into()],
            ids: Vec::new(),
            touched: None,
        }
    }

    fn now(&self) -> Timestamp {
        moment(self.seconds.load(Ordering::SeqCst))
    }

    fn session(&self, pick: usize) -> SessionId {
        self.sessions[pick % self.sessions.len()].clone()
    }

    /// Picks a snapshot that exists or existed; before the first one, an id that never existed.
    fn snapshot(&self, pick: usize) -> SnapshotId {
        match self.ids.len() {
            0 => "never".into(),
            count => self.ids[pick % count].clone(),
        }
    }

    fn new_session(&mut self) -> SessionId {
        let session = SessionId::from(format!("session-{}", self.sessions.len()));
        self.sessions.push(session.clone());
        session
    }

    /// Adds a snapshot to the model.
    fn add(&mut self, snapshot: Snapshot) {
        self.touched = Some(snapshot.snapshot_id.clone());
        self.ids.push(snapshot.snapshot_id.clone());
        self.model.snapshots.push(snapshot);
    }

    pub(super) async fn apply(&mut self, step: &Step) -> StepResult {
        self.seconds.fetch_add(1, Ordering::SeqCst);
        match *step {
            Step::Turn { session, text } => {
                let session = self.session(session);
                let reply = self
                    .agent
                    .chat()
                    .resume(session.clone())
                    .run(user_text(text))
                    .await;
                let expected = self
                    .model
                    .turn(&session, self.model.latest(&session), text, self.now());
                self.apply_turn(reply, expected).map(drop)
            }
            Step::Resume { snapshot, text } => self.resume(snapshot, text, Timeline::Branching).await,
            Step::Overlap {
                snapshot,
                beside,
                text,
            } => self.overlap(snapshot, beside, text).await,
            Step::Rewind { snapshot, text } => self.resume(snapshot, text, Timeline::Linear).await,
            Step::AddPending { session } => self.add_pending(session).await,
            Step::Fork { snapshot } => self.fork(snapshot).await,
            Step::Copy { session } => {
                let session = self.session(session);
                let to = self.new_session();
                let copied = self.archive.copy(session.clone(), to.clone()).await;
                self.check_copy(&session, &to, copied, |snapshot| snapshot).await
            }
            Step::Label { snapshot, label, off } => self.label(snapshot, label, off).await,
            Step::Annotate { snapshot, note } => self.annotate(snapshot, note).await,
            Step::DeleteSnapshot { snapshot } => {
                let id = self.snapshot(snapshot);
                let there = self.model.find(&id).is_some();
                let deleted = self.archive.delete_snapshot(id.clone()).await.map_err(text)?;
                ensure!(
                    deleted == there,
                    "a snapshot was there: {there}; deleted: {deleted}"
                );
                self.model.delete(&HashSet::from([id]));
                Ok(())
            }
            Step::DeleteBranch { snapshot } => {
                let id = self.snapshot(snapshot);
                let branch = self.model.branch(&id);
                let deleted = self.archive.delete_branch(id).await.map_err(text)?;
                ensure!(
                    deleted == branch.len() as u64,
                    "a branch of {} snapshots, of which {deleted} were deleted",
                    branch.len()
                );
                self.model.delete(&branch);
                Ok(())
            }
            Step::DeleteSession { session } => {
                let session = self.session(session);
                let deleted = self.archive.delete_session(session.clone()).await.map_err(text)?;
                let expected = self.model.delete_session(&session);
                ensure!(
                    deleted == expected as u64,
                    "a session of {expected} snapshots, of which {deleted} were deleted"
                );
                Ok(())
            }
            Step::Retain {
                age,
                count,
                even_labelled,
            } => self.retain(age, count, even_labelled).await,
            Step::Export { session, back } => self.export(self.session(session), back).await,
        }
    }

    async fn resume(&mut self, snapshot: usize, text: u8, timeline: Timeline) -> StepResult {
        let id = self.snapshot(snapshot);
        let agent = match timeline {
            Timeline::Linear => &self.rewinding,
            _ => &self.agent,
        };
        let reply = agent.chat().snapshot(id.clone()).run(user_text(text)).await;
        let expected = self.turn_from(&id, text);
        let session = self.model.find(&id).and_then(|parent| parent.session_id.clone());
        let is_tip = session.is_some_and(|session| {
            let latest = self.model.latest(&session);
            latest.is_some_and(|latest| latest.snapshot_id == id)
        });
        if timeline != Timeline::Linear {
            return self.apply_turn(reply, expected).map(drop);
        }
        match self.apply_turn(reply, expected)? {
            Some(Reached::To(snapshot)) => self.model.rewind(&snapshot, &snapshot),
            Some(Reached::New(tip)) if !is_tip => self.model.rewind(&id, &tip),
            _ => {}
        }
        Ok(())
    }

    /// Returns the snapshot that a turn from a snapshot writes, except for its id.
    fn turn_from(&self, id: &SnapshotId, text: u8) -> Result<Snapshot, Status> {
        let parent = self.model.find(id).ok_or(Status::NotFound)?;
        let session = parent.session_id.as_ref().ok_or(Status::NotFound)?;
        self.model.turn(session, Some(parent), text, self.now())
    }

    /// Continues from two snapshots at the same time.
    async fn overlap(&mut self, snapshot: usize, beside: usize, text: u8) -> StepResult {
        let (id, other) = (self.snapshot(snapshot), self.snapshot(beside));
        let other_expected = self.turn_from(&other, text);
        let only_one = id == other && other_expected.is_ok() && !self.model.is_followed(&id);

        let chat = self.gated.chat().snapshot(id.clone());
        let mut running = tokio::spawn(async move { chat.run(user_text(text)).await });
        let over = tokio::select! {
            reply = &mut running => Some(reply),
            entered = self.gate.entered.acquire() => {
                entered.map_err(|error| error.to_string())?.forget();
                None
            }
        };
        let meanwhile = self.agent.chat().snapshot(other).run(user_text(text)).await;
        // The running turn started before the other one, and ends later.
        self.seconds.fetch_add(1, Ordering::SeqCst);
        let expected = self.turn_from(&id, text);
        let reply = if let Some(reply) = over {
            reply
        } else {
            self.gate.leave.add_permits(1);
            running.await
        };
        let reply = reply.map_err(|error| error.to_string())?;

        let refused = |reply: &Result<AgentReply, Error>| matches!(reply, Err(error) if only_one && error.status() == Status::Aborted);
        let (first, second) = (refused(&meanwhile), refused(&reply));
        ensure!(
            first != second || !only_one,
            "of two turns that continue one snapshot, refused are {first} and {second}"
        );
        if !first {
            self.apply_turn(meanwhile, other_expected)?;
        }
        if !second {
            self.apply_turn(reply, expected)?;
        }
        Ok(())
    }

    /// Applies the store's turn to the model, and returns its result.
    fn apply_turn(
        &mut self,
        reply: Result<AgentReply, Error>,
        expected: Result<Snapshot, Status>,
    ) -> Result<Option<Reached>, String> {
        let (reply, snapshot) = match (reply, expected) {
            (Ok(reply), Ok(snapshot)) => (reply, snapshot),
            (reply, expected) => return same_failure(reply, expected).map(|()| None),
        };
        let id = reply.snapshot_id().cloned().ok_or("a turn left no snapshot")?;
        if self.ids_by == SnapshotIds::ContentAddressed {
            let name =
                SnapshotId::of_state(snapshot.state.as_ref().ok_or("a turn left no state")?).map_err(text)?;
            ensure!(id == name, "a snapshot is called '{id}' instead of '{name}'");
            // With content ids, an equal state is the existing snapshot.
            if self.model.find(&id).is_some() {
                return Ok(Some(Reached::To(id)));
            }
        }
        self.add(Snapshot {
            snapshot_id: id.clone(),
            ..snapshot
        });
        Ok(Some(Reached::New(id)))
    }

    async fn add_pending(&mut self, session: usize) -> StepResult {
        let session = self.session(session);
        let snapshot = self.model.pending(&session, SnapshotId::generate(), self.now());
        let written = snapshot.clone();
        let mutation = Mutation::new(move |_| Ok(Some(written.clone())));
        self.store
            .save(
                &Scope::default(),
                Some(&snapshot.snapshot_id),
                Precondition::None,
                mutation,
            )
            .await
            .map_err(text)?;
        self.add(snapshot);
        Ok(())
    }

    async fn fork(&mut self, snapshot: usize) -> StepResult {
        let id = self.snapshot(snapshot);
        let session = self.new_session();
        let forked = self.archive.fork(id.clone(), session.clone()).await;
        let expected = match self.model.find(&id).map(|snapshot| snapshot.status) {
            None => Err(Status::NotFound),
            Some(SnapshotStatus::Completed) => Ok(()),
            Some(_) => Err(Status::FailedPrecondition),
        };
        match (forked, expected) {
            (Ok(forked), Ok(())) => {
                let snapshot = self.model.fork(&id, forked.snapshot_id, &session, self.now());
                self.add(snapshot);
                Ok(())
            }
            (forked, expected) => same_failure(forked, expected),
        }
    }

    /// Checks that a session now exists a second time, with other ids.
    async fn check_copy(
        &mut self,
        session: &SessionId,
        to: &SessionId,
        count: Result<u64, Error>,
        change: fn(Snapshot) -> Snapshot,
    ) -> StepResult {
        let originals = self.model.session(session).into_iter();
        let originals: Vec<Snapshot> = originals.cloned().map(change).collect();
        let count = match (count, originals.is_empty()) {
            (Ok(count), false) => count,
            (count, true) => return same_failure(count, Err::<(), _>(Status::NotFound)),
            (count, false) => return same_failure(count, Ok(())),
        };
        let copies = self.listed(to).await?;
        ensure!(
            copies.len() == originals.len() && count == copies.len() as u64,
            "{} snapshots became {}, reported as {count}",
            originals.len(),
            copies.len()
        );
        let names = originals.iter().map(|snapshot| snapshot.snapshot_id.clone());
        let mut names: HashMap<SnapshotId, SnapshotId> = names
            .zip(copies.iter().map(|snapshot| snapshot.snapshot_id.clone()))
            .collect();
        for (original, copy) in originals.into_iter().zip(copies) {
            // A deleted parent gets a new id too, which no other snapshot has.
            if let (Some(gone), Some(name)) = (&original.parent_id, &copy.parent_id)
                && !names.contains_key(gone)
            {
                ensure!(
                    !self.ids.contains(name),
                    "the parent of a copy is a snapshot of another session"
                );
                names.insert(gone.clone(), name.clone());
            }
            let mut expected = Snapshot {
                snapshot_id: names[&original.snapshot_id].clone(),
                session_id: Some(to.clone()),
                parent_id: original
                    .parent_id
                    .as_ref()
                    .and_then(|parent| names.get(parent))
                    .cloned(),
                ..original
            };
            if let Some(state) = &mut expected.state {
                state.session_id = Some(to.clone());
            }
            self.add(expected);
        }
        Ok(())
    }

    async fn label(&mut self, snapshot: usize, label: u8, off: bool) -> StepResult {
        let (id, label) = (self.snapshot(snapshot), format!("label {label}"));
        let written = if off {
            self.archive.unlabel(id.clone(), label.clone()).await
        } else {
            self.archive.label(id.clone(), label.clone()).await
        };
        self.changed(&id, written, |labels, _| {
            match labels.iter().position(|own| *own == label) {
                Some(at) if off => {
                    labels.remove(at);
                    true
                }
                None if !off => {
                    labels.push(label.clone());
                    true
                }
                _ => false,
            }
        })
    }

    async fn annotate(&mut self, snapshot: usize, note: u8) -> StepResult {
        let id = self.snapshot(snapshot);
        let note = if note == 0 {
            String::new()
        } else {
            format!("note {note}")
        };
        let written = self.archive.annotate(id.clone(), note.clone()).await;
        self.changed(&id, written, |_, own| {
            let note = Some(note).filter(|note| !note.is_empty());
            std::mem::replace(own, note.clone()) != note
        })
    }

    /// Applies the store's change to the model's snapshot; `change` returns whether it changed anything.
    fn changed(
        &mut self,
        id: &SnapshotId,
        written: Result<Snapshot, Error>,
        change: impl FnOnce(&mut Vec<String>, &mut Option<String>) -> bool,
    ) -> StepResult {
        let now = self.now();
        let (written, snapshot) = match (written, self.model.find_mut(id)) {
            (Ok(written), Some(snapshot)) => (written, snapshot),
            (written, None) => return same_failure(written, Err::<(), _>(Status::NotFound)),
            (written, Some(_)) => return same_failure(written, Ok(())),
        };
        if change(&mut snapshot.labels, &mut snapshot.note) {
            snapshot.updated_at = snapshot.updated_at.max(Some(now));
        }
        ensure!(written == *snapshot, "wrote {written:?} instead of {snapshot:?}");
        self.touched = Some(id.clone());
        Ok(())
    }

    async fn retain(&mut self, age: Option<u8>, count: Option<u8>, even_labelled: bool) -> StepResult {
        let mut retention = Retention::default();
        let mut rules = Rules {
            horizon: None,
            count: count.map(usize::from),
            even_labelled,
        };
        if let Some(age) = age {
            retention = retention.no_older_than(Duration::from_secs(age.into()));
            rules.horizon = Some(self.now() - SignedDuration::from_secs(age.into()));
        }
        if let Some(count) = rules.count {
            retention = retention.newest(count);
        }
        if even_labelled {
            retention = retention.even_labelled();
        }
        let report = self.archive.retain(&retention).await.map_err(text)?;
        let expendable = self.model.expendable(&rules);
        self.model.delete(&expendable);
        let by_session: u64 = report.trimmed.iter().map(|trimmed| trimmed.snapshots).sum();
        ensure!(
            report.snapshots == expendable.len() as u64 && by_session == report.snapshots,
            "{} snapshots should be deleted, and the report is {report:?}",
            expendable.len()
        );
        for trimmed in report.trimmed {
            let gone = self.model.session(&trimmed.session_id).is_empty();
            ensure!(trimmed.gone == gone, "{trimmed:?}, and nothing left is {gone}");
        }
        Ok(())
    }

    async fn export(&mut self, session: SessionId, back: Return) -> StepResult {
        let mut file = Vec::new();
        let exported = self.archive.export(session.clone(), &mut file).await;
        let snapshots = self.model.session(&session).len();
        if snapshots == 0 {
            return same_failure(exported, Err::<(), _>(Status::NotFound));
        }
        let exported = exported.map_err(text)?;
        ensure!(
            exported == snapshots as u64,
            "{snapshots} snapshots were exported as {exported}"
        );
        let how = match back {
            Return::Renamed => {
                let to = self.new_session();
                let how = Import::default().into_session(to.clone());
                let imported = self.archive.import(file.as_slice(), how).await;
                let count = imported.map(|imported| imported.snapshots);
                return self.check_copy(&session, &to, count, without_run).await;
            }
            Return::Refused => {
                let imported = self.archive.import(file.as_slice(), Import::default()).await;
                return same_failure(imported, Err::<(), _>(Status::AlreadyExists));
            }
            Return::AfterDeletion => {
                self.archive.delete_session(session.clone()).await.map_err(text)?;
                Import::default()
            }
            Return::Replacing => {
                // This turn is rejected if the session ends in a pending snapshot, which serves the purpose
                // as well.
                let _ = self.agent.chat().resume(session.clone()).run("meanwhile").await;
                Import::default().replacing()
            }
        };
        let imported = self.archive.import(file.as_slice(), how).await.map_err(text)?;
        ensure!(
            imported.session_id == session && imported.snapshots == snapshots as u64,
            "{snapshots} snapshots came back as {imported:?}"
        );
        let ids = self.model.session(&session).into_iter();
        let ids: Vec<SnapshotId> = ids.map(|snapshot| snapshot.snapshot_id.clone()).collect();
        for id in ids {
            if let Some(snapshot) = self.model.find_mut(&id) {
                *snapshot = without_run(snapshot.clone());
            }
        }
        Ok(())
    }
}

/// Returns a snapshot as it is imported: no worker continues it.
fn without_run(snapshot: Snapshot) -> Snapshot {
    match snapshot.status {
        SnapshotStatus::Pending => Snapshot {
            status: SnapshotStatus::Aborted,
            heartbeat_at: None,
            ..snapshot
        },
        _ => snapshot,
    }
}

fn moment(seconds: i64) -> Timestamp {
    let start = Timestamp::from_second(1_700_000_000).expect("a time in range");
    start + SignedDuration::from_secs(seconds)
}

#[expect(clippy::needless_pass_by_value, reason = "it is a mapping of errors")]
fn text(error: Error) -> String {
    error.to_string()
}

/// Checks that an operation failed with the expected status.
fn same_failure<T, U>(found: Result<T, Error>, expected: Result<U, Status>) -> StepResult {
    match (
        found.map_err(|error| (error.status(), error.to_string())),
        expected,
    ) {
        (Err((found, _)), Err(expected)) if found == expected => Ok(()),
        (Err((_, message)), Err(expected)) => Err(format!("failed with {message} instead of {expected:?}")),
        (Err((_, message)), Ok(_)) => Err(format!("failed: {message}")),
        (Ok(_), Err(expected)) => Err(format!("succeeded instead of failing with {expected:?}")),
        (Ok(_), Ok(_)) => Err("succeeded differently".to_owned()),
    }
}
