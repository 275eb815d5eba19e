//! Finding background runs whose worker was lost, and continuing them in this process.
//!
//! A worker polls the store for pending snapshots whose last heartbeat is older than their agent's expiry. It
//! takes the run over by replacing the lapsed lease with its own, in one atomic step that fails for all but
//! one of the workers that try. Then it starts the agent's function on the last state that was committed,
//! with the inputs that are left, and without a client. A run that was begun too often is ended as failed
//! instead.

mod every;
mod registered;
mod takeover;

use std::sync::Arc;

use everturn_core::{ActionType, Context, Error, Result, SpanKind, in_span};
use futures::StreamExt;
use jiff::Timestamp;

pub use self::every::{RecoveryLoop, recover_every};
pub use self::registered::recover_all;
pub(crate) use self::registered::register;
use self::takeover::{HopelessRun, LostRun, TakenRun, Takeover};
use crate::invocation::{Definition, Driver};
use crate::storage::stored_session::TenantStore;
use crate::storage::unfinished_call::unfinished_calls;
use crate::store::{JournalQuery, PendingQuery, Scope, SessionStore};
use crate::{SessionId, SnapshotId, UnfinishedCall, WorkerLoss};

/// How many runs are taken over at the same time.
const AT_ONCE: usize = 16;

/// The outcome of polling for lost runs once.
#[derive(Debug, Default)]
#[must_use = "failures are reported here and nowhere else"]
#[non_exhaustive]
pub struct Recovery {
    /// The runs that continue in this process now.
    pub taken_over: Vec<RecoveredRun>,
    /// The runs that were begun too often, or cannot continue. They have failed now.
    pub given_up: Vec<RecoveredRun>,
    /// The calls of `Once` tools of all tenants that were found by this poll and not by an earlier one: their
    /// turns died or failed, and their outcomes are unknown. The next turn of the session reconciles or asks.
    pub unfinished: Vec<(Scope, UnfinishedCall)>,
    /// The errors on the way. The runs concerned are as they were, and the next poll finds them again.
    pub failures: Vec<Error>,
}

impl Recovery {
    /// Adds the outcome of another poll.
    pub fn merge(&mut self, other: Self) {
        self.taken_over.extend(other.taken_over);
        self.given_up.extend(other.given_up);
        // Agents that share a store find the same calls.
        for call in other.unfinished {
            if !self.unfinished.contains(&call) {
                self.unfinished.push(call);
            }
        }
        self.failures.extend(other.failures);
    }

    fn add(&mut self, outcome: Result<Option<Recovered>>) {
        match outcome {
            Ok(Some(Recovered::TakenOver(run))) => self.taken_over.push(run),
            Ok(Some(Recovered::GivenUp(run))) => self.given_up.push(run),
            Ok(None) => {}
            Err(error) => self.failures.push(error),
        }
    }
}

/// A background run whose worker was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveredRun {
    /// The agent whose run it is.
    pub agent: String,
    /// The tenant whose run it is.
    pub scope: Scope,
    /// The session that the run is part of.
    pub session_id: SessionId,
    /// The snapshot of the run.
    pub snapshot_id: SnapshotId,
    /// The number of workers that have begun the rest of the run, this one included.
    pub attempt: u32,
}

enum Recovered {
    TakenOver(RecoveredRun),
    GivenUp(RecoveredRun),
}

impl Definition {
    /// Polls once for lost runs of this agent, and takes them over; and for calls whose outcome is unknown.
    pub(crate) async fn recover(self: &Arc<Self>) -> Recovery {
        let Some(store) = &self.store else {
            return Recovery::default();
        };
        let silent_since = self.clock.before(self.heartbeat.expiry);
        let mut recovery = match self.worker_loss {
            WorkerLoss::TakeOver { attempts } => self.recover_runs(store, silent_since, attempts).await,
            _ => Recovery::default(),
        };
        match self.find_unfinished(&**store, silent_since).await {
            Ok(found) => recovery.unfinished = found,
            // A store that cannot be read is reported once.
            Err(_) if !recovery.failures.is_empty() => {}
            Err(error) => {
                let error = error.context("the store could not be asked for calls whose outcome is unknown");
                recovery.failures.push(error);
            }
        }
        recovery
    }

    /// Takes over the runs that have been silent since a moment.
    async fn recover_runs(
        self: &Arc<Self>,
        store: &Arc<dyn SessionStore>,
        moment: Timestamp,
        attempts: u32,
    ) -> Recovery {
        let mut recovery = Recovery::default();
        let mut query = PendingQuery::silent_since(moment);
        loop {
            let page = match store.pending(&query).await {
                Ok(Some(page)) => page,
                Ok(None) => return recovery,
                Err(error) => {
                    recovery
                        .failures
                        .push(error.context("the store could not be asked for lost runs"));
                    return recovery;
                }
            };
            let mut lost = Vec::new();
            for pending in page.items {
                match LostRun::of(pending, &self.name) {
                    // A run of this very process whose heartbeat is late is still alive: its own tasks hold
                    // it.
                    Ok(Some(run)) if !self.runs.contains(&run.scope, &run.id) => lost.push(run),
                    Ok(_) => {}
                    // One unreadable run must not keep the others from being recovered.
                    Err(error) => recovery.failures.push(error),
                }
            }
            let mut recovered = futures::stream::iter(lost)
                .map(|run| {
                    let tenant = TenantStore::new(Arc::clone(store), run.scope.clone());
                    self.recover_run(tenant, run, moment, attempts)
                })
                .buffer_unordered(AT_ONCE);
            while let Some(outcome) = recovered.next().await {
                recovery.add(outcome);
            }
            drop(recovered);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return recovery,
            }
        }
    }

    /// Returns the calls whose outcome is unknown and whose turns have been silent since a moment, and were
    /// not yet when this was called before.
    async fn find_unfinished(
        &self,
        store: &dyn SessionStore,
        silent_since: Timestamp,
    ) -> Result<Vec<(Scope, UnfinishedCall)>> {
        // An agent without journals begins no such calls.
        let Some(journals) = &self.journals else {
            return Ok(Vec::new());
        };
        let query = JournalQuery {
            since: *journals.found_until.lock(),
            ..JournalQuery::default().before(silent_since)
        };
        let found = unfinished_calls(store, query, usize::MAX).await?;
        *journals.found_until.lock() = Some(silent_since);
        Ok(found)
    }

    /// Returns the context of a run's caller, as far as the run recorded it: the recorded values, the
    /// principal, and the tenant that came with the call. Without a recorded tenant it is the tenant whose
    /// run it is, unless the agent derives its scope from the values.
    fn context_of(&self, lost: &LostRun) -> Context {
        let context = Context::new().with_values(lost.run.context.clone());
        let owner = || self.scope.is_none().then(|| lost.scope.clone());
        let context = match lost.run.principal.clone() {
            Some(principal) => context.with(principal),
            None if lost.run.of_client => context.for_client(),
            None => context,
        };
        match lost.run.tenant.clone().or_else(owner) {
            Some(tenant) => context.with_extension(Arc::new(tenant)),
            None => context,
        }
    }

    /// Takes one run over, if it is still lost; `None` if another worker was faster.
    async fn recover_run(
        self: &Arc<Self>,
        tenant: TenantStore,
        lost: LostRun,
        silent_since: Timestamp,
        attempts: u32,
    ) -> Result<Option<Recovered>> {
        let context = self.context_of(&lost);
        // Checked before the takeover: a run must never continue with the rights of another tenant.
        if self.scope(&context) != lost.scope {
            return Err(Error::failed_precondition(format!(
                "run '{}' of agent '{}' belongs to tenant '{}', and what it recorded of its caller does not say so: \
                 name the values that the agent's scope is made of with `record_context`",
                lost.id,
                self.name,
                lost.scope.as_str()
            )));
        }
        let takeover = Takeover {
            now: self.clock.now(),
            silent_since,
            attempts,
        };
        let Some(snapshot) = takeover.attempt(&tenant, &lost).await? else {
            return Ok(None);
        };
        let report = lost.report(&snapshot)?;
        if snapshot.status.is_final() {
            return Ok(Some(Recovered::GivenUp(report)));
        }
        match TakenRun::open(self, &tenant, snapshot).await? {
            Ok(taken) => {
                self.resume(tenant, taken, context);
                Ok(Some(Recovered::TakenOver(report)))
            }
            Err(hopeless) => {
                // Leaving it pending would make every later poll take it over and fail again.
                hopeless.give_up(&tenant, self.clock.now()).await?;
                Ok(Some(Recovered::GivenUp(report)))
            }
        }
    }

    /// Continues a run that was taken over, like any other invocation.
    fn resume(self: &Arc<Self>, tenant: TenantStore, taken: TakenRun, context: Context) {
        let this = Arc::clone(self);
        let (name, now) = (self.name.clone(), self.clock.now());
        let work = async move {
            let agent = name.as_str();
            let kind = ActionType::AGENT;
            let resumed = in_span(
                &name,
                SpanKind::Action(&kind),
                context,
                |context, recorder| async move {
                    recorder.session_id(taken.opening.session_id.as_str());
                    recorder.snapshot_id(taken.id.as_str());
                    recorder.attribute("everturn.run.attempt", taken.run.attempts);
                    if let Some(origin) = &taken.origin {
                        recorder.link(origin, "takeover");
                    }
                    let (id, lease) = (taken.id.clone(), taken.run.lease);
                    match Driver::take_over(this, taken.id, taken.run, taken.opening, context) {
                        Ok(driver) => driver.run().await,
                        Err(error) => {
                            recorder.mark_failed(&error);
                            let hopeless = HopelessRun { id, lease, error };
                            hopeless.give_up(&tenant, now).await?;
                        }
                    }
                    Ok(())
                },
            );
            if let Err(error) = resumed.await {
                // The lease lapses again, and another worker finds the run.
                let error = error.with_causes();
                tracing::error!(agent, %error, "a run that cannot continue could not be ended as failed");
            }
        };
        self.invocations.spawn(work);
    }
}
