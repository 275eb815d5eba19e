//! Opening a store: migrations, roles, wrong addresses.

use std::time::Duration;

use everturn_core::Status;
use everturn_postgres::PostgresStore;
use futures::future::join_all;

use crate::support::{Fixture, Way, get, new_schema, options, put, row, sql};

#[tokio::test]
async fn processes_that_start_at_once_migrate_once() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let schema = new_schema();

    let opened = join_all((0..12).map(|_| options(&url, &schema).connections(1).open())).await;

    for store in opened {
        assert!(get(&store.unwrap(), "none").await.is_none());
    }
    let count = format!("SELECT count(*) FROM \"{schema}\".everturn_schema");
    assert_eq!(sql(&url, &count).await.unwrap(), "1");
}

#[tokio::test]
async fn a_schema_of_an_unknown_version_is_refused_with_both_versions_and_advice() {
    let Some(fixture) = Fixture::new().await else {
        return;
    };
    let table = format!("\"{}\".everturn_schema", fixture.schema);
    for (change, stored) in [
        ("UPDATE @ SET version = 99", "version 99"),
        ("UPDATE @ SET version = -1", "version -1"),
        ("DELETE FROM @", "version 0 and has tables of another one"),
    ] {
        sql(&fixture.url, &change.replace('@', &table)).await;

        let refused = options(&fixture.url, &fixture.schema).open().await.unwrap_err();

        assert_eq!(refused.status(), Status::FailedPrecondition, "{refused}");
        for part in [
            stored,
            "supports version 1",
            "choose another schema",
            "everturn_schema",
        ] {
            assert!(refused.message().contains(part), "{part} is not in: {refused}");
        }
    }
}

#[tokio::test]
async fn an_operator_may_run_the_migrations_and_the_store_do_without_the_right_to() {
    let Some(url) = Way::Direct.url() else {
        return;
    };
    let schema = format!("Tom's {}", new_schema());
    let role = new_schema();
    let missing = options(&url, &schema)
        .without_migrations()
        .open()
        .await
        .unwrap_err();
    assert_eq!(missing.status(), Status::FailedPrecondition);
    assert!(missing.message().contains("migration_sql"), "{missing}");

    sql(&url, &PostgresStore::migration_sql(&schema, 0)).await;
    let grants = format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA \"{schema}\" TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \"{schema}\" TO {role};"
    );
    sql(&url, &grants).await;
    let url = url.replace("everturn@", &format!("{role}@"));
    let store = options(&url, &schema).open().await.unwrap();

    put(&store, row("a", "s", 1)).await.unwrap();
    assert!(get(&store, "a").await.is_some());
    let refused = options(&url, &new_schema()).open().await.unwrap_err();
    assert_eq!(refused.status(), Status::PermissionDenied, "{refused}");
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_unavailable_within_the_patience() {
    let refused = PostgresStore::options("postgres://chef:leeks@127.0.0.1:1/kitchen")
        .patience(Duration::from_millis(200))
        .open()
        .await
        .unwrap_err();

    assert_eq!(refused.status(), Status::Unavailable);
    assert!(refused.message().contains("127.0.0.1:1/kitchen"), "{refused}");
    assert!(!format!("{refused:?}").contains("leeks"));
}

#[tokio::test]
async fn wrong_settings_are_named() {
    let url = "postgres://chef@127.0.0.1/kitchen";
    for (options, name) in [
        (PostgresStore::options(url).connections(0), "connections"),
        (
            PostgresStore::options(url).poll_every(Duration::ZERO),
            "poll_every",
        ),
        (PostgresStore::options(url).schema(""), "schema"),
        (PostgresStore::options("kitchen at home"), "connection string"),
    ] {
        let refused = options.open().await.unwrap_err();
        assert_eq!(refused.status(), Status::InvalidArgument);
        assert!(refused.message().contains(name), "{refused}");
    }
}
