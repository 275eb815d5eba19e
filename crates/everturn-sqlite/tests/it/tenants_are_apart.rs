//! A row of one tenant cannot be reached from another by any id.

use everturn_agent::store::{
    Deletion, Detail, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_core::Status;
use futures::StreamExt;

use crate::support::{Fixture, row, set, state_of};

#[tokio::test]
async fn the_same_ids_name_other_rows_for_another_tenant() {
    let fixture = Fixture::new().await;
    let (ours, theirs) = (Scope::new("ours"), Scope::new("theirs"));
    let mut secret = row("a", "s", 1);
    secret.state = Some(state_of(&["our secret"]));
    secret.parent_id = Some("root".into());
    let id = secret.snapshot_id.clone();
    fixture
        .store
        .save(&ours, Some(&id), Precondition::None, set(secret.clone()))
        .await
        .unwrap();

    let store = &fixture.store;
    assert_eq!(store.get(&theirs, &id, Detail::Whole).await.unwrap(), None);
    assert_eq!(
        store.latest(&theirs, &"s".into(), Detail::Whole).await.unwrap(),
        None
    );
    assert!(
        store
            .list(&theirs, &SnapshotQuery::of("s".into()))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert!(
        store
            .sessions(&theirs, &SessionQuery::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert!(store.children(&theirs, &"root".into()).await.unwrap().is_empty());
    assert_eq!(store.watch(&theirs, &id).unwrap().next().await, None);
    assert_eq!(
        store
            .delete(&theirs, &Deletion::Session("s".into()))
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        store
            .delete(&theirs, &Deletion::Snapshots(vec![id.clone()]))
            .await
            .unwrap(),
        0
    );

    store
        .save(&theirs, Some(&id), Precondition::Tip(None), set(row("a", "s", 7)))
        .await
        .unwrap();
    assert_eq!(store.get(&ours, &id, Detail::Whole).await.unwrap(), Some(secret));
    assert_eq!(
        store.get(&theirs, &id, Detail::Whole).await.unwrap(),
        Some(row("a", "s", 7))
    );
    assert!(store.verify().await.unwrap().is_clean());
}

#[tokio::test]
async fn any_string_is_a_good_name_and_only_itself() {
    let fixture = Fixture::new().await;
    let names = [
        "../../etc/passwd",
        "nul\0inside",
        "nul\0",
        "'; DROP TABLE snapshot; --",
        "%",
        "_",
        "a",
        "A",
        "ä",
        "a\u{308}",
        " ",
        "\u{202e}backwards",
        "🥬",
        "line\nbreak",
        "\\",
        "\"",
        "null",
    ];

    for name in names {
        let row = row(name, name, 1);
        let saved = fixture
            .store
            .save(
                &Scope::new(name),
                Some(&name.into()),
                Precondition::Tip(None),
                set(row),
            )
            .await;
        assert!(saved.is_ok(), "{name:?}: {saved:?}");
    }

    for scope in names {
        let sessions = fixture
            .store
            .sessions(&Scope::new(scope), &SessionQuery::default())
            .await
            .unwrap();
        assert_eq!(sessions.items.len(), 1, "{scope:?}");
        for name in names {
            let found = fixture
                .store
                .get(&Scope::new(scope), &name.into(), Detail::Whole)
                .await
                .unwrap();
            assert_eq!(found.is_some(), scope == name, "{scope:?} {name:?}");
        }
    }
}

#[tokio::test]
async fn a_name_beyond_measure_is_refused() {
    let fixture = Fixture::new().await;
    let (long, short) = ("x".repeat(10_000), "x");
    let longest = "y".repeat(everturn_sqlite::MAX_ID);

    for (scope, id, session) in [
        (&*long, short, short),
        (short, &*long, short),
        (short, short, &*long),
    ] {
        let saved = fixture
            .store
            .save(
                &Scope::new(scope),
                Some(&id.into()),
                Precondition::None,
                set(row(id, session, 1)),
            )
            .await;
        assert_eq!(saved.unwrap_err().status(), Status::InvalidArgument);
    }
    assert_eq!(
        fixture
            .store
            .get(&Scope::new(short), &long.as_str().into(), Detail::Whole)
            .await
            .unwrap(),
        None
    );
    let kept = set(row(&longest, &longest, 1));
    let saved = fixture
        .store
        .save(
            &Scope::new(longest.as_str()),
            Some(&longest.as_str().into()),
            Precondition::None,
            kept,
        )
        .await;
    assert!(saved.is_ok());
}
