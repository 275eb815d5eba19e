//! Checks that a ledger, if a store keeps one, loses nothing.

use std::sync::Arc;

use everturn_agent::store::{
    Admission, Deletion, Expense, JournalKey, Precondition, Scope, SessionExpense, SessionStore, TurnAccount,
    UsageLedger,
};
use everturn_agent::{Budget, UsageTotal};
use everturn_ai::{NextCall, reason};
use everturn_core::{Error, Status};
use serde_json::json;

use super::row::{put, row, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "an account is what was entered, added up" => accounts_add_up,
    "no expense is lost under concurrent writers" => no_expense_is_lost,
    "a budget is not exceeded by concurrent writers" => a_budget_holds,
    "a session's budget is not exceeded by concurrent writers" => a_budget_of_a_session_holds,
    "an expense that is refused changes no account" => a_refused_expense_changes_nothing,
    "a commit drops the account of its turn and no other" => a_commit_drops_the_account,
    "an account outlives its journal" => an_account_outlives_its_journal,
    "accounts of tenants and sessions are apart, and deleted with them" => accounts_are_apart,
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn message(error: Error) -> String {
    format!("{error:?}")
}

fn used(tokens: u64, calls: u64) -> UsageTotal {
    let json = json!({ "inputTokens": tokens, "modelCalls": calls, "cost": 0.001, "turnMs": 1.5 });
    serde_json::from_value(json).unwrap_or_default()
}

fn account(session: &str, turn: &str, base: Option<&str>) -> TurnAccount {
    TurnAccount::new(JournalKey::new(session.into(), turn), base.map(Into::into))
}

async fn of_turn(
    ledger: &dyn UsageLedger,
    scope: &Scope,
    account: &TurnAccount,
) -> Result<UsageTotal, String> {
    let accounts = ledger
        .of_session(scope, account.key().session())
        .await
        .map_err(message)?;
    let mut own = accounts.iter().filter(|found| found.account == *account);
    Ok(own.next().map(|found| found.used).unwrap_or_default())
}

async fn accounts_add_up(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    let (first, second) = (account("s", "one", None), account("s", "two", Some("base")));
    ensure!(
        ledger.of_tenant(&scope()).await.map_err(message)?.is_zero(),
        "a tenant that spent nothing has an account"
    );

    for (account, tokens) in [(&first, 1), (&second, 2), (&first, 4)] {
        let expense = Expense::new()
            .of_tenant(used(tokens, 1))
            .of_turn(account.clone(), used(tokens, 1));
        ledger.spend(&scope(), &expense).await.map_err(message)?;
    }
    let only_tenant = Expense::new().of_tenant(used(8, 0));
    let after = ledger.spend(&scope(), &only_tenant).await.map_err(message)?;

    let tenant = ledger.of_tenant(&scope()).await.map_err(message)?;
    ensure!(
        tenant.input_tokens == 15 && tenant.model_calls == 3,
        "the tenant's account is {tenant:?}"
    );
    ensure!(after == tenant, "an expense returned {after:?}");
    let sum = of_turn(ledger, &scope(), &first).await?;
    ensure!(sum == used(1, 1) + used(4, 1), "the account of a turn is {sum:?}");
    let other = of_turn(ledger, &scope(), &second).await?;
    ensure!(other == used(2, 1), "the account of another turn is {other:?}");
    Ok(())
}

async fn no_expense_is_lost(store: Arc<dyn SessionStore>) -> Verdict {
    if store.ledger().is_none() {
        return Ok(());
    }
    let writers = (0..8).map(|writer: u64| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let ledger = store.ledger().ok_or("the store has stopped keeping a ledger")?;
            let own = account("s", &format!("turn-{}", writer % 2), None);
            for _ in 0..8 {
                let expense = Expense::new()
                    .of_tenant(used(1, 1))
                    .of_turn(own.clone(), used(1, 1));
                ledger.spend(&scope(), &expense).await.map_err(message)?;
            }
            Ok::<_, String>(())
        })
    });
    for writer in futures::future::join_all(writers).await {
        writer.map_err(|error| error.to_string())??;
    }

    let ledger = store.ledger().ok_or("the store has stopped keeping a ledger")?;
    let tenant = ledger.of_tenant(&scope()).await.map_err(message)?;
    ensure!(
        tenant.model_calls == 64,
        "of 64 calls the tenant's account has {}",
        tenant.model_calls
    );
    let turn = of_turn(ledger, &scope(), &account("s", "turn-0", None)).await?;
    ensure!(
        turn.model_calls == 32,
        "of 32 calls a turn's account has {}",
        turn.model_calls
    );
    Ok(())
}

/// Returns the expense of one model call that a budget must allow.
fn call_within(calls: u64) -> Expense {
    let call = NextCall::model("m", true);
    Expense::new()
        .of_tenant(used(0, 1))
        .if_admitted(Admission::new(Budget::new().model_calls(calls), &call))
}

async fn a_budget_holds(store: Arc<dyn SessionStore>) -> Verdict {
    if store.ledger().is_none() {
        return Ok(());
    }
    let writers = (0..24).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let ledger = store.ledger().ok_or("the store has stopped keeping a ledger")?;
            match ledger.spend(&scope(), &call_within(9)).await {
                Ok(_) => Ok(true),
                Err(error) if error.status() == Status::ResourceExhausted => Ok(false),
                Err(error) => Err(message(error)),
            }
        })
    });
    let mut admitted = 0;
    for writer in futures::future::join_all(writers).await {
        admitted += usize::from(writer.map_err(|error| error.to_string())??);
    }

    ensure!(
        admitted == 9,
        "{admitted} calls were admitted where 9 are allowed"
    );
    Ok(())
}

/// Returns the expense of one model call that the budget of a session must allow, where three calls were made
/// before.
fn call_of_session(calls: u64, turn: &str) -> Expense {
    let call = NextCall::model("m", true);
    let session = SessionExpense::new(JournalKey::of_branch("s".into(), None), used(0, 3), used(0, 1))
        .if_admitted(Admission::new(Budget::new().model_calls(calls), &call));
    Expense::new()
        .of_session(session)
        .of_turn(account("s", turn, None), used(0, 1))
}

async fn a_budget_of_a_session_holds(store: Arc<dyn SessionStore>) -> Verdict {
    if store.ledger().is_none() {
        return Ok(());
    }
    let writers = (0..24).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let ledger = store.ledger().ok_or("the store has stopped keeping a ledger")?;
            let expense = call_of_session(12, &format!("turn-{writer}"));
            match ledger.spend(&scope(), &expense).await {
                Ok(_) => Ok(1),
                Err(error) if error.status() == Status::ResourceExhausted => Ok(0),
                Err(error) => Err(message(error)),
            }
        })
    });
    let mut admitted = 0;
    for writer in futures::future::join_all(writers).await {
        admitted += writer.map_err(|error| error.to_string())??;
    }

    ensure!(
        admitted == 9,
        "{admitted} calls of a session were admitted where 9 are left"
    );
    let ledger = store.ledger().ok_or("the store has stopped keeping a ledger")?;
    let accounts = ledger.of_session(&scope(), &"s".into()).await.map_err(message)?;
    let (branches, turns): (Vec<_>, Vec<_>) = accounts
        .iter()
        .partition(|account| account.account.key().is_branch());
    ensure!(
        branches.len() == 1 && branches[0].used.model_calls == 12,
        "the account of the session's branch is {branches:?}"
    );
    ensure!(
        turns.len() == 9,
        "{} turns have an account where 9 calls were admitted",
        turns.len()
    );
    Ok(())
}

async fn a_refused_expense_changes_nothing(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    let own = account("s", "turn", None);
    ledger.spend(&scope(), &call_within(1)).await.map_err(message)?;

    let refused = ledger
        .spend(&scope(), &call_within(1).of_turn(own.clone(), used(5, 1)))
        .await;

    let Err(error) = refused else {
        return Err("a call beyond the budget was admitted".to_owned());
    };
    ensure!(
        error.is(reason::LIMIT_REACHED),
        "a call beyond the budget was refused with {error:?}"
    );
    let tenant = ledger.of_tenant(&scope()).await.map_err(message)?;
    ensure!(
        tenant.model_calls == 1,
        "a refused call counts for the tenant: {tenant:?}"
    );
    let turn = of_turn(ledger, &scope(), &own).await?;
    ensure!(turn.is_zero(), "a refused call counts for the turn: {turn:?}");
    Ok(())
}

async fn a_commit_drops_the_account(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    let (held, other) = (account("s", "held", None), account("s", "other", None));
    for account in [&held, &other] {
        let expense = Expense::new()
            .of_tenant(used(1, 1))
            .of_turn(account.clone(), used(1, 1));
        ledger.spend(&scope(), &expense).await.map_err(message)?;
    }
    let commit = |precondition| {
        let journals = [held.key().clone()];
        let store = Arc::clone(&store);
        async move {
            let put = put(row("s", "a", 1));
            store
                .commit(&scope(), Some(&"a".into()), precondition, put, &journals)
                .await
        }
    };

    let refused = commit(Precondition::Tip(Some("nowhere".into()))).await;
    ensure!(refused.is_err(), "a commit at a tip that is none succeeded");
    ensure!(
        !of_turn(ledger, &scope(), &held).await?.is_zero(),
        "a commit that failed dropped an account"
    );
    commit(Precondition::Tip(None)).await.map_err(message)?;

    ensure!(
        of_turn(ledger, &scope(), &held).await?.is_zero(),
        "the account of a committed turn is still there"
    );
    ensure!(
        of_turn(ledger, &scope(), &other).await? == used(1, 1),
        "the account of another turn was dropped"
    );
    let tenant = ledger.of_tenant(&scope()).await.map_err(message)?;
    ensure!(tenant.model_calls == 2, "a commit changed the tenant's account");
    Ok(())
}

async fn an_account_outlives_its_journal(store: Arc<dyn SessionStore>) -> Verdict {
    let (Some(ledger), Some(journal)) = (store.ledger(), store.journal()) else {
        return Ok(());
    };
    let own = account("s", "turn", None);
    let expense = Expense::new().of_turn(own.clone(), used(3, 1));
    ledger.spend(&scope(), &expense).await.map_err(message)?;

    journal.clear(&scope(), own.key()).await.map_err(message)?;

    ensure!(
        of_turn(ledger, &scope(), &own).await? == used(3, 1),
        "dropping a journal dropped the account of its turn"
    );
    Ok(())
}

async fn accounts_are_apart(store: Arc<dyn SessionStore>) -> Verdict {
    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    let stranger = Scope::new("stranger");
    let (own, neighbour) = (account("s", "turn", None), account("t", "turn", None));
    for (scope, account) in [(scope(), &own), (scope(), &neighbour), (stranger.clone(), &own)] {
        let expense = Expense::new()
            .of_tenant(used(1, 1))
            .of_turn(account.clone(), used(1, 1));
        ledger.spend(&scope, &expense).await.map_err(message)?;
    }

    let session = Deletion::Session("s".into());
    store.delete(&scope(), &session).await.map_err(message)?;
    ensure!(
        of_turn(ledger, &scope(), &own).await?.is_zero(),
        "a deleted session leaves an account"
    );
    let tenant = ledger.of_tenant(&scope()).await.map_err(message)?;
    ensure!(
        tenant.model_calls == 2,
        "deleting a session changed the tenant's account"
    );
    store.delete(&scope(), &Deletion::Tenant).await.map_err(message)?;

    let tenant = ledger.of_tenant(&scope()).await.map_err(message)?;
    ensure!(tenant.is_zero(), "a deleted tenant leaves an account");
    ensure!(
        of_turn(ledger, &scope(), &neighbour).await?.is_zero(),
        "a deleted tenant leaves the account of a turn"
    );
    ensure!(
        of_turn(ledger, &stranger, &own).await? == used(1, 1),
        "deleting a tenant deleted the account of another"
    );
    Ok(())
}
