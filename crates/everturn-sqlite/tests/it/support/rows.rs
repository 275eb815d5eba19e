//! Rows to test with. The tests of both SQL stores include this file.

use everturn_agent::store::{Detail, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{SessionState, Snapshot};
use everturn_ai::Message;
use everturn_core::Result;
use jiff::Timestamp;

pub(crate) fn scope() -> Scope {
    Scope::default()
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn row(id: &str, session: &str, second: i64) -> Snapshot {
    Snapshot::new(id.into(), session.into(), at(second))
}

pub(crate) fn state_of(texts: &[&str]) -> SessionState {
    SessionState {
        messages: texts.iter().map(|text| Message::user(*text)).collect(),
        ..SessionState::default()
    }
}

pub(crate) fn set(row: Snapshot) -> Mutation {
    Mutation::new(move |_| Ok(Some(row.clone())))
}

pub(crate) async fn put(store: &dyn SessionStore, row: Snapshot) -> Result<Snapshot> {
    let id = row.snapshot_id.clone();
    let saved = store
        .save(&scope(), Some(&id), Precondition::None, set(row))
        .await?;
    Ok(saved.expect("the mutation writes"))
}

pub(crate) async fn get(store: &dyn SessionStore, id: &str) -> Option<Snapshot> {
    store.get(&scope(), &id.into(), Detail::Whole).await.unwrap()
}
