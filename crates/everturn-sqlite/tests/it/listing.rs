//! Snapshots and sessions come in order, page by page.

use everturn_agent::Snapshot;
use everturn_agent::store::{Detail, Order, SessionQuery, SessionStore, SnapshotQuery};

use crate::support::{Fixture, ids, put, row, scope, session_ids, state_of};

async fn ten_rows(fixture: &Fixture) {
    for number in 0..10 {
        let mut row = row(&format!("r{number}"), "s", number / 2);
        row.orphaned = number % 3 == 0;
        row.state = Some(state_of(&["hello"]));
        put(&fixture.store, row).await.unwrap();
    }
    put(&fixture.store, row("elsewhere", "t", 3)).await.unwrap();
}

async fn all_pages(fixture: &Fixture, mut query: SnapshotQuery) -> Vec<Snapshot> {
    let mut rows = Vec::new();
    loop {
        let page = fixture.store.list(&scope(), &query).await.unwrap();
        assert!(page.items.len() <= query.limit);
        rows.extend(page.items);
        query.after = page.next;
        if query.after.is_none() {
            return rows;
        }
    }
}

#[tokio::test]
async fn newest_or_oldest_first_with_or_without_orphans() {
    let fixture = Fixture::new().await;
    ten_rows(&fixture).await;
    let query = |order, orphaned| {
        let mut query = SnapshotQuery::of("s".into());
        (query.order, query.orphaned) = (order, orphaned);
        query
    };

    assert_eq!(
        ids(&fixture.store, &query(Order::Newest, false)).await,
        ["r8", "r7", "r5", "r4", "r2", "r1"]
    );
    assert_eq!(
        ids(&fixture.store, &query(Order::Oldest, false)).await,
        ["r1", "r2", "r4", "r5", "r7", "r8"]
    );
    assert_eq!(ids(&fixture.store, &query(Order::Newest, true)).await.len(), 10);
    assert_eq!(
        ids(&fixture.store, &SnapshotQuery::of("nobody".into())).await,
        [""; 0]
    );
}

#[tokio::test]
async fn pages_of_any_size_make_up_the_whole() {
    let fixture = Fixture::new().await;
    ten_rows(&fixture).await;

    for order in [Order::Newest, Order::Oldest] {
        let mut query = SnapshotQuery::of("s".into());
        (query.order, query.orphaned) = (order, true);
        let whole = all_pages(&fixture, query.clone()).await;
        assert_eq!(whole.len(), 10);
        for limit in 1..=11 {
            query.limit = limit;
            assert_eq!(
                all_pages(&fixture, query.clone()).await,
                whole,
                "{order:?}, {limit} a page"
            );
        }
    }
}

#[tokio::test]
async fn rows_written_meanwhile_do_not_move_a_page() {
    let fixture = Fixture::new().await;
    ten_rows(&fixture).await;
    let mut query = SnapshotQuery::of("s".into());
    (query.orphaned, query.limit) = (true, 4);
    let first = fixture.store.list(&scope(), &query).await.unwrap();

    put(&fixture.store, row("newer", "s", 99)).await.unwrap();
    query.after = first.next;

    assert_eq!(ids(&fixture.store, &query).await, ["r5", "r4", "r3", "r2"]);
}

#[tokio::test]
async fn states_come_only_on_request() {
    let fixture = Fixture::new().await;
    ten_rows(&fixture).await;
    let mut query = SnapshotQuery::of("s".into());

    let metadata = fixture.store.list(&scope(), &query).await.unwrap();
    query.detail = Detail::Whole;
    let whole = fixture.store.list(&scope(), &query).await.unwrap();

    assert!(metadata.items.iter().all(|row| row.state.is_none()));
    assert!(
        whole
            .items
            .iter()
            .all(|row| row.state == Some(state_of(&["hello"])))
    );
}

#[tokio::test]
async fn sessions_are_ordered_by_their_latest_rows() {
    let fixture = Fixture::new().await;
    for (id, session, second) in [
        ("a", "one", 1),
        ("b", "two", 2),
        ("c", "three", 3),
        ("d", "one", 4),
    ] {
        put(&fixture.store, row(id, session, second)).await.unwrap();
    }

    assert_eq!(
        session_ids(&fixture.store).await,
        ["one".into(), "three".into(), "two".into()]
    );
    let mut query = SessionQuery::default();
    (query.order, query.limit) = (Order::Oldest, 2);
    let first = fixture.store.sessions(&scope(), &query).await.unwrap();
    query.after = first.next;
    let second = fixture.store.sessions(&scope(), &query).await.unwrap();
    assert_eq!(first.items[0].latest, row("b", "two", 2));
    assert_eq!(second.items[0].latest, row("d", "one", 4));
    assert_eq!((first.items.len(), second.items.len(), second.next), (2, 1, None));
}

#[tokio::test]
async fn children_come_oldest_first_from_any_session_without_their_states() {
    let fixture = Fixture::new().await;
    put(&fixture.store, row("root", "s", 1)).await.unwrap();
    for (id, session, second) in [
        ("late", "s", 9),
        ("early", "t", 2),
        ("tie-b", "s", 5),
        ("tie-a", "s", 5),
    ] {
        let mut child = row(id, session, second);
        child.parent_id = Some("root".into());
        child.state = Some(state_of(&["hello"]));
        put(&fixture.store, child).await.unwrap();
    }

    let children = fixture.store.children(&scope(), &"root".into()).await.unwrap();

    let names: Vec<_> = children.iter().map(|row| row.snapshot_id.as_str()).collect();
    assert_eq!(names, ["early", "tie-a", "tie-b", "late"]);
    assert!(children.iter().all(|row| row.state.is_none()));
    assert!(
        fixture
            .store
            .children(&scope(), &"late".into())
            .await
            .unwrap()
            .is_empty()
    );
}
