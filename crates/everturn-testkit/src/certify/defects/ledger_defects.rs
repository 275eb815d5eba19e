//! A ledger with defects.

use async_trait::async_trait;
use everturn_agent::SessionId;
use everturn_agent::store::{Expense, JournalKey, Scope, TurnExpenses, UsageLedger, UsageTotal};
use everturn_core::Result;

use super::{Defect, DefectiveStore};

#[async_trait]
impl UsageLedger for DefectiveStore {
    async fn spend(&self, scope: &Scope, expense: &Expense) -> Result<UsageTotal> {
        let scope = self.scope(scope);
        let mut expense = expense.clone();
        match self.defect {
            // Before its lock, so that others spend between the check and the entry.
            Defect::BudgetCheckedEarly => {
                expense.tenant_after(self.store.of_tenant(&scope).await?)?;
                Self::dawdle().await;
                expense.admission = None;
            }
            // Each turn compares with the usage in its own snapshot.
            Defect::SessionBudgetCheckedEarly => {
                if let Some(session) = &mut expense.session {
                    session.after(UsageTotal::default())?;
                    session.admission = None;
                }
            }
            // The account contains the value that one writer read, although another has changed it since.
            Defect::LostExpense => {
                let before = self.store.of_tenant(&scope).await?;
                Self::dawdle().await;
                let now = self.store.of_tenant(&scope).await?;
                if now != before {
                    expense.tenant = None;
                }
            }
            _ => {}
        }
        self.store.spend(&scope, &expense).await
    }

    async fn of_session(&self, scope: &Scope, session: &SessionId) -> Result<Vec<TurnExpenses>> {
        self.store.of_session(&self.scope(scope), session).await
    }

    async fn close(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        match self.defect {
            Defect::LeftoverAccount => Ok(()),
            _ => self.store.close(&self.scope(scope), key).await,
        }
    }

    async fn of_tenant(&self, scope: &Scope) -> Result<UsageTotal> {
        self.store.of_tenant(&self.scope(scope)).await
    }
}
