//! Checks that tenants cannot reach each other's snapshots.

use std::sync::Arc;

use everturn_agent::store::{
    Deletion, Detail, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_core::{Principal, Status};

use super::row::{get, put, row, save_in, scope};
use super::watching::next;
use super::{Verdict, ensure, list_promises};

list_promises! {
    "a tenant's snapshots are out of others' reach" => snapshots_are_out_of_reach,
    "the same ids of two tenants are two snapshots" => the_same_ids_are_two_snapshots,
    "tenants of similar or hostile names are apart or refused" => similar_names_are_apart,
    "a tenant is listed with its readable name" => tenants_are_listed_by_name,
    "a tenant is listed while it has snapshots, and is deleted whole" => tenants_are_deleted_whole,
}

async fn snapshots_are_out_of_reach(store: Arc<dyn SessionStore>) -> Verdict {
    let (own, other) = (scope(), Scope::new("stranger"));
    let mut written = row("s", "a", 1);
    written.parent_id = Some("p".into());
    save_in(&*store, &own, written).await?;
    let message = |error: everturn_core::Error| error.to_string();

    let got = store
        .get(&other, &"a".into(), Detail::Whole)
        .await
        .map_err(message)?;
    ensure!(got.is_none(), "a stranger read the snapshot");
    let latest = store
        .latest(&other, &"s".into(), Detail::Whole)
        .await
        .map_err(message)?;
    ensure!(latest.is_none(), "a stranger found the latest snapshot");
    let listed = store
        .list(&other, &SnapshotQuery::of("s".into()))
        .await
        .map_err(message)?;
    ensure!(listed.items.is_empty(), "a stranger listed the snapshots");
    let sessions = store
        .sessions(&other, &SessionQuery::default())
        .await
        .map_err(message)?;
    ensure!(sessions.items.is_empty(), "a stranger listed the sessions");
    let children = store.children(&other, &"p".into()).await.map_err(message)?;
    ensure!(children.is_empty(), "a stranger found the children");
    if let Some(mut statuses) = store.watch(&other, &"a".into()) {
        ensure!(
            next(&mut statuses).await?.is_none(),
            "a stranger watches the snapshot"
        );
    }
    let deleted = store
        .delete(&other, &Deletion::Session("s".into()))
        .await
        .map_err(message)?
        + store
            .delete(&other, &Deletion::Snapshots(vec!["a".into()]))
            .await
            .map_err(message)?;
    ensure!(deleted == 0, "a stranger deleted {deleted} snapshots");
    ensure!(get(&*store, "a").await?.is_some(), "the snapshot is gone");
    Ok(())
}

async fn the_same_ids_are_two_snapshots(store: Arc<dyn SessionStore>) -> Verdict {
    let other = Scope::new("stranger");
    save_in(&*store, &scope(), row("s", "a", 1)).await?;

    // The other tenant's session of that name does not exist for the stranger.
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
        "a stranger's snapshot of the same id: {own:?}"
    );
    let first = get(&*store, "a").await?;
    ensure!(
        first == Some(row("s", "a", 1)),
        "one tenant wrote over the other's snapshot"
    );
    Ok(())
}

async fn tenants_are_deleted_whole(store: Arc<dyn SessionStore>) -> Verdict {
    let (own, other) = (scope(), Scope::new("stranger"));
    for (session, id) in [("s", "a"), ("s", "b"), ("t", "c")] {
        save_in(&*store, &own, row(session, id, 1)).await?;
    }
    let mut orphan = row("u", "d", 1);
    orphan.orphaned = true;
    save_in(&*store, &own, orphan).await?;
    save_in(&*store, &other, row("s", "a", 1)).await?;
    let message = |error: everturn_core::Error| error.to_string();
    let listed = async || match store.tenants(None).await {
        Ok(page) => Ok(Some(page.items)),
        // A store may be unable to list its tenants.
        Err(error) if error.status() == Status::Unimplemented => Ok(None),
        Err(error) => Err(message(error)),
    };

    let mut both = [own.clone(), other.clone()];
    both.sort();
    let before = listed().await?;
    ensure!(
        before.as_ref().is_none_or(|before| *before == both),
        "the tenants {both:?} are listed as {before:?}"
    );
    let deleted = store.delete(&own, &Deletion::Tenant).await.map_err(message)?;
    ensure!(
        deleted == 4,
        "4 snapshots of the tenant, and {deleted} were deleted"
    );
    for id in ["a", "b", "c", "d"] {
        ensure!(get(&*store, id).await?.is_none(), "'{id}' is still there");
    }
    let kept = store
        .get(&other, &"a".into(), Detail::Whole)
        .await
        .map_err(message)?;
    ensure!(kept.is_some(), "another tenant's snapshot is gone");
    let after = listed().await?;
    ensure!(
        after.as_ref().is_none_or(|after| *after == [other]),
        "after one tenant was deleted, {after:?} are listed"
    );
    Ok(())
}

async fn tenants_are_listed_by_name(store: Arc<dyn SessionStore>) -> Verdict {
    let named = Principal::new("ann@example.com").scope();
    let hash = Scope::new(named.as_str());
    save_in(&*store, &named, row("s", "a", 1)).await?;
    // Later calls may omit the name.
    save_in(&*store, &hash, row("t", "b", 2)).await?;
    let message = |error: everturn_core::Error| error.to_string();
    let name = async || match store.tenants(None).await {
        Ok(page) => Ok(page
            .items
            .first()
            .map(|tenant| tenant.tenant().map(str::to_owned))),
        // A store may be unable to list its tenants.
        Err(error) if error.status() == Status::Unimplemented => Ok(Some(Some("ann@example.com".to_owned()))),
        Err(error) => Err(message(error)),
    };

    let before = name().await?;
    ensure!(
        before == Some(Some("ann@example.com".to_owned())),
        "the tenant 'ann@example.com' is listed as {before:?}"
    );
    store.delete(&hash, &Deletion::Tenant).await.map_err(message)?;
    // A tenant that returns without its name has no name any more.
    save_in(&*store, &hash, row("s", "a", 1)).await?;
    let after = name().await?;
    ensure!(
        after != before || store.tenants(None).await.is_err(),
        "the name of a deleted tenant is still there"
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
            "another tenant wrote over the snapshot of {scope:?}"
        );
        let listed = store.list(&scope, &SnapshotQuery::of("s".into())).await;
        let count = listed.map(|page| page.items.len());
        ensure!(
            matches!(count, Ok(1)),
            "tenant {scope:?} lists {count:?} snapshots of its one"
        );
    }
    Ok(())
}
