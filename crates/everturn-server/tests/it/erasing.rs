//! Deleting a session or a tenant leaves nothing of it: no snapshot, no journal, no kept stream, no byte in
//! any file.

use std::path::Path;
use std::sync::Arc;

use everturn_agent::Agent;
use everturn_agent::archive::Retention;
use everturn_agent::store::{JournalKey, JournalRecord, SessionStore};
use everturn_core::{Principal, Registry};
use everturn_server::{ArchiveAccess, BearerTokens, Server};
use everturn_sqlite::{SqliteStore, SqliteStreamLog};
use serde_json::{Value, json};

use crate::support::agents::{parrot_in, says, says_in};
use crate::support::{Answer, Served, answer};

const SECRET: &str = "canary-51ab07";

struct Desk {
    folder: tempfile::TempDir,
    server: Served,
    agent: Agent,
    store: Arc<SqliteStore>,
    log: Arc<SqliteStreamLog>,
    _registry: Registry,
}

impl Desk {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::options(folder.path().join("sessions.db"))
            .encoding(everturn_sqlite::Encoding::default().without_compression());
        let store = Arc::new(store.open().await.unwrap());
        let log = SqliteStreamLog::open(folder.path().join("streams.db"))
            .await
            .unwrap();
        let log = Arc::new(log);
        let registry = Registry::new();
        let agent = parrot_in(&registry, Some(Arc::clone(&store) as Arc<dyn SessionStore>));
        let tokens = BearerTokens::new([
            ("alice", "alice-token"),
            ("bob", "bob-token"),
            ("olga", "olga-token"),
        ]);
        let server = Server::new(&registry)
            .context(tokens.with_role("olga", "operator"))
            .stream_log(SqliteStreamLog::clone(&log))
            .archive(ArchiveAccess::everyone())
            .operators(ArchiveAccess::role("operator"));
        Self {
            server: Served::start(server).await,
            folder,
            agent,
            store,
            log,
            _registry: registry,
        }
    }

    async fn call(&self, token: &str, path: &str, data: Value) -> Answer {
        let body = json!({ "data": data });
        answer(self.server.request(path, &body).bearer_auth(token)).await
    }

    /// Streams a turn, which is kept in the stream log too.
    async fn say(&self, token: &str, body: &Value) {
        let request = self.server.request("/agents/parrot", body).bearer_auth(token);
        let streamed = answer(request.header("accept", "text/event-stream")).await;
        assert_eq!(streamed.status, 200, "{streamed:?}");
    }

    /// Writes a journal of a turn that has not ended.
    async fn journal(&self, customer: &str, session: &str) {
        let record = JournalRecord {
            sequence: 0,
            body: json!(SECRET),
        };
        let key = JournalKey::new(session.into(), "turn");
        let journal = self.store.journal().unwrap();
        let scope = Principal::new(customer).scope();
        journal.append(&scope, &key, record, None).await.unwrap();
    }
}

/// A user's message in a session.
fn within(session: &str, text: &str) -> Value {
    says_in(text, &json!({ "sessionId": session }))
}

/// Returns the files that hold a text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let holds = |path: &std::path::PathBuf| {
        let content = std::fs::read(path).unwrap();
        content
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    files
        .filter(holds)
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn an_operator_erases_a_tenant_and_no_file_holds_its_text() {
    let desk = Desk::new().await;
    desk.say("alice-token", &says(&format!("{SECRET} first"))).await;
    desk.say("alice-token", &within("other", &format!("{SECRET} second")))
        .await;
    desk.journal("alice", "unfinished").await;
    desk.say("bob-token", &says("bob's own words")).await;
    let before = holding(desk.folder.path(), SECRET).join(" ");
    assert!(
        before.contains("sessions.db") && before.contains("streams.db"),
        "{before}"
    );

    let listed = desk
        .call("olga-token", "/agents/parrot/listTenants", json!({}))
        .await
        .result();
    assert_eq!(listed["tenants"].as_array().unwrap().len(), 2);
    let alice = Principal::new("alice").scope();
    assert_eq!(listed["principals"][alice.as_str()], "alice");
    let erased = desk
        .call(
            "olga-token",
            "/agents/parrot/deleteTenant",
            json!({ "principal": "alice" }),
        )
        .await
        .result();

    assert_eq!(erased["snapshots"], 2);
    assert_eq!(holding(desk.folder.path(), SECRET), [""; 0]);
    let listed = desk
        .call("olga-token", "/agents/parrot/listTenants", json!({}))
        .await
        .result();
    assert_eq!(listed["tenants"], json!([Principal::new("bob").scope().as_str()]));
    let bobs = desk
        .call("bob-token", "/agents/parrot/listSessions", json!({}))
        .await
        .result();
    assert_eq!(bobs["sessions"].as_array().unwrap().len(), 1);
    assert!(!holding(desk.folder.path(), "bob's own words").is_empty());
}

#[tokio::test]
async fn customers_can_neither_list_nor_erase_tenants() {
    let desk = Desk::new().await;
    desk.say("bob-token", &says("hello")).await;

    for path in ["listTenants", "deleteTenant", "retain"] {
        let path = format!("/agents/parrot/{path}");
        let refused = desk.call("alice-token", &path, json!({})).await;
        refused.assert_failure(403, "PERMISSION_DENIED");
    }
    let neither = desk
        .call("olga-token", "/agents/parrot/deleteTenant", json!({}))
        .await;
    neither.assert_failure(400, "INVALID_ARGUMENT");
    assert_eq!(
        desk.agent
            .tenants()
            .unwrap()
            .list(None)
            .await
            .unwrap()
            .items
            .len(),
        1
    );
}

#[tokio::test]
async fn deleting_a_session_erases_its_streams_and_no_others() {
    let desk = Desk::new().await;
    desk.say("alice-token", &within("gone", &format!("{SECRET} gone")))
        .await;
    desk.journal("alice", "gone").await;
    desk.say("alice-token", &within("kept", "words to keep")).await;

    let deleted = desk
        .call(
            "alice-token",
            "/agents/parrot/delete",
            json!({ "sessionId": "gone" }),
        )
        .await
        .result();

    assert_eq!(deleted["snapshots"], 1);
    assert_eq!(holding(desk.folder.path(), SECRET), [""; 0]);
    let kept = holding(desk.folder.path(), "words to keep").join(" ");
    assert!(
        kept.contains("sessions.db") && kept.contains("streams.db"),
        "{kept}"
    );
}

#[tokio::test]
async fn the_program_erases_a_tenant_through_its_archive() {
    let desk = Desk::new().await;
    desk.say("alice-token", &says(SECRET)).await;
    let alice = Principal::new("alice").context();

    let deleted = desk.agent.archive_in(&alice).unwrap().delete_all().await.unwrap();

    assert_eq!(deleted, 1);
    assert_eq!(holding(desk.folder.path(), SECRET), [""; 0]);
    // The log belongs to the server, which has registered it with the agent.
    assert!(Arc::strong_count(&desk.log) > 0);
}

#[tokio::test]
async fn retention_reaches_every_tenant() {
    let desk = Desk::new().await;
    for token in ["alice-token", "bob-token"] {
        desk.say(token, &within("s", &format!("{SECRET} one"))).await;
        desk.say(token, &within("s", "two")).await;
    }

    let rules = Retention::default().newest(1);
    let report = desk.agent.tenants().unwrap().retain(&rules).await.unwrap();
    let retained = desk
        .call(
            "olga-token",
            "/agents/parrot/retain",
            json!({ "maxAgeSeconds": 0 }),
        )
        .await
        .result();

    assert_eq!((report.sessions, report.snapshots), (2, 2));
    assert_eq!(
        (&retained["sessions"], &retained["snapshots"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(holding(desk.folder.path(), SECRET), [""; 0]);
    assert!(
        desk.agent
            .tenants()
            .unwrap()
            .list(None)
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn erasing_an_unknown_tenant_is_not_found_and_a_request_runs_once() {
    let desk = Desk::new().await;
    desk.say("alice-token", &says("hello")).await;
    let delete =
        async |data: serde_json::Value| desk.call("olga-token", "/agents/parrot/deleteTenant", data).await;

    for nobody in [
        json!({ "principal": "alcie" }),
        json!({ "tenant": "principal-0" }),
    ] {
        delete(nobody).await.assert_failure(404, "NOT_FOUND");
    }
    let request = json!({ "principal": "alice", "requestId": "ticket 7" });
    assert_eq!(delete(request.clone()).await.result()["snapshots"], 1);
    assert_eq!(delete(request.clone()).await.result()["snapshots"], 1);
    delete(json!({ "principal": "alice" }))
        .await
        .assert_failure(404, "NOT_FOUND");

    // She comes back: the request is not carried out again.
    desk.say("alice-token", &says("hello again")).await;
    assert_eq!(delete(request).await.result()["snapshots"], 1);
    let listed = desk
        .call("olga-token", "/agents/parrot/listTenants", json!({}))
        .await
        .result();
    assert_eq!(listed["tenants"].as_array().unwrap().len(), 1, "{listed}");
    desk.say("bob-token", &says("hello")).await;
    let other = json!({ "principal": "bob", "requestId": "ticket 7" });
    delete(other).await.assert_failure(400, "INVALID_ARGUMENT");
}
