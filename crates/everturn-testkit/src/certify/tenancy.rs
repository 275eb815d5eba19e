//! That tenants cannot reach each other's rows.

use std::sync::Arc;

use everturn_agent::store::{
    Deletion, Detail, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_core::Status;

use super::row::{get, put, row, save_in, scope};
use super::watching::next;
use super::{Verdict, ensure, list_promises};

list_promises! {
    "a tenant's rows are out of others' reach" => rows_are_out_of_reach,
    "the same ids of two tenants are two rows" => the_same_ids_are_two_rows,
    "tenants of similar or hostile names are apart or refused" => similar_names_are_apart,
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

async fn similar_names_are_apart(store: Arc<dyn SessionStore>) -> Verdict {
    let long = "x".repeat(10_000);
    let names = [
        "a",
        "a/b",
        "a//b",
        "/a/b",
        "a/b/",
        "a/./b",
        "a/x/../b",
        "a\\b",
        "a:b",
        "a ",
        "a%2fb",
        "a/r.json",
        "a/.pointers",
        "..",
        "../a",
        "a\0",
        "' OR 1=1 --",
        "küche",
        "👩‍🍳",
        "",
        long.as_str(),
    ];
    let mut tenants = Vec::new();
    for (second, name) in (1..).zip(names) {
        let scope = Scope::new(name);
        let saved = store
            .save(
                &scope,
                Some(&"r".into()),
                Precondition::None,
                put(row("s", "r", second)),
            )
            .await;
        match saved {
            Ok(_) => tenants.push((scope, row("s", "r", second))),
            Err(error) => ensure!(
                error.status() == Status::InvalidArgument,
                "tenant {name:?} was refused with {error:?}"
            ),
        }
    }
    for (scope, own) in tenants {
        let read = store.get(&scope, &"r".into(), Detail::Whole).await;
        ensure!(
            matches!(&read, Ok(Some(read)) if *read == own),
            "another tenant wrote over the row of {scope:?}"
        );
        let listed = store.list(&scope, &SnapshotQuery::of("s".into())).await;
        let count = listed.map(|page| page.items.len());
        ensure!(
            matches!(count, Ok(1)),
            "tenant {scope:?} lists {count:?} rows of its one"
        );
    }
    Ok(())
}
