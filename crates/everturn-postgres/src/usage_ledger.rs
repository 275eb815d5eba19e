//! The usage of tenants and unfinished turns.
//!
//! An expense is a transaction that locks the tenant's row first, then the session's, then the turn's. If its
//! answer is lost, its outcome is unknown. It is then not retried, and the call that it is for is not made.

use async_trait::async_trait;
use everturn_agent::SessionId;
use everturn_agent::store::{
    Expense, JournalKey, Scope, TurnAccount, TurnExpenses, UsageLedger, UsageTotal, read_account,
    write_account,
};
use everturn_core::Result;
use tokio_postgres::Client;

use crate::PostgresStore;
use crate::connection::Patience;
use crate::fault::{Fault, Outcome};
use crate::inner::Inner;
use crate::position::SessionKey;
use crate::row::check_id;
use crate::statement::{Statement, column};

#[async_trait]
impl UsageLedger for PostgresStore {
    async fn spend(&self, scope: &Scope, expense: &Expense) -> Result<UsageTotal> {
        self.call(self.inner().spend(scope, expense)).await
    }

    async fn of_session(&self, scope: &Scope, session: &SessionId) -> Result<Vec<TurnExpenses>> {
        let outcome = self.inner().turn_expenses(scope, session).await;
        self.result(outcome)
    }

    async fn close(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        let place = Place::of_turn(scope, &TurnAccount::new(key.clone(), None));
        let outcome = self.inner().db.read(&place.statement(CLOSE)).await;
        self.result(outcome.map(drop))
    }

    async fn of_tenant(&self, scope: &Scope) -> Result<UsageTotal> {
        let outcome = self.inner().tenant_usage(scope).await;
        self.result(outcome)
    }
}

const CLOSE: &str = "DELETE FROM @ledger WHERE tenant = $1 AND session = $2 AND turn = $3";

/// The place of a turn's usage in the table.
struct Place {
    session: SessionKey,
    turn: Vec<u8>,
    scope: Vec<u8>,
    base: Vec<u8>,
}

impl Place {
    fn of_tenant(scope: &Scope) -> Self {
        Self {
            // No session has an empty name.
            session: SessionKey::of(scope, ""),
            turn: Vec::new(),
            scope: bytes(scope),
            base: Vec::new(),
        }
    }

    fn of_turn(scope: &Scope, turn: &TurnAccount) -> Self {
        let key = turn.key();
        Self {
            session: SessionKey::of(scope, key.session().as_str()),
            turn: key.turn().as_bytes().to_vec(),
            scope: bytes(scope),
            base: turn
                .base()
                .map(|base| base.as_str().as_bytes().to_vec())
                .unwrap_or_default(),
        }
    }

    fn statement(&self, sql: &str) -> Statement<'static> {
        Statement::new(sql).with((self.session, self.turn.clone()))
    }
}

fn bytes(scope: &Scope) -> Vec<u8> {
    scope.as_str().as_bytes().to_vec()
}

/// Deletes the tenant's own usage, and that of its turns.
pub(crate) fn close_tenant(scope: &Scope) -> Statement<'static> {
    Statement::new("DELETE FROM @ledger WHERE tenant = $1 AND scope = $2").with(scope)
}

impl Inner {
    async fn spend(&self, scope: &Scope, expense: &Expense) -> Outcome<UsageTotal> {
        check_id("scope", scope.as_str())?;
        let of_turn = expense.turn.iter().map(|(turn, _)| turn.key());
        for key in of_turn.chain(expense.session.iter().map(|session| &session.key)) {
            check_id("session id", key.session().as_str())?;
            check_id("turn", key.turn())?;
        }
        let mut patience = Patience::new(self.db.patience);
        loop {
            match self.db.bounded(self.try_spend(scope, expense)).await {
                Err(fault) if fault.is_conflict() && patience.wait_turn().await => {}
                outcome => return outcome,
            }
        }
    }

    async fn try_spend(&self, scope: &Scope, expense: &Expense) -> Outcome<UsageTotal> {
        let mut connection = self.db.connection().await?;
        let transaction = connection.transaction().await?;
        let client = transaction.client();
        let of_tenant = Place::of_tenant(scope);
        let spent = if expense.tenant.is_some() {
            let before = self.locked(client, &of_tenant).await?;
            let after = expense.tenant_after(before)?.unwrap_or(before);
            self.enter(client, &of_tenant, &after).await?;
            after
        } else {
            UsageTotal::default()
        };
        if let Some(session) = &expense.session {
            let place = Place::of_turn(scope, &TurnAccount::new(session.key.clone(), None));
            let held = self.locked(client, &place).await?;
            self.enter(client, &place, &session.after(held)?).await?;
        }
        if let Some((turn, used)) = &expense.turn {
            let place = Place::of_turn(scope, turn);
            let before = self.locked(client, &place).await?;
            self.enter(client, &place, &(before + *used)).await?;
        }
        transaction.commit().await?;
        Ok(spent)
    }

    /// Returns the usage at a place, which no other transaction changes before this one ends.
    async fn locked(&self, client: &Client, place: &Place) -> Outcome<UsageTotal> {
        // An update that changes nothing locks the row, and returns the values of the earlier transactions.
        let statement = place
            .statement(
                "INSERT INTO @ledger AS l (tenant, session, turn, scope, base, used) VALUES ($1, $2, $3, $4, $5, '{}') \
                 ON CONFLICT (tenant, session, turn) DO UPDATE SET base = l.base RETURNING l.used",
            ).with((place.scope.clone(), place.base.clone()));
        let rows = self.db.run_on(client, &statement).await?;
        let row = rows.first().ok_or(Fault::Moved)?;
        Ok(read_account(column(row, 0)?)?)
    }

    async fn enter(&self, client: &Client, place: &Place, used: &UsageTotal) -> Outcome<()> {
        let statement = place
            .statement("UPDATE @ledger SET used = $4 WHERE tenant = $1 AND session = $2 AND turn = $3")
            .with(write_account(used)?);
        self.db.run_on(client, &statement).await.map(drop)
    }

    async fn turn_expenses(&self, scope: &Scope, session: &SessionId) -> Outcome<Vec<TurnExpenses>> {
        let key = SessionKey::of(scope, session.as_str());
        let statement =
            Statement::new("SELECT turn, base, used FROM @ledger WHERE tenant = $1 AND session = $2")
                .with(key);
        let rows = self.db.read(&statement).await?;
        rows.iter()
            .map(|row| {
                let text = |index| Ok::<_, Fault>(String::from_utf8_lossy(column(row, index)?).into_owned());
                let (turn, base) = (text(0)?, text(1)?);
                let key = JournalKey::new(session.clone(), turn);
                let base = (!base.is_empty()).then(|| base.into());
                Ok(TurnExpenses::new(
                    TurnAccount::new(key, base),
                    read_account(column(row, 2)?)?,
                ))
            })
            .collect()
    }

    async fn tenant_usage(&self, scope: &Scope) -> Outcome<UsageTotal> {
        let statement = Place::of_tenant(scope)
            .statement("SELECT used FROM @ledger WHERE tenant = $1 AND session = $2 AND turn = $3");
        let rows = self.db.read(&statement).await?;
        match rows.first() {
            Some(row) => Ok(read_account(column(row, 0)?)?),
            None => Ok(UsageTotal::default()),
        }
    }
}
