//! The usage of an invocation's turns, and its limits.
//!
//! Everything that a turn uses is entered into the store's ledger while the turn runs, if the agent has
//! limits: a call before it is made, its tokens and its cost when it has ended. So a turn that dies, fails or
//! is refused still counts.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use everturn_ai::{Budget, BudgetGuard, MeterReading, NextCall, UsageMeter, UsageTotal, async_trait, reason};
use everturn_core::{Context, Error, Result};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::storage::stored_session::TenantStore;
use crate::store::{Admission, Expense, JournalKey, SessionExpense, TurnAccount, UsageLedger};
use crate::{Limits, SnapshotId};

/// The meter of an invocation, its limits, and where the meter stood at moments that count.
pub(super) struct UsageTracker {
    meter: Arc<UsageMeter>,
    limits: Limits,
    /// The tenant's part of the agent's store, if the agent has one.
    tenant: Option<TenantStore>,
    marks: Mutex<Marks>,
    /// The readings that the ledger has. Held while an expense is written: expenses are differences of
    /// readings.
    entered: AsyncMutex<Entered>,
}

/// The usage before an invocation began.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct UsedBefore {
    /// The usage of the conversation up to the snapshot that the invocation continues.
    pub(crate) session: UsageTotal,
    /// The usage of earlier workers of the invocation, which is part of the above.
    pub(crate) invocation: UsageTotal,
    /// The usage of earlier attempts at the replayed turn, which is part of the above.
    pub(crate) turn: UsageTotal,
    /// Whether the invocation continues a run.
    pub(crate) is_takeover: bool,
}

#[derive(Default)]
struct Marks {
    /// The reading at the end of the last turn.
    at_turn_end: UsageTotal,
    /// The reading at the beginning of the turn in progress.
    at_turn_begin: UsageTotal,
    /// The usage of earlier attempts at the turn in progress.
    turn_before: UsageTotal,
    /// The usage of the conversation at the snapshot that the invocation continued, and the reading then.
    session_before: (UsageTotal, UsageTotal),
    /// The usage of other turns that continued the same snapshot without committing.
    carried: UsageTotal,
    invocation_before: UsageTotal,
    /// Whether the invocation continues a run, whose usage has the carried part.
    is_takeover: bool,
    account: Option<TurnAccount>,
    /// The first snapshot of the branch that the turn in progress is counted with.
    counted_with: Option<SnapshotId>,
    /// When the turn in progress began.
    turn_began: Option<Instant>,
    /// The time that turns took which are over.
    turn_time: Duration,
}

#[derive(Default)]
struct Entered {
    own: UsageTotal,
    total: UsageTotal,
    /// The expenses that this invocation has entered for turns that continue the same snapshot.
    turns: HashMap<JournalKey, UsageTotal>,
    base: Option<SnapshotId>,
}

impl Marks {
    /// Completes the count of models and tools by the time of turns.
    fn reading(&self, counted: UsageTotal) -> UsageTotal {
        // A turn without usage is not reported, so its time is not either.
        if counted.is_zero() {
            return counted;
        }
        let under_way = self.turn_began.map(|began| began.elapsed()).unwrap_or_default();
        let mut reading = counted;
        reading.turn_time = self.turn_time + under_way;
        reading
    }

    fn of_session(&self, reading: UsageTotal) -> UsageTotal {
        let (before, since) = self.session_before;
        before + self.carried + (reading - since)
    }
}

impl UsageTracker {
    /// Begins an invocation that is made in this context.
    pub(super) fn begin(
        caller: &Context,
        limits: Limits,
        before: &UsedBefore,
        tenant: Option<TenantStore>,
    ) -> Arc<Self> {
        let meter = UsageMeter::within(caller);
        let has_ledger = tenant
            .as_ref()
            .is_some_and(|tenant| tenant.store().ledger().is_some());
        // The account of a turn that runs again has what it used; otherwise only the run's snapshot has.
        let in_account = if has_ledger && limits.any() {
            before.turn
        } else {
            UsageTotal::default()
        };
        let tracker = Arc::new(Self {
            meter: Arc::clone(&meter),
            limits,
            tenant,
            marks: Mutex::new(Marks {
                session_before: (before.session - in_account, UsageTotal::default()),
                invocation_before: before.invocation - in_account,
                is_takeover: before.is_takeover,
                ..Marks::default()
            }),
            entered: AsyncMutex::default(),
        });
        if tracker.limits.any() {
            // Weak, because the guard is part of the meter, which is part of this.
            meter.set_budget_guard(Arc::new(TrackerGuard(Arc::downgrade(&tracker))));
        }
        tracker
    }

    /// Makes the invocation's calls of models and tools count here.
    pub(super) fn enter(&self, context: Context) -> Context {
        context.with_extension(Arc::clone(&self.meter))
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock()
    }

    fn reading(&self, marks: &Marks) -> UsageTotal {
        marks.reading(self.meter.reading().total())
    }

    /// Returns what the invocation's own models and tools used, without those of agents that it called.
    pub(super) fn own(&self) -> UsageTotal {
        self.meter.reading().own
    }

    /// Continues from the snapshot of another invocation, up to which the conversation had used this much.
    pub(super) fn moved_to(&self, before: Option<UsageTotal>) {
        let mut marks = self.marks();
        let since = self.reading(&marks);
        marks.session_before = (before.unwrap_or_default(), since);
        marks.carried = UsageTotal::default();
        marks.is_takeover = false;
    }

    /// Notes that a turn begins, which has this account and is counted with the branch that begins with this
    /// snapshot.
    pub(super) fn begin_turn(&self, account: Option<TurnAccount>, counted_with: Option<SnapshotId>) {
        let mut marks = self.marks();
        marks.at_turn_begin = self.reading(&marks);
        marks.turn_before = UsageTotal::default();
        marks.account = account;
        marks.counted_with = counted_with;
        marks.turn_began = Some(Instant::now());
    }

    /// Reads what earlier attempts at the turn used, and other turns that continued the same snapshot without
    /// committing.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn take_up_turn(&self) -> Result<()> {
        let Some((tenant, ledger)) = self.ledger().filter(|_| self.limits.any()) else {
            return Ok(());
        };
        let Some(account) = self.marks().account.clone() else {
            return Ok(());
        };
        let mut entered = self.entered.lock().await;
        let key = account.key();
        let accounts = ledger.of_session(tenant.scope(), key.session()).await?;
        let moved_on = entered.base.as_ref() != account.base();
        if moved_on {
            entered.base = account.base().cloned();
            entered.turns.clear();
        }
        let mut marks = self.marks();
        if moved_on {
            // The snapshot that the turn continues holds what was carried before it.
            let carried = marks.carried;
            marks.session_before.0 += carried;
        }
        marks.carried = UsageTotal::default();
        for found in accounts.iter().filter(|found| !found.account.key().is_branch()) {
            let is_own = found.account.key() == key;
            let by_this = entered
                .turns
                .get(found.account.key())
                .copied()
                .unwrap_or_default();
            let by_others = found.used - by_this;
            if is_own {
                marks.turn_before = found.used;
            }
            if is_own && marks.is_takeover {
                // The earlier worker's part of the turn is part of the invocation, too.
                marks.invocation_before += by_others;
            }
            let counts = found.account.base() == account.base() && (is_own || !marks.is_takeover);
            if counts {
                marks.carried += by_others;
            }
        }
        marks.is_takeover = false;
        Ok(())
    }

    /// Returns the account of the turn in progress, if anything is entered there, for the snapshot that holds
    /// the turn.
    pub(super) fn account(&self) -> Option<JournalKey> {
        let marks = self.marks();
        let has_used = self.meter.reading().total() != UsageTotal::default();
        marks
            .account
            .as_ref()
            .filter(|_| has_used || !marks.turn_before.is_zero())
            .map(|account| account.key().clone())
    }

    /// Stops the clock of the turn in progress.
    pub(super) fn turn_is_over(&self) {
        let mut marks = self.marks();
        if let Some(began) = marks.turn_began.take() {
            marks.turn_time += began.elapsed();
        }
    }

    /// Returns what the invocation has used; `None` if it asked no model and ran no tool.
    pub(super) fn of_invocation(&self) -> Option<UsageTotal> {
        Some(self.reading(&self.marks())).filter(|total| !total.is_zero())
    }

    /// Returns what the conversation has used, this invocation included.
    pub(super) fn of_session(&self) -> UsageTotal {
        let marks = self.marks();
        marks.of_session(self.reading(&marks))
    }

    /// Returns what the conversation had used when the invocation began, earlier workers of the invocation
    /// apart.
    pub(super) fn before_invocation(&self) -> UsageTotal {
        let marks = self.marks();
        let reading = self.reading(&marks);
        marks.of_session(reading) - (reading + marks.invocation_before)
    }

    /// Returns what the turn in progress has used in this process.
    pub(super) fn of_turn(&self) -> UsageTotal {
        let marks = self.marks();
        self.reading(&marks) - marks.at_turn_begin
    }

    /// Returns what was used since the turn before ended; `None` if nothing was.
    pub(super) fn end_turn(&self) -> Option<UsageTotal> {
        let mut marks = self.marks();
        let reading = self.reading(&marks);
        let turn = reading - std::mem::replace(&mut marks.at_turn_end, reading);
        Some(turn).filter(|turn| !turn.is_zero())
    }

    /// Returns the first snapshot of the branch that the turn in progress is counted with.
    pub(super) fn counted_with(&self) -> Option<SnapshotId> {
        self.marks().counted_with.clone()
    }

    /// Returns whether what sessions use is limited, and entered into a ledger.
    pub(super) fn limits_sessions(&self) -> bool {
        !self.limits.session.is_unlimited() && self.ledger().is_some()
    }

    /// Returns whether what turns use is entered into a ledger.
    pub(super) fn is_entered(&self) -> bool {
        self.limits.any() && self.ledger().is_some()
    }

    fn ledger(&self) -> Option<(&TenantStore, &dyn UsageLedger)> {
        let tenant = self.tenant.as_ref()?;
        Some((tenant, tenant.store().ledger()?))
    }

    /// Returns the budgets that are counted here, each with its name and what counts towards it at this
    /// reading.
    fn levels(&self, counted: UsageTotal) -> [(&'static str, Budget, UsageTotal); 3] {
        let marks = self.marks();
        let reading = marks.reading(counted);
        let invocation = marks.invocation_before + reading;
        [
            (
                "turn",
                self.limits.turn,
                marks.turn_before + (reading - marks.at_turn_begin),
            ),
            ("invocation", self.limits.invocation, invocation),
            ("session", self.limits.session, marks.of_session(reading)),
        ]
    }

    fn check(&self, call: &NextCall<'_>, used: &MeterReading) -> Result<()> {
        let levels = self.levels(used.total());
        let mut budgets = levels
            .iter()
            .map(|(_, budget, _)| budget)
            .chain(&self.limits.tenant);
        if let NextCall::Model {
            name,
            is_priced: false,
            ..
        } = call
            && budgets.any(Budget::limits_money)
        {
            return Err(no_price(name));
        }
        for (per, budget, used) in levels {
            if let Some(exceeded) = budget.exceeded(call, &used) {
                return Err(exceeded.error(per));
            }
        }
        Ok(())
    }

    /// Enters everything that was used since the last expense; for a call, only if the budgets of the session
    /// and of the tenant allow it.
    async fn spend(&self, call: Option<&NextCall<'_>>, used: &MeterReading) -> Result<()> {
        let Some((tenant, ledger)) = self.ledger() else {
            // Of an agent that another one calls, the other counts the tenant.
            return match self.limits.tenant {
                Some(_) if !self.meter.counts_tenant() => Err(no_ledger()),
                _ => Ok(()),
            };
        };
        let mut entered = self.entered.lock().await;
        let (own, total, of_session, account, counted_with) = {
            let marks = self.marks();
            let total = marks.reading(used.total());
            (
                marks.reading(used.of_tenant),
                total,
                marks.of_session(total),
                marks.account.clone(),
                marks.counted_with.clone(),
            )
        };
        let (of_tenant, of_turn) = (own - entered.own, total - entered.total);
        let mut expense = Expense::new();
        if let Some(budget) = self.limits.tenant {
            expense = expense.of_tenant(of_tenant);
            if let Some(call) = call {
                expense = expense.if_admitted(Admission::new(budget, call));
            }
        }
        if let Some(account) = account.clone() {
            if self.limits_sessions() {
                let key = JournalKey::of_branch(account.key().session().clone(), counted_with.as_ref());
                let mut session = SessionExpense::new(key, of_session - of_turn, of_turn);
                if let Some(call) = call {
                    session = session.if_admitted(Admission::new(self.limits.session, call));
                }
                expense = expense.of_session(session);
            }
            expense = expense.of_turn(account, of_turn);
        }
        if expense.is_empty() {
            return Ok(());
        }
        ledger.spend(tenant.scope(), &expense).await?;
        // Differences, never the readings: of calls at the same time, one may enter the other's count before
        // it.
        entered.own += of_tenant;
        entered.total += of_turn;
        if let Some(account) = account {
            *entered.turns.entry(account.key().clone()).or_default() += of_turn;
        }
        Ok(())
    }
}

/// Refuses the calls that the limits of an invocation forbid.
struct TrackerGuard(Weak<UsageTracker>);

#[async_trait]
impl BudgetGuard for TrackerGuard {
    async fn admit(&self, call: &NextCall<'_>, used: MeterReading) -> Result<()> {
        // Work that outlives its invocation is not counted.
        let Some(tracker) = self.0.upgrade() else {
            return Ok(());
        };
        tracker.check(call, &used)?;
        let entered = tracker.spend(Some(call), &used).await;
        entered.map_err(|error| {
            if error.is(reason::LIMIT_REACHED) {
                error
            } else {
                error.context("what the call uses could not be recorded, so it was not made")
            }
        })
    }

    fn counts_tenant(&self) -> bool {
        let tracker = self.0.upgrade();
        tracker.is_some_and(|tracker| tracker.limits.tenant.is_some() && tracker.ledger().is_some())
    }

    async fn record(&self, used: MeterReading) {
        if let Some(tracker) = self.0.upgrade()
            && let Err(error) = tracker.spend(None, &used).await
        {
            // It is entered with the next expense of the invocation.
            tracing::warn!(%error, "what a call used could not be recorded yet");
        }
    }
}

fn no_price(model: &str) -> Error {
    Error::failed_precondition(format!(
        "model '{model}' has no price, and money is limited: add its price to the application's prices \
         (`Price::free()` if it costs nothing)"
    ))
}

fn no_ledger() -> Error {
    Error::failed_precondition(
        "what a tenant uses is counted in the store, and the agent has no store that can: give it one, or leave out \
         `Limits::per_tenant`",
    )
}
