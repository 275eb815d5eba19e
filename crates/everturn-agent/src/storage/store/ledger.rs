//! Ledgers: what tenants, and turns that have no snapshot yet, have used.

use async_trait::async_trait;
use everturn_ai::{Budget, NextCall, UsageTotal};
use everturn_core::{Error, Result};

use super::{JournalKey, Scope};
use crate::{SessionId, SnapshotId};

/// The account of a turn: what its attempts used, until a snapshot holds the turn. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnAccount {
    key: JournalKey,
    base: Option<SnapshotId>,
}

impl TurnAccount {
    /// Names the account of a turn that continues the snapshot `base`. It has the name of the turn's journal,
    /// and a commit that drops the journal drops the account.
    pub fn new(key: JournalKey, base: Option<SnapshotId>) -> Self {
        Self { key, base }
    }

    /// Returns the name of the turn's journal.
    pub fn key(&self) -> &JournalKey {
        &self.key
    }

    /// Returns the snapshot that the turn continues.
    pub fn base(&self) -> Option<&SnapshotId> {
        self.base.as_ref()
    }
}

/// The usage of a turn.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TurnExpenses {
    /// The turn's account.
    pub account: TurnAccount,
    /// The sum of its entries.
    pub used: UsageTotal,
}

impl TurnExpenses {
    /// Creates the content of an account.
    pub fn new(account: TurnAccount, used: UsageTotal) -> Self {
        Self { account, used }
    }
}

/// Something used, to be entered into a ledger.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Expense {
    /// The account of the turn, and what is added to it.
    pub turn: Option<(TurnAccount, UsageTotal)>,
    /// The expense of the session's branch; `None` if sessions are not limited.
    pub session: Option<SessionExpense>,
    /// The expense of the tenant; `None` if the tenant is not counted.
    pub tenant: Option<UsageTotal>,
    /// The condition of the tenant under which the expense is entered.
    pub admission: Option<Admission>,
}

/// An expense of a session's branch.
///
/// All turns that continue the branch share the account, those that are refused when they commit included, so
/// that turns of several processes cannot exceed the session's budget together.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SessionExpense {
    /// The name of the account: [`JournalKey::of_branch`].
    pub key: JournalKey,
    /// The earlier usage of the conversation, from its snapshots and the accounts of its turns. The account
    /// holds at least as much: a session is limited from any point on.
    pub before: UsageTotal,
    /// The usage to add.
    pub used: UsageTotal,
    /// The condition of the session under which the expense is entered.
    pub admission: Option<Admission>,
}

impl SessionExpense {
    /// Creates an expense of a branch that had used `before`.
    pub fn new(key: JournalKey, before: UsageTotal, used: UsageTotal) -> Self {
        Self {
            key,
            before,
            used,
            admission: None,
        }
    }

    /// Enters the expense only if the session's budget allows the call.
    #[must_use]
    pub fn if_admitted(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Returns the account after the expense, where it held this much.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` with [`LIMIT_REACHED`](everturn_ai::reason::LIMIT_REACHED) if the condition does
    /// not hold. The expense is then not entered at all.
    pub fn after(&self, held: UsageTotal) -> Result<UsageTotal> {
        let after = held.at_least(self.before) + self.used;
        Admission::check(self.admission, &after, "session")?;
        Ok(after)
    }
}

/// The condition of an expense: the budget of the tenant or of the session must allow the call that the
/// expense is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    budget: Budget,
    call: NextCall<'static>,
}

impl Admission {
    /// Creates the condition for a call.
    pub fn new(budget: Budget, call: &NextCall<'_>) -> Self {
        Self {
            budget,
            call: call.unnamed(),
        }
    }

    fn check(admission: Option<Self>, after: &UsageTotal, per: &str) -> Result<()> {
        let refusal = admission.and_then(|admission| admission.budget.exceeded(&admission.call, after));
        match refusal {
            Some(exceeded) => Err(exceeded.error(per)),
            None => Ok(()),
        }
    }
}

impl Expense {
    /// Creates an empty expense.
    pub fn new() -> Self {
        Self::default()
    }

    everturn_core::setters! {
        /// Adds this much to the tenant's account.
        #[must_use]
        pub fn of_tenant(mut self, used: UsageTotal) { self.tenant = Some(used) }

        /// Adds this much to the account of a turn.
        #[must_use]
        pub fn of_turn(mut self, account: TurnAccount, used: UsageTotal) { self.turn = Some((account, used)) }

        /// Adds this much to the account of a session's branch.
        #[must_use]
        pub fn of_session(mut self, expense: SessionExpense) { self.session = Some(expense) }
    }

    /// Returns whether the expense changes no account.
    pub fn is_empty(&self) -> bool {
        self.turn.is_none() && self.session.is_none() && self.tenant.is_none()
    }

    /// Enters the expense only if the tenant's budget allows the call.
    #[must_use]
    pub fn if_admitted(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Returns the tenant's account after the expense, where it was `before`; `None` if the expense does not
    /// change it.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` with [`LIMIT_REACHED`](everturn_ai::reason::LIMIT_REACHED) if the condition does
    /// not hold. The expense is then not entered at all.
    pub fn tenant_after(&self, before: UsageTotal) -> Result<Option<UsageTotal>> {
        let Some(used) = self.tenant else {
            return Ok(None);
        };
        let after = before + used;
        Admission::check(self.admission, &after, "tenant")?;
        Ok(Some(after))
    }
}

/// Reads an account as a store keeps it.
///
/// # Errors
/// `DATA_LOSS` if it is no account.
pub fn read_account(json: &str) -> Result<UsageTotal> {
    serde_json::from_str(json)
        .map_err(|error| Error::data_loss(format!("an account of what was used cannot be read: {error}")))
}

/// Writes an account as a store keeps it.
///
/// # Errors
/// `INTERNAL` if it cannot be written.
pub fn write_account(used: &UsageTotal) -> Result<String> {
    Ok(serde_json::to_string(used)?)
}

/// Keeps what tenants have used, what limited sessions have used, and what turns have used that no snapshot
/// holds yet.
///
/// # What it guarantees
///
/// - **Nothing is lost.** An expense is added to what is there, in one step with the check of its conditions.
///   Of any number of expenses at once, in any process, all count.
/// - **All or nothing.** The accounts of the tenant, of the session's branch and of the turn change together.
/// - **Durable when `spend` returns**, at the store's level of durability; every later read in any process
///   sees it.
/// - **A turn's account is dropped with its journal** by
///   [`SessionStore::commit`](super::SessionStore::commit), because the snapshot has its sum: in the same
///   step if the store can, else right after, for instance with [`close_accounts`]. Dropping or sweeping a
///   journal alone keeps the account: what was used stays used.
/// - **Tenants are apart.** A session's accounts are deleted with the session, and the tenant's own with the
///   tenant.
#[async_trait]
pub trait UsageLedger: Send + Sync {
    /// Enters an expense and returns the tenant's account after it; zero if the expense is of a turn alone.
    ///
    /// # Errors
    /// As [`Expense::tenant_after`] and [`SessionExpense::after`]; the store's own errors.
    async fn spend(&self, scope: &Scope, expense: &Expense) -> Result<UsageTotal>;

    /// Returns the accounts of a session's turns and branches, in any order.
    async fn of_session(&self, scope: &Scope, session: &SessionId) -> Result<Vec<TurnExpenses>>;

    /// Drops the account of a turn that a snapshot holds. A missing account is not an error.
    async fn close(&self, scope: &Scope, key: &JournalKey) -> Result<()>;

    /// Returns the tenant's account.
    async fn of_tenant(&self, scope: &Scope) -> Result<UsageTotal>;
}

/// Drops the accounts of turns that a snapshot holds, for a store that cannot do so in the step that writes
/// the snapshot.
///
/// An account that cannot be dropped is not a failure of the commit: a branch at the snapshot that the turn
/// continued counts it.
pub async fn close_accounts(ledger: &dyn UsageLedger, scope: &Scope, keys: &[JournalKey]) {
    for key in keys {
        if let Err(error) = ledger.close(scope, key).await {
            tracing::warn!(%error, "the account of a turn that has ended was not dropped");
        }
    }
}
