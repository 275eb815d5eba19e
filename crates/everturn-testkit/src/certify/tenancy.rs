//! That tenants cannot reach each other's rows.

use std::sync::Arc;

use everturn_agent::store::{
    Deletion, Detail, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};

use super::row::{get, put, row, save_in, scope};
use super::watching::next;
use super::{Verdict, ensure, list_promises};

list_promises! {
    "a tenant's rows are out of others' reach" => rows_are_out_of_reach,
    "the same ids of two tenants are two rows" => the_same_ids_are_two_rows,
}

async fn rows_are_out_of_reach(store: Arc<dyn SessionStore>) -> Verdict {
    let (own, other) = (scope(), Scope::new("stranger"));
    let mut written = row("s", "a", 1);
    written.parent_id = Some("p".into());
    save_in(&*store, &own, written).await?;
    let told = |error: everturn_core::Error| error.to_string();

    let got = store
        .get(&other, &"a".into(), Detail::Whole)
        .await
        .map_err(told)?;
    ensure!(got.is_none(), "a stranger read the row");
    let latest = store
        .latest(&other, &"s".into(), Detail::Whole)
        .await
        .map_err(told)?;
    ensure!(latest.is_none(), "a stranger found the latest row");
    let listed = store
        .list(&other, &SnapshotQuery::of("s".into()))
        .await
        .map_err(told)?;
    ensure!(listed.items.is_empty(), "a stranger listed the rows");
    let sessions = store
        .sessions(&other, &SessionQuery::default())
        .await
        .map_err(told)?;
    ensure!(sessions.items.is_empty(), "a stranger listed the sessions");
    let children = store.children(&other, &"p".into()).await.map_err(told)?;
    ensure!(children.is_empty(), "a stranger found the children");
    if let Some(mut statuses) = store.watch(&other, &"a".into()) {
        ensure!(next(&mut statuses).await?.is_none(), "a stranger watches the row");
    }
    let deleted = store
        .delete(&other, &Deletion::Session("s".into()))
        .await
        .map_err(told)?
        + store
            .delete(&other, &Deletion::Snapshots(vec!["a".into()]))
            .await
            .map_err(told)?;
    ensure!(deleted == 0, "a stranger deleted {deleted} rows");
    ensure!(get(&*store, "a").await?.is_some(), "the row is gone");
    Ok(())
}

async fn the_same_ids_are_two_rows(store: Arc<dyn SessionStore>) -> Verdict {
    let other = Scope::new("stranger");
    save_in(&*store, &scope(), row("s", "a", 1)).await?;

    // A session of that name is new to the stranger, whatever the other tenant has.
    let own = store
        .save(
            &other,
            Some(&"a".into()),
            Precondition::Tip(None),
            put(row("s", "a", 2)),
        )
        .await;

    ensure!(
        matches!(own, Ok(Some(_))),
        "a stranger's row of the same id: {own:?}"
    );
    let first = get(&*store, "a").await?;
    ensure!(
        first == Some(row("s", "a", 1)),
        "one tenant wrote over the other's row"
    );
    Ok(())
}
