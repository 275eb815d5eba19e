//! The usage of tenants and unfinished turns.

use async_trait::async_trait;
use everturn_agent::SessionId;
use everturn_agent::store::{
    Expense, JournalKey, Scope, TurnAccount, TurnExpenses, UsageLedger, UsageTotal, read_account,
    write_account,
};
use everturn_core::Result;
use rusqlite::OptionalExtension;

use crate::SqliteStore;
use crate::fault::Outcome;
use crate::read::Reading;
use crate::row::check_id;
use crate::write::Writing;

/// Asks for an account. The tenant's own has the empty names of a session and a turn.
pub(crate) const ACCOUNT: &str = "SELECT used FROM ledger WHERE scope = ?1 AND session = ?2 AND turn = ?3";

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
        SqliteStore::read(self, move |reading| reading.accounts(&scope, &session)).await
    }

    async fn close(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        let (scope, key) = (scope.clone(), key.clone());
        self.writer()
            .write(move |writing| writing.close_account(&scope, &key))
            .await
    }

    async fn of_tenant(&self, scope: &Scope) -> Result<UsageTotal> {
        let scope = scope.clone();
        SqliteStore::read(self, move |reading| reading.account(&scope, "", "")).await
    }
}

impl Reading<'_> {
    fn account(&self, scope: &Scope, session: &str, turn: &str) -> Outcome<UsageTotal> {
        let used: Option<String> = self
            .db
            .prepare_cached(ACCOUNT)?
            .query_row((scope.as_str(), session, turn), |row| row.get(0))
            .optional()?;
        Ok(used
            .map(|used| read_account(&used))
            .transpose()?
            .unwrap_or_default())
    }

    fn accounts(&self, scope: &Scope, session: &SessionId) -> Outcome<Vec<TurnExpenses>> {
        let mut statement = self.db.prepare_cached(OF_SESSION)?;
        let mut rows = statement.query((scope.as_str(), session.as_str()))?;
        let mut accounts = Vec::new();
        while let Some(row) = rows.next()? {
            let (turn, base, used): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let key = JournalKey::new(session.clone(), turn);
            let base = (!base.is_empty()).then(|| base.into());
            accounts.push(TurnExpenses::new(
                TurnAccount::new(key, base),
                read_account(&used)?,
            ));
        }
        Ok(accounts)
    }
}

impl Writing<'_> {
    fn spend(&self, scope: &Scope, expense: &Expense) -> Outcome<UsageTotal> {
        check_id("scope", scope.as_str())?;
        // Read and written in one transaction, so no expense comes between.
        let before = self.reading.account(scope, "", "")?;
        let after = expense.tenant_after(before)?;
        if let Some(session) = &expense.session {
            let (id, name) = (session.key.session().as_str(), session.key.turn());
            check_id("session id", id)?;
            check_id("branch", name)?;
            let held = self.reading.account(scope, id, name)?;
            self.enter(scope, (id, name, ""), &session.after(held)?)?;
        }
        if let Some(after) = &after {
            self.enter(scope, ("", "", ""), after)?;
        }
        if let Some((account, used)) = &expense.turn {
            let key = account.key();
            check_id("session id", key.session().as_str())?;
            check_id("turn", key.turn())?;
            let (session, turn) = (key.session().as_str(), key.turn());
            let used = self.reading.account(scope, session, turn)? + *used;
            let base = account.base().map_or("", |base| base.as_str());
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
        self.reading.db.prepare_cached(ENTER)?.execute(row)?;
        Ok(())
    }

    /// Drops the account of a turn that a snapshot holds.
    pub(crate) fn close_account(&self, scope: &Scope, key: &JournalKey) -> Outcome<()> {
        let place = (scope.as_str(), key.session().as_str(), key.turn());
        self.reading.db.prepare_cached(CLOSE)?.execute(place)?;
        Ok(())
    }

    pub(crate) fn close_accounts(&self, scope: &Scope, session: &SessionId) -> Outcome<()> {
        let place = (scope.as_str(), session.as_str());
        self.reading.db.prepare_cached(CLOSE_SESSION)?.execute(place)?;
        Ok(())
    }

    pub(crate) fn close_tenant(&self, scope: &Scope) -> Outcome<()> {
        self.reading
            .db
            .prepare_cached(CLOSE_TENANT)?
            .execute([scope.as_str()])?;
        Ok(())
    }
}
