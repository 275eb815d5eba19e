//! The usage of tenants and unfinished turns.

use async_trait::async_trait;
use everturn_agent::SessionId;
use everturn_agent::store::{
    Expense, JournalKey, Scope, TurnAccount, TurnExpenses, UsageLedger, UsageTotal, read_account,
    write_account,
};
use everturn_core::Result;

use crate::SqliteStore;
use crate::fault::Outcome;
use crate::read::Reading;
use crate::row::check_id;
use crate::statement::Statements;
use crate::write::Writing;

/// Selects the usage of a turn. The tenant's own has the empty names of a session and a turn.
pub(crate) const USED: &str = "SELECT used FROM ledger WHERE scope = ?1 AND session = ?2 AND turn = ?3";

pub(crate) const OF_SESSION: &str = "SELECT turn, base, used FROM ledger WHERE scope = ?1 AND session = ?2";

const ENTER: &str = "INSERT INTO ledger (scope, session, turn, base, used) VALUES (?1, ?2, ?3, ?4, ?5) \
    ON CONFLICT DO UPDATE SET used = excluded.used";

const CLOSE: &str = "DELETE FROM ledger WHERE scope = ?1 AND session = ?2 AND turn = ?3";

const CLOSE_SESSION: &str = "DELETE FROM ledger WHERE scope = ?1 AND session = ?2";

const CLOSE_TENANT: &str = "DELETE FROM ledger WHERE scope = ?1";

#[async_trait]
impl UsageLedger for SqliteStore {
    async fn spend(&self, scope: &Scope, expense: &Expense) -> Result<UsageTotal> {
        let (scope, expense) = (scope.clone(), expense.clone());
        self.writer()
            .write(move |writing| writing.spend(&scope, &expense))
            .await
    }

    async fn of_session(&self, scope: &Scope, session: &SessionId) -> Result<Vec<TurnExpenses>> {
        let (scope, session) = (scope.clone(), session.clone());
        SqliteStore::read(self, move |reading| reading.turn_expenses(&scope, &session)).await
    }

    async fn close(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        let (scope, key) = (scope.clone(), key.clone());
        self.writer()
            .write(move |writing| writing.close_turn(&scope, &key))
            .await
    }

    async fn of_tenant(&self, scope: &Scope) -> Result<UsageTotal> {
        let scope = scope.clone();
        SqliteStore::read(self, move |reading| reading.used(&scope, "", "")).await
    }
}

impl Reading<'_> {
    fn used(&self, scope: &Scope, session: &str, turn: &str) -> Outcome<UsageTotal> {
        let used: Option<String> = self
            .db
            .find(USED, (scope.as_str(), session, turn), |row| row.get(0))?;
        Ok(used
            .map(|used| read_account(&used))
            .transpose()?
            .unwrap_or_default())
    }

    fn turn_expenses(&self, scope: &Scope, session: &SessionId) -> Outcome<Vec<TurnExpenses>> {
        let mut statement = self.db.prepare_cached(OF_SESSION)?;
        let mut rows = statement.query((scope.as_str(), session.as_str()))?;
        let mut expenses = Vec::new();
        while let Some(row) = rows.next()? {
            let (turn, base, used): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let key = JournalKey::new(session.clone(), turn);
            let base = (!base.is_empty()).then(|| base.into());
            expenses.push(TurnExpenses::new(
                TurnAccount::new(key, base),
                read_account(&used)?,
            ));
        }
        Ok(expenses)
    }
}

impl Writing<'_> {
    fn spend(&self, scope: &Scope, expense: &Expense) -> Outcome<UsageTotal> {
        check_id("scope", scope.as_str())?;
        // Read and written in one transaction, so no expense comes between.
        let before = self.reading.used(scope, "", "")?;
        let after = expense.tenant_after(before)?;
        if let Some(session) = &expense.session {
            let (id, name) = (session.key.session().as_str(), session.key.turn());
            check_id("session id", id)?;
            check_id("branch", name)?;
            let held = self.reading.used(scope, id, name)?;
            self.enter(scope, (id, name, ""), &session.after(held)?)?;
        }
        if let Some(after) = &after {
            self.enter(scope, ("", "", ""), after)?;
        }
        if let Some((of_turn, used)) = &expense.turn {
            let (session, turn) = (of_turn.key().session().as_str(), of_turn.key().turn());
            check_id("session id", session)?;
            check_id("turn", turn)?;
            let used = self.reading.used(scope, session, turn)? + *used;
            let base = of_turn.base().map_or("", |base| base.as_str());
            self.enter(scope, (session, turn, base), &used)?;
        }
        Ok(after.unwrap_or(before))
    }

    fn enter(
        &self,
        scope: &Scope,
        (session, turn, base): (&str, &str, &str),
        used: &UsageTotal,
    ) -> Outcome<()> {
        let row = (scope.as_str(), session, turn, base, write_account(used)?);
        self.reading.db.run(ENTER, row)?;
        Ok(())
    }

    /// Drops the usage of a turn that a snapshot holds.
    pub(crate) fn close_turn(&self, scope: &Scope, key: &JournalKey) -> Outcome<()> {
        let place = (scope.as_str(), key.session().as_str(), key.turn());
        self.reading.db.run(CLOSE, place)?;
        Ok(())
    }

    pub(crate) fn close_session(&self, scope: &Scope, session: &SessionId) -> Outcome<()> {
        let place = (scope.as_str(), session.as_str());
        self.reading.db.run(CLOSE_SESSION, place)?;
        Ok(())
    }

    pub(crate) fn close_tenant(&self, scope: &Scope) -> Outcome<()> {
        self.reading.db.run(CLOSE_TENANT, [scope.as_str()])?;
        Ok(())
    }
}
