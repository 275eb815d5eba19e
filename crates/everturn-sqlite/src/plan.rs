//! Tests that SQLite answers every query from an index, whatever the size of the database.

use everturn_agent::store::Order;
use rusqlite::Connection;

use crate::schema::SESSIONS;
use crate::{delete, journal, list, missing, read, usage_ledger};

fn plan(sql: &str) -> Vec<String> {
    let mut connection = Connection::open_in_memory().unwrap();
    SESSIONS.migrate(&mut connection).unwrap();
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    for parameter in 1..=statement.parameter_count() {
        statement.raw_bind_parameter(parameter, 1).unwrap();
    }
    let mut rows = statement.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get(3).unwrap());
    }
    lines
}

/// Asserts that a query searches every table by an index, and neither scans nor sorts.
fn assert_searches(sql: &str, expected: &[&str]) {
    let plan = plan(sql);
    for line in &plan {
        let good = ["SEARCH", "SCALAR SUBQUERY", "REUSE SUBQUERY"]
            .iter()
            .any(|start| line.starts_with(start));
        assert!(good, "{line}\nin the plan of {sql}");
    }
    for part in expected {
        assert!(
            plan.iter().any(|line| line.contains(part)),
            "no '{part}' in {plan:#?}\nof {sql}"
        );
    }
}

const SCOPE: &str = "SEARCH scope USING COVERING INDEX";
const SESSION: &str = "SEARCH session USING COVERING INDEX sqlite_autoindex_session_1 (scope=? AND name=?)";

#[test]
fn a_row_is_found_by_its_tenant_and_id() {
    assert_searches(
        &read::BY_ID,
        &[
            SCOPE,
            "SEARCH snapshot USING INDEX sqlite_autoindex_snapshot_1 (scope=? AND id=?)",
        ],
    );
    assert_searches(read::STATUS, &[SCOPE, "(scope=? AND id=?)"]);
}

#[test]
fn the_latest_row_is_the_first_of_an_index() {
    assert_searches(
        &read::LATEST,
        &[
            SCOPE,
            SESSION,
            "SEARCH snapshot USING INDEX snapshot_by_position (session=?)",
        ],
    );
    assert_searches(
        read::TIP,
        &["SEARCH snapshot USING COVERING INDEX snapshot_by_position (session=?)"],
    );
}

#[test]
fn a_page_of_snapshots_is_a_range_of_an_index() {
    for order in [Order::Newest, Order::Oldest] {
        for orphaned in [false, true] {
            assert_searches(
                &list::snapshots(order, orphaned, false),
                &[
                    SCOPE,
                    SESSION,
                    "SEARCH snapshot USING INDEX snapshot_by_position (session=?",
                ],
            );
            assert_searches(
                &list::snapshots(order, orphaned, true),
                &[
                    SCOPE,
                    SESSION,
                    "SEARCH snapshot USING INDEX snapshot_by_position (session=? AND (created_at,id)",
                ],
            );
        }
    }
}

#[test]
fn a_page_of_sessions_is_a_range_of_the_tips() {
    for order in [Order::Newest, Order::Oldest] {
        let rows = "SEARCH snapshot USING INDEX sqlite_autoindex_snapshot_1 (scope=? AND id=?)";
        assert_searches(
            &list::sessions(order, false),
            &[
                SCOPE,
                "SEARCH tip USING PRIMARY KEY (scope=?)",
                rows,
                "SEARCH session USING INTEGER PRIMARY KEY",
            ],
        );
        assert_searches(
            &list::sessions(order, true),
            &["SEARCH tip USING PRIMARY KEY (scope=? AND (created_at,id)", rows],
        );
    }
}

#[test]
fn a_precondition_costs_the_same_at_every_length() {
    assert_searches(
        read::KEPT_ROW,
        &["SEARCH snapshot USING INDEX sqlite_autoindex_snapshot_1 (scope=? AND id=?)"],
    );
    assert_searches(
        read::CHILDREN_AFTER,
        &["SEARCH snapshot USING INDEX snapshot_by_parent (scope=? AND parent=?)"],
    );
    assert_searches(
        read::KEPT_ROWS,
        &["SEARCH snapshot USING INDEX snapshot_by_position (session=?)"],
    );
    assert_searches(read::SESSION_KEY, &[SCOPE, SESSION]);
}

#[test]
fn children_are_found_by_their_parent() {
    assert_searches(
        &read::CHILDREN,
        &[
            SCOPE,
            "SEARCH snapshot USING INDEX snapshot_by_parent (scope=? AND parent=?)",
        ],
    );
}

#[test]
fn the_rows_of_a_session_are_found_by_it() {
    assert_searches(
        &delete::OF_SESSION,
        &[SCOPE, SESSION, "USING INDEX snapshot_by_position (session=?)"],
    );
}

#[test]
fn pending_rows_are_found_in_an_index_of_their_own() {
    for silent in [false, true] {
        let first = plan(&list::pending(silent, false));
        // The scanned index holds only pending rows, in the requested order.
        assert!(
            first[0].starts_with("SCAN snapshot USING INDEX snapshot_pending"),
            "{first:#?}"
        );
        assert!(
            first.iter().all(|line| !line.contains("TEMP B-TREE")),
            "{first:#?}"
        );
        assert_searches(
            &list::pending(silent, true),
            &[
                "SEARCH snapshot USING INDEX snapshot_pending ((created_at,id,scope)>(?,?,?))",
                "SEARCH session USING INTEGER PRIMARY KEY",
                "SEARCH scope USING INTEGER PRIMARY KEY",
            ],
        );
    }
}

#[test]
fn a_journal_is_found_by_its_turn_and_old_ones_by_their_age() {
    let turn = "SEARCH journal USING INDEX sqlite_autoindex_journal_1 (scope=? AND session=? AND turn=?)";
    assert_searches(journal::RECORDS, &[turn]);
    for sql in [usage_ledger::USED, usage_ledger::OF_SESSION] {
        assert!(
            plan(sql)
                .iter()
                .all(|line| line.starts_with("SEARCH ledger USING PRIMARY KEY"))
        );
    }
    assert!(
        plan(journal::CLEAR)
            .iter()
            .all(|line| line.contains("(scope=? AND session=? AND turn=?)"))
    );
    assert!(
        plan(journal::CLEAR_SESSION)
            .iter()
            .all(|line| line.contains("(scope=? AND session=?)"))
    );
    assert!(
        plan(journal::OLD)
            .iter()
            .any(|line| line.contains("journal_by_age"))
    );
}

#[test]
fn the_neighbours_of_a_name_are_in_its_index() {
    for sql in missing::NEIGHBOURS {
        assert_searches(sql, &["USING COVERING INDEX sqlite_autoindex_"]);
    }
}
