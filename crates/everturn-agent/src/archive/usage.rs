//! The usage of a tenant and its sessions.

use everturn_ai::UsageTotal;
use everturn_core::Result;
use everturn_macros::wire;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Archive, named_session};
use crate::policy::visibility::nothing_in;
use crate::store::{Detail, Expense, JournalKey, SessionExpense, TurnExpenses, UsageLedger};
use crate::{SessionId, Snapshot};

/// A request for what was used.
#[wire(deny_unknown_fields, default)]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct UsageRequest {
    /// The session to report in addition to the tenant.
    pub session_id: Option<SessionId>,
}

/// The usage.
#[wire(default)]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct UsageReport {
    /// The tenant's usage in agents that count tenants; `None` if the store keeps no ledger.
    pub tenant: Option<UsageTotal>,
    /// The session's usage, if a session was requested.
    pub session: Option<UsageTotal>,
}

impl Archive {
    /// Returns what the tenant has used, and a session if one is named.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session does not exist; the store's own errors.
    pub async fn usage(&self, request: &UsageRequest) -> Result<UsageReport> {
        let session = match &request.session_id {
            Some(session) => Some(self.session_usage(session.clone()).await?),
            None => None,
        };
        Ok(UsageReport {
            tenant: self.tenant_usage().await?,
            session,
        })
    }

    /// Returns what the tenant has used in all sessions with agents that [count
    /// tenants](crate::Limits::per_tenant), those deleted since included; `None` if the store keeps no
    /// ledger.
    ///
    /// # Errors
    /// The store's own errors.
    pub async fn tenant_usage(&self) -> Result<Option<UsageTotal>> {
        match self.tenant.store().ledger() {
            Some(ledger) => ledger.of_tenant(self.scope()).await.map(Some),
            None => Ok(None),
        }
    }

    /// Enters what the tenant has used, and its unfinished turns and limited sessions, into the ledger of
    /// another store, where the sessions were copied. Amounts that are there already are not added again.
    ///
    /// # Errors
    /// The errors of both stores.
    pub async fn copy_usage(&self, to: &Self, sessions: &[SessionId]) -> Result<()> {
        let (Some(from), Some(ledger)) = (self.tenant.store().ledger(), to.tenant.store().ledger()) else {
            return Ok(());
        };
        let of_tenant = from.of_tenant(self.scope()).await?;
        to.enter_tenant_usage(ledger, of_tenant).await?;
        for session in sessions {
            let there = ledger.of_session(to.scope(), session).await?;
            for TurnExpenses { account, used } in from.of_session(self.scope(), session).await? {
                let known = there.iter().find(|found| found.account.key() == account.key());
                let used = missing(used, known.map(|known| known.used).unwrap_or_default());
                if used.is_zero() {
                    continue;
                }
                let expense = if account.key().is_branch() {
                    let key = account.key().clone();
                    Expense::new().of_session(SessionExpense::new(key, UsageTotal::default(), used))
                } else {
                    Expense::new().of_turn(account, used)
                };
                ledger.spend(to.scope(), &expense).await?;
            }
        }
        Ok(())
    }

    /// Enters what the tenant, and a session that was copied from there, have used on a server. Amounts that
    /// are there already are not added again.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session does not exist; the store's own errors.
    pub async fn enter_usage(&self, session: &SessionId, report: &UsageReport) -> Result<()> {
        let Some(ledger) = self.tenant.store().ledger() else {
            return Ok(());
        };
        self.enter_tenant_usage(ledger, report.tenant.unwrap_or_default())
            .await?;
        let used = report.session.unwrap_or_default();
        if missing(used, self.session_usage(session.clone()).await?).is_zero() {
            return Ok(());
        }
        let tip = self
            .tenant
            .store()
            .latest(self.scope(), session, Detail::Metadata);
        let tip = tip.await?;
        let branch = JournalKey::of_branch(session.clone(), tip.as_ref().and_then(Snapshot::counted_with));
        let expense = SessionExpense::new(branch, used, UsageTotal::default());
        ledger
            .spend(self.scope(), &Expense::new().of_session(expense))
            .await?;
        Ok(())
    }

    async fn enter_tenant_usage(&self, ledger: &dyn UsageLedger, used: UsageTotal) -> Result<()> {
        let used = missing(used, ledger.of_tenant(self.scope()).await?);
        if !used.is_zero() {
            let expense = Expense::new().of_tenant(used);
            ledger.spend(self.scope(), &expense).await?;
        }
        Ok(())
    }

    /// Returns what a session has used up to its tip, with the turns after it that failed or are in progress
    /// if the agent has [limits](crate::Limits). If it [limits sessions](crate::Limits::per_session), turns
    /// that were refused when they committed count too.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session does not exist; the store's own errors.
    pub async fn session_usage(&self, session: impl Into<SessionId>) -> Result<UsageTotal> {
        let session = named_session(session)?;
        let store = self.tenant.store();
        let tip = store.latest(self.scope(), &session, Detail::Metadata).await?;
        let open = match store.ledger() {
            Some(ledger) => ledger.of_session(self.scope(), &session).await?,
            None => Vec::new(),
        };
        if tip.is_none() && open.is_empty() {
            return Err(nothing_in(&session));
        }
        let mut used = tip.as_ref().and_then(Snapshot::usage).unwrap_or_default();
        let at_tip = tip.as_ref().map(|tip| &tip.snapshot_id);
        let (branches, turns): (Vec<_>, Vec<_>) =
            open.iter().partition(|account| account.account.key().is_branch());
        for turn in turns.iter().filter(|turn| turn.account.base() == at_tip) {
            used += turn.used;
        }
        let branch = JournalKey::of_branch(session, tip.as_ref().and_then(Snapshot::counted_with));
        let counted = branches.iter().find(|account| account.account.key() == &branch);
        Ok(counted.map_or(used, |counted| used.at_least(counted.used)))
    }
}

/// Returns what was used here and is not counted there.
fn missing(here: UsageTotal, there: UsageTotal) -> UsageTotal {
    here.at_least(there) - there
}
