//! Nothing orphaned: background runs whose worker was lost are found, and go on here.
//!
//! A worker looks for rows that are pending and have been silent for longer than their agent's lease. It claims one by
//! putting its own lease in the place of the old one, in one atomic step that fails for all but one of those who try; then
//! it starts the agent's function on the last state that was committed, with the inputs that are left, and without a
//! client. A run that was begun too often is marked as failed instead.

mod claim;
mod every;
mod registered;

use std::sync::Arc;

use everturn_core::{ActionType, Context, Error, Result, SpanKind, in_span};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};

pub(crate) use self::claim::ClaimedRun;
use self::claim::{Claim, HopelessRun, LostRun};
pub use self::every::{RecoveryLoop, recover_every};
pub use self::registered::recover_all;
pub(crate) use self::registered::register;
use crate::invocation::{Definition, Driver};
use crate::store::{PendingQuery, Scope, SessionStore};
use crate::{CustomState, SessionId, SnapshotId, WorkerLoss};

/// How many runs are claimed at the same time.
const AT_ONCE: usize = 16;

/// What one look for lost runs came to.
#[derive(Debug, Default)]
#[must_use = "failures are reported here and nowhere else"]
#[non_exhaustive]
pub struct Recovery {
    /// The runs that go on in this process now.
    pub taken_over: Vec<RecoveredRun>,
    /// The runs that were begun too often, or cannot go on; they have failed now.
    pub given_up: Vec<RecoveredRun>,
    /// What went wrong on the way. The runs concerned are as they were and are found again.
    pub failures: Vec<Error>,
}

impl Recovery {
    /// Adds what another look came to.
    pub fn merge(&mut self, other: Self) {
        self.taken_over.extend(other.taken_over);
        self.given_up.extend(other.given_up);
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

/// A background run that its worker lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveredRun {
    /// Whose run it is.
    pub agent: String,
    /// Which tenant's.
    pub scope: Scope,
    /// In which conversation.
    pub session_id: SessionId,
    /// The run's row.
    pub snapshot_id: SnapshotId,
    /// How many workers have begun what is left of it, this one included.
    pub attempt: u32,
}

enum Recovered {
    TakenOver(RecoveredRun),
    GivenUp(RecoveredRun),
}

impl<S: CustomState> Definition<S> {
    /// Looks once for runs of this agent that were lost, and takes them over.
    pub(crate) async fn recover(self: &Arc<Self>) -> Recovery {
        let mut recovery = Recovery::default();
        let (Some(store), WorkerLoss::TakeOver { attempts }) = (&self.store, self.worker_loss) else {
            return recovery;
        };
        let expiry = SignedDuration::try_from(self.heartbeat.expiry).unwrap_or(SignedDuration::MAX);
        let Ok(moment) = self.clock.now().checked_sub(expiry) else {
            return recovery;
        };
        let mut query = PendingQuery::silent_since(moment);
        loop {
            let page = match store.pending(&query).await {
                Ok(Some(page)) => page,
                Ok(None) => return recovery,
                Err(error) => {
                    recovery
                        .failures
                        .push(error.context("lost runs could not be looked for"));
                    return recovery;
                }
            };
            let lost = page
                .items
                .into_iter()
                .filter_map(|run| LostRun::of(run, &self.name))
                .filter(|run| !self.runs.contains(&run.scope, &run.id));
            let mut recovered = futures::stream::iter(lost)
                .map(|run| self.recover_run(store, run, moment, attempts))
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

    /// What is left of a run's caller: what the run recorded, and which tenant came with the call, as an extension that
    /// no value holds. Where none is recorded that is the tenant whose run it is, unless the agent works that out by itself.
    fn context_of(&self, run: &LostRun) -> Context {
        let context = Context::new().with_values(run.record.context.clone());
        let owner = || self.scope.is_none().then(|| run.scope.clone());
        match run.record.tenant.clone().or_else(owner) {
            Some(tenant) => context.with_extension(Arc::new(tenant)),
            None => context,
        }
    }

    /// Takes one run over, if it is still lost; `None` if another worker was faster.
    async fn recover_run(
        self: &Arc<Self>,
        store: &Arc<dyn SessionStore>,
        run: LostRun,
        silent_since: Timestamp,
        attempts: u32,
    ) -> Result<Option<Recovered>> {
        let context = self.context_of(&run);
        if self.scope(&context) != run.scope {
            return Err(Error::failed_precondition(format!(
                "run '{}' of agent '{}' belongs to tenant '{}', and what it recorded of its caller does not say so: \
                 name the values that the agent's scope is made of with `record_context`",
                run.id,
                self.name,
                run.scope.as_str()
            )));
        }
        let claim = Claim {
            now: self.clock.now(),
            silent_since,
            attempts,
        };
        let Some(row) = claim.make(store.as_ref(), &run).await? else {
            return Ok(None);
        };
        let summary = run.summary(&row);
        if row.status.is_final() {
            return Ok(Some(Recovered::GivenUp(summary)));
        }
        match ClaimedRun::open(self, store, row, &run.scope).await? {
            Ok(claimed) => {
                self.resume(Arc::clone(store), claimed, context);
                Ok(Some(Recovered::TakenOver(summary)))
            }
            Err(hopeless) => {
                hopeless.give_up(store.as_ref(), self.clock.now()).await?;
                Ok(Some(Recovered::GivenUp(summary)))
            }
        }
    }

    /// Runs a claimed run to its end, like any other invocation.
    fn resume(self: &Arc<Self>, store: Arc<dyn SessionStore>, run: ClaimedRun, context: Context) {
        let this = Arc::clone(self);
        let (name, now) = (self.name.clone(), self.clock.now());
        let work = async move {
            let kind = ActionType::AGENT;
            let resumed = in_span(
                &name,
                SpanKind::Action(&kind),
                context,
                |context, recorder| async move {
                    recorder.session_id(run.opening.session_id.as_str());
                    recorder.snapshot_id(run.id.as_str());
                    let (id, scope, lease) = (run.id.clone(), run.scope.clone(), run.record.lease);
                    match Driver::take_over(this, run.id, run.record, run.opening, context) {
                        Ok(driver) => driver.run().await,
                        Err(error) => {
                            let hopeless = HopelessRun {
                                scope,
                                id,
                                lease,
                                error,
                            };
                            hopeless.give_up(store.as_ref(), now).await?;
                        }
                    }
                    Ok(())
                },
            );
            if let Err(error) = resumed.await {
                tracing::error!(%error, "a run that cannot go on could not be marked as failed");
            }
        };
        self.invocations.spawn(work);
    }
}
