//! The stored form of sessions: the tables of the databases and the files of the file store. The export
//! format is in `histories.txt`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use everturn_postgres::{PostgresMetrics, PostgresStore, PostgresStreamLog};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use super::assert_recorded;
use super::client::{Client, program, reply, says_at};
use super::native::shapes;
use crate::served::Testbed;

/// Runs two turns and a branch on a store.
fn used(store: &str) -> Testbed {
    let server = Testbed::start(store);
    server.program(&program([reply("Soup.")]));
    let client = Client::new(server.host());
    let turn = |agent: &str, init: Value| {
        let json = [("content-type", "application/json")];
        client
            .unrecorded("POST", agent, &json, &says_at("hi", &init).to_string())
            .snapshot()
    };
    let first = turn("/promptAgentWithStore", json!({"sessionId": "dinner"}));
    turn("/promptAgentWithStore", json!({"sessionId": "dinner"}));
    turn("/promptAgentWithStore", json!({"snapshotId": first}));
    turn("/extendedAgentWithStore", json!({"sessionId": "supper"}));
    server
}

#[test]
fn tables_of_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let server = used(&format!("sqlite:{}", path.display()));
    server.signal("TERM");
    server.wait();
    let mut tables = String::new();
    for (title, path) in [
        ("sessions", path),
        ("streams", folder.path().join("sessions.db-streams")),
    ] {
        writeln!(tables, "-- {title}").unwrap();
        let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        for pragma in ["application_id", "user_version", "journal_mode"] {
            let query = format!("SELECT CAST({pragma} AS TEXT) FROM pragma_{pragma}");
            let value: String = database.query_row(&query, [], |row| row.get(0)).unwrap();
            writeln!(tables, "PRAGMA {pragma} = {value}").unwrap();
        }
        let query = "SELECT coalesce(sql, '-- ' || name) FROM sqlite_master ORDER BY type DESC, name";
        let mut statement = database.prepare(query).unwrap();
        for sql in statement.query_map([], |row| row.get::<_, String>(0)).unwrap() {
            writeln!(tables, "{};", sql.unwrap()).unwrap();
        }
    }
    assert_recorded("sqlite.sql", &tables);
}

#[test]
fn tables_of_postgresql() {
    let sessions = PostgresStore::migration_sql("everturn", 0);
    let streams = PostgresStreamLog::migration_sql("everturn", 0);
    assert_recorded(
        "postgresql.sql",
        &format!("-- sessions\n{sessions}\n-- streams\n{streams}"),
    );
    let metrics = PostgresMetrics::default().to_prometheus();
    assert_recorded("postgresql_metrics.txt", &shapes(&metrics));
}

#[test]
fn files_of_the_file_store() {
    let folder = tempfile::tempdir().unwrap();
    let server = used(&format!("file:{}", folder.path().join("store").display()));
    drop(server);
    let mut lines = Vec::new();
    describe(folder.path(), folder.path(), &mut lines);
    assert_recorded("file_store.txt", &lines.join("\n"));
}

/// Lists the files below a folder, each with the paths of the keys in its JSON.
fn describe(root: &Path, folder: &Path, lines: &mut Vec<String>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for entry in entries {
        let name = entry.strip_prefix(root).unwrap().display().to_string();
        if entry.is_dir() {
            lines.push(format!("{name}/"));
            describe(root, &entry, lines);
            continue;
        }
        lines.push(name);
        let content = std::fs::read(&entry).unwrap();
        let mut keys = BTreeSet::new();
        for json in serde_json::Deserializer::from_slice(&content).into_iter() {
            paths(&json.unwrap(), String::new(), &mut keys);
        }
        lines.extend(keys.into_iter().map(|key| format!("    {key}")));
    }
}

fn paths(value: &Value, path: String, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                paths(value, format!("{path}.{name}"), keys);
            }
        }
        Value::Array(items) => {
            for item in items {
                paths(item, format!("{path}[]"), keys);
            }
        }
        _ => {
            keys.insert(path);
        }
    }
}
