//! Checks that listings are complete, ordered and paged.

use std::sync::Arc;

use everturn_agent::Snapshot;
use everturn_agent::store::{Detail, Order, Page, SessionQuery, SessionStore, SnapshotQuery};

use super::row::{row, save, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "a session's snapshots are listed in order, page by page" => snapshots_are_listed,
    "orphaned snapshots are listed on request" => orphans_are_listed_on_request,
    "a page is not moved by snapshots written meanwhile" => a_cursor_stays_where_it_is,
    "sessions are listed by their latest snapshots" => sessions_are_listed,
    "children are found by their parent" => children_are_found,
}

fn ids(rows: &[Snapshot]) -> Vec<String> {
    rows.iter().map(|row| row.snapshot_id.to_string()).collect()
}

async fn page(store: &dyn SessionStore, query: &SnapshotQuery) -> Result<Page<Snapshot>, String> {
    store
        .list(&scope(), query)
        .await
        .map_err(|error| error.to_string())
}

/// Returns all pages of a listing.
async fn pages(store: &dyn SessionStore, mut query: SnapshotQuery) -> Result<Vec<Vec<String>>, String> {
    let mut pages = Vec::new();
    loop {
        let page = page(store, &query).await?;
        pages.push(ids(&page.items));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(pages),
        }
    }
}

async fn snapshots_are_listed(store: Arc<dyn SessionStore>) -> Verdict {
    for (id, seconds) in [("b", 2), ("e", 4), ("a", 1), ("d", 4), ("c", 3)] {
        save(&*store, row("s", id, seconds)).await?;
    }
    save(&*store, row("other", "x", 9)).await?;
    let mut query = SnapshotQuery::of("s".into());
    query.limit = 2;

    let newest = pages(&*store, query.clone()).await?;
    query.order = Order::Oldest;
    let oldest = pages(&*store, query.clone()).await?;
    query.detail = Detail::Whole;
    let whole = page(&*store, &query).await?;
    let none = pages(&*store, SnapshotQuery::of("nobody".into())).await?;

    ensure!(
        newest == [vec!["e", "d"], vec!["c", "b"], vec!["a"]],
        "newest first: {newest:?}"
    );
    ensure!(
        oldest == [vec!["a", "b"], vec!["c", "d"], vec!["e"]],
        "oldest first: {oldest:?}"
    );
    ensure!(
        whole.items.iter().all(|row| row.state.is_some()),
        "whole snapshots were requested"
    );
    ensure!(
        none == [Vec::<String>::new()],
        "a session without snapshots: {none:?}"
    );
    Ok(())
}

async fn orphans_are_listed_on_request(store: Arc<dyn SessionStore>) -> Verdict {
    for (id, orphaned) in [("a", false), ("b", true), ("c", false)] {
        let mut written = row("s", id, 1);
        written.orphaned = orphaned;
        save(&*store, written).await?;
    }
    let mut query = SnapshotQuery::of("s".into());
    let usual = ids(&page(&*store, &query).await?.items);
    query.orphaned = true;
    let all = ids(&page(&*store, &query).await?.items);

    ensure!(usual == ["c", "a"], "without orphans: {usual:?}");
    ensure!(all == ["c", "b", "a"], "with orphans: {all:?}");
    Ok(())
}

async fn a_cursor_stays_where_it_is(store: Arc<dyn SessionStore>) -> Verdict {
    for (id, seconds) in [("a", 1), ("b", 2), ("c", 3)] {
        save(&*store, row("s", id, seconds)).await?;
    }
    let mut query = SnapshotQuery::of("s".into());
    query.limit = 1;
    let first = page(&*store, &query).await?;
    save(&*store, row("s", "d", 4)).await?;

    query.after = first.next;
    let rest = pages(&*store, query).await?;

    ensure!(
        rest == [vec!["b"], vec!["a"]],
        "after 'c' come 'b' and 'a', not {rest:?}"
    );
    Ok(())
}

async fn sessions_are_listed(store: Arc<dyn SessionStore>) -> Verdict {
    for (session, id, seconds) in [
        ("one", "1", 1),
        ("two", "2", 2),
        ("three", "3", 3),
        ("one", "4", 4),
    ] {
        save(&*store, row(session, id, seconds)).await?;
    }
    let mut query = SessionQuery::default();
    query.limit = 2;

    let mut listed = Vec::new();
    loop {
        let page = store
            .sessions(&scope(), &query)
            .await
            .map_err(|error| error.to_string())?;
        ensure!(
            page.items.iter().all(|session| session.latest.state.is_none()),
            "states are not part of a listing"
        );
        listed.extend(
            page.items
                .iter()
                .map(|session| format!("{}:{}", session.session_id, session.latest.snapshot_id)),
        );
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }

    ensure!(
        listed == ["one:4", "three:3", "two:2"],
        "sessions by their latest snapshots: {listed:?}"
    );
    Ok(())
}

async fn children_are_found(store: Arc<dyn SessionStore>) -> Verdict {
    save(&*store, row("s", "root", 1)).await?;
    for (id, seconds) in [("late", 3), ("early", 2)] {
        let mut child = row("s", id, seconds);
        child.parent_id = Some("root".into());
        save(&*store, child).await?;
    }

    let children = store
        .children(&scope(), &"root".into())
        .await
        .map_err(|error| error.to_string())?;
    let none = store
        .children(&scope(), &"late".into())
        .await
        .map_err(|error| error.to_string())?;

    ensure!(
        ids(&children) == ["early", "late"],
        "children, oldest first: {:?}",
        ids(&children)
    );
    ensure!(none.is_empty(), "a snapshot without children has {none:?}");
    Ok(())
}
