//! Sessions are listed, compared, labelled, forked, copied, moved and deleted over HTTP, by those who may.

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, AgentSession, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_core::Registry;
use everturn_server::{ArchiveAccess, Limits, Principal, Provided, Server, context_fn};
use futures::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::agents::says_in;
use crate::support::{Answer, Served, answer};

#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    dishes: u32,
}

fn chef(registry: &Registry) -> Agent<Kitchen> {
    custom_agent(registry, "chef", |session: AgentSession<Kitchen>| async move {
        session
            .run(|turn| async move {
                turn.update_custom(|kitchen| kitchen.dishes += 1);
                turn.add_message(Message::model("Soup."));
                Ok(FinishReason::Stop)
            })
            .await?;
        Ok(session.result())
    })
    .store(MemoryStore::new())
    .define()
    .unwrap()
}

/// A server that identifies callers by a header, and their roles by another.
fn server(registry: &Registry) -> Server {
    Server::new(registry).context(context_fn(|request| {
        let name = request.header("x-name").unwrap_or("ann");
        let role = request.header("x-role").unwrap_or("reader");
        Ok(Provided::new()
            .with_value("auth", json!({ "role": role }))
            .with_principal(Principal::new(name)))
    }))
}

struct Kitchens {
    server: Served,
    name: &'static str,
}

impl Kitchens {
    async fn open(access: ArchiveAccess) -> Self {
        let registry = Registry::new();
        chef(&registry);
        Self {
            server: Served::start(server(&registry).archive(access)).await,
            name: "ann",
        }
    }

    async fn call(&self, action: &str, data: Value) -> Answer {
        let path = format!("/agents/chef/{action}");
        let request = self.server.request(&path, &json!({ "data": data }));
        answer(request.header("x-name", self.name)).await
    }

    /// Runs a turn and returns the id of its snapshot.
    async fn turn(&self, init: Value) -> String {
        let request = self.server.request("/agents/chef", &says_in("soup?", &init));
        let output = answer(request.header("x-name", self.name)).await.result();
        output["snapshotId"].as_str().unwrap().to_owned()
    }

    /// Runs turns of a session and returns the ids of their snapshots.
    async fn session(&self, session: &str, turns: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..turns {
            ids.push(self.turn(json!({ "sessionId": session })).await);
        }
        ids
    }
}

fn ids<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item[field].as_str().unwrap()).collect()
}

#[tokio::test]
async fn sessions_are_listed_page_by_page_in_both_orders() {
    let kitchens = Kitchens::open(ArchiveAccess::none()).await;
    for session in ["a", "b", "c"] {
        kitchens.session(session, 1).await;
    }

    let newest = kitchens.call("listSessions", Value::Null).await.result();
    let first = kitchens
        .call("listSessions", json!({"order": "ascending", "limit": 2}))
        .await
        .result();
    let second = kitchens
        .call(
            "listSessions",
            json!({"order": "oldest", "limit": 2, "after": first["next"]}),
        )
        .await
        .result();

    assert_eq!(ids(&newest["sessions"], "sessionId"), ["c", "b", "a"]);
    assert_eq!(ids(&first["sessions"], "sessionId"), ["a", "b"]);
    assert_eq!(ids(&second["sessions"], "sessionId"), ["c"]);
    assert!(second.get("next").is_none());
    assert!(newest["sessions"][0]["latest"]["snapshotId"].is_string());
    kitchens
        .call("listSessions", json!({"order": "sideways"}))
        .await
        .assert_failure(400, "INVALID_ARGUMENT");
}

#[tokio::test]
async fn a_tree_has_every_snapshot_with_its_parent_page_by_page() {
    let kitchens = Kitchens::open(ArchiveAccess::none()).await;
    let line = kitchens.session("s", 2).await;
    let branch = kitchens.turn(json!({"snapshotId": line[0]})).await;

    let whole = kitchens.call("tree", json!({"sessionId": "s"})).await.result();
    let first = kitchens
        .call("tree", json!({"sessionId": "s", "limit": 2}))
        .await
        .result();
    let rest = kitchens
        .call("tree", json!({"sessionId": "s", "after": first["next"]}))
        .await
        .result();

    assert_eq!(
        ids(&whole["snapshots"], "snapshotId"),
        [&*line[0], &*line[1], &*branch]
    );
    assert_eq!(whole["snapshots"][2]["parentId"], line[0].as_str());
    assert_eq!(whole["latest"], branch.as_str());
    assert!(whole["snapshots"][0].get("state").is_none());
    assert_eq!(ids(&rest["snapshots"], "snapshotId"), [&*branch]);
    kitchens
        .call("tree", json!({"sessionId": "none"}))
        .await
        .assert_failure(404, "NOT_FOUND");
}

#[tokio::test]
async fn a_tree_has_the_first_words_of_each_turn_on_request() {
    let kitchens = Kitchens::open(ArchiveAccess::none()).await;
    let line = kitchens.session("s", 2).await;

    let plain = kitchens.call("tree", json!({"sessionId": "s"})).await.result();
    let words = json!({"sessionId": "s", "excerpts": true});
    let words = kitchens.call("tree", words).await.result();

    assert!(plain.get("excerpts").is_none());
    assert_eq!(words["excerpts"][&line[0]], "soup?");
    assert_eq!(words["excerpts"].as_object().unwrap().len(), 2);
    assert_eq!(words["snapshots"], plain["snapshots"]);
}

#[tokio::test]
async fn two_snapshots_are_compared() {
    let kitchens = Kitchens::open(ArchiveAccess::none()).await;
    let line = kitchens.session("s", 2).await;

    let diff = json!({"left": line[0], "right": line[1]});
    let diff = kitchens.call("diff", diff).await.result();

    assert_eq!(diff["common"], 2);
    assert_eq!(diff["onlyRight"].as_array().unwrap().len(), 2);
    assert_eq!(
        diff["custom"],
        json!([{"op": "replace", "path": "/dishes", "value": 2}])
    );
}

#[tokio::test]
async fn what_changes_sessions_is_not_there_unless_it_is_switched_on() {
    let kitchens = Kitchens::open(ArchiveAccess::none()).await;
    let line = kitchens.session("s", 1).await;

    for action in ["label", "fork", "copy", "export", "import", "delete"] {
        let refused = kitchens.call(action, json!({"sessionId": "s"})).await;
        refused.assert_no_such_path();
    }

    let document = kitchens.server.get("/openapi.json").await.json();
    assert!(document["paths"].get("/agents/chef/tree").is_some());
    assert!(document["paths"].get("/agents/chef/delete").is_none());
    assert_eq!(
        kitchens
            .call("getSnapshot", json!({"snapshotId": line[0]}))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn what_changes_sessions_is_for_the_role_that_it_is_switched_on_for() {
    let kitchens = Kitchens::open(ArchiveAccess::role("operator")).await;
    kitchens.session("s", 1).await;
    let body = json!({"data": {"sessionId": "s", "to": "t"}});
    let copy = |role: &'static str| {
        let request = kitchens.server.request("/agents/chef/copy", &body);
        answer(request.header("x-role", role))
    };

    let reader = copy("reader").await;
    let operator = copy("operator").await;

    reader.assert_failure(403, "PERMISSION_DENIED");
    assert_eq!(operator.result(), json!({"sessionId": "t", "snapshots": 1}));
    let document = kitchens.server.get("/openapi.json").await.json();
    let described = &document["paths"]["/agents/chef/copy"]["post"]["responses"]["403"];
    assert!(described.is_object());
}

#[tokio::test]
async fn labels_and_notes_are_written_and_taken_off() {
    let kitchens = Kitchens::open(ArchiveAccess::everyone()).await;
    let line = kitchens.session("s", 1).await;
    let id = &line[0];

    let written = json!({"snapshotId": id, "label": "good", "note": "so far"});
    let written = kitchens.call("label", written).await.result();
    let cleared = json!({"snapshotId": id, "unlabel": "good", "note": ""});
    let cleared = kitchens.call("label", cleared).await.result();

    assert_eq!(
        (&written["labels"], &written["note"]),
        (&json!(["good"]), &json!("so far"))
    );
    assert!(
        cleared.get("labels").is_none() && cleared.get("note").is_none(),
        "{cleared}"
    );
    for (data, code, status) in [
        (json!({"snapshotId": id}), 400, "INVALID_ARGUMENT"),
        (
            json!({"snapshotId": id, "label": "x".repeat(200)}),
            400,
            "INVALID_ARGUMENT",
        ),
        (json!({"snapshotId": "none", "label": "x"}), 404, "NOT_FOUND"),
    ] {
        kitchens.call("label", data).await.assert_failure(code, status);
    }
}

#[tokio::test]
async fn a_fork_may_have_an_edited_custom_state_that_fits_the_agent() {
    let kitchens = Kitchens::open(ArchiveAccess::everyone()).await;
    let line = kitchens.session("s", 2).await;

    let edited = json!({"snapshotId": line[0], "sessionId": "t", "custom": {"dishes": 40}});
    let forked = kitchens.call("fork", edited).await.result();
    let unfit = json!({"snapshotId": line[0], "sessionId": "u", "custom": {"dishes": "many"}});
    let unfit = kitchens.call("fork", unfit).await;
    let next = kitchens.turn(json!({"sessionId": "t"})).await;
    let next = kitchens
        .call("getSnapshot", json!({"snapshotId": next}))
        .await
        .result();

    assert_eq!(forked["state"]["custom"], json!({"dishes": 40}));
    assert_eq!(forked["forkedFrom"]["snapshotId"], line[0].as_str());
    assert_eq!(next["state"]["custom"], json!({"dishes": 41}));
    unfit.assert_failure(400, "INVALID_ARGUMENT");
    assert!(unfit.body.contains("/dishes"), "{unfit:?}");
    let list = json!({"sessionId": "u"});
    let list = kitchens.call("listSnapshots", list).await.result();
    assert_eq!(list["snapshots"], json!([]));
    let again = json!({"snapshotId": line[0], "sessionId": "t"});
    kitchens
        .call("fork", again)
        .await
        .assert_failure(409, "ALREADY_EXISTS");
}

#[tokio::test]
async fn snapshots_branches_and_sessions_are_deleted() {
    let kitchens = Kitchens::open(ArchiveAccess::everyone()).await;
    let line = kitchens.session("s", 3).await;

    let branch = kitchens
        .call("delete", json!({"snapshotId": line[1], "branch": true}))
        .await;
    let one = kitchens.call("delete", json!({"snapshotId": line[0]})).await;
    let none = kitchens.call("delete", json!({"sessionId": "s"})).await;

    assert_eq!(branch.result(), json!({"snapshots": 2}));
    assert_eq!(one.result(), json!({"snapshots": 1}));
    none.assert_failure(404, "NOT_FOUND");
    for unclear in [
        json!({}),
        json!({"sessionId": "s", "snapshotId": "x"}),
        json!({"sessionId": "s", "branch": true}),
    ] {
        kitchens
            .call("delete", unclear)
            .await
            .assert_failure(400, "INVALID_ARGUMENT");
    }
}

impl Kitchens {
    async fn download(&self, session: &str) -> Answer {
        let body = json!({"data": {"sessionId": session}});
        let request = self.server.request("/agents/chef/export", &body);
        answer(
            request
                .header("accept", "application/x-ndjson")
                .header("x-name", self.name),
        )
        .await
    }

    async fn upload(&self, init: &Value, lines: impl Into<reqwest::Body>) -> Answer {
        let mut url = reqwest::Url::parse(&self.server.url("/agents/chef/import")).unwrap();
        url.query_pairs_mut().append_pair("init", &init.to_string());
        let request = self.server.client.post(url).body(lines);
        let request = request.header("content-type", "application/x-ndjson");
        answer(request.header("x-name", self.name)).await
    }
}

#[tokio::test]
async fn a_session_is_downloaded_and_uploaded_as_a_file_of_lines() {
    let kitchens = Kitchens::open(ArchiveAccess::everyone()).await;
    let line = kitchens.session("s", 3).await;

    let file = kitchens.download("s").await;
    let copy = kitchens
        .upload(&json!({"sessionId": "t"}), file.body.clone())
        .await;
    let taken = kitchens.upload(&json!({}), file.body.clone()).await;
    let replaced = kitchens
        .upload(&json!({"replace": true}), file.body.clone())
        .await;

    assert_eq!(file.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(file.body.lines().count(), 5);
    assert_eq!(copy.result(), json!({"sessionId": "t", "snapshots": 3}));
    taken.assert_failure(409, "ALREADY_EXISTS");
    assert_eq!(replaced.result(), json!({"sessionId": "s", "snapshots": 3}));
    let read = kitchens.call("getSnapshot", json!({"snapshotId": line[2]})).await;
    assert_eq!(read.result()["state"]["custom"], json!({"dishes": 3}));
    kitchens.download("none").await.assert_failure(404, "NOT_FOUND");
}

#[tokio::test]
async fn a_session_is_exported_and_imported_as_json_and_exported_as_events() {
    let kitchens = Kitchens::open(ArchiveAccess::everyone()).await;
    kitchens.session("s", 2).await;

    let exported = kitchens.call("export", json!({"sessionId": "s"})).await.result();
    let body = json!({"data": exported["lines"], "init": {"sessionId": "t"}});
    let imported = kitchens.server.post("/agents/chef/import", &body).await.result();
    let body = json!({"data": {"sessionId": "s"}});
    let events = kitchens
        .server
        .stream("/agents/chef/export", &body)
        .await
        .events();

    assert_eq!(exported["snapshots"], 2);
    assert_eq!(imported, json!({"sessionId": "t", "snapshots": 2}));
    let lines: Vec<Value> = events
        .iter()
        .filter_map(|event| event.get("message").cloned())
        .collect();
    assert_eq!(json!(lines), exported["lines"]);
    assert_eq!(events.last().unwrap()["result"], json!({"snapshots": 2}));
}

#[tokio::test]
async fn nothing_stays_of_a_file_that_is_cut_off_broken_or_too_large() {
    let registry = Registry::new();
    chef(&registry);
    let limits = Limits::default().lines_bytes(100_000).body_bytes(10_000);
    let server = server(&registry)
        .archive(ArchiveAccess::everyone())
        .limits(limits);
    let kitchens = Kitchens {
        server: Served::start(server).await,
        name: "ann",
    };
    kitchens.session("s", 3).await;
    let file = kitchens.download("s").await.body;
    let into = json!({"sessionId": "t"});
    let cut: String = file.split_inclusive('\n').take(3).collect();
    let garbled = file.replacen("\"row\"", "\"raw\"", 1);

    kitchens
        .upload(&into, cut)
        .await
        .assert_failure(400, "INVALID_ARGUMENT");
    kitchens
        .upload(&into, garbled)
        .await
        .assert_failure(400, "INVALID_ARGUMENT");
    kitchens
        .upload(&into, "not json\n")
        .await
        .assert_failure(400, "INVALID_ARGUMENT");
    kitchens
        .upload(&into, "\"x".repeat(20_000))
        .await
        .assert_failure(413, "INVALID_ARGUMENT");
    let long = format!("{file}{}", "\n".repeat(200_000));
    kitchens
        .upload(&into, long)
        .await
        .assert_failure(413, "INVALID_ARGUMENT");

    let left = kitchens
        .call("listSnapshots", json!({"sessionId": "t"}))
        .await
        .result();
    assert_eq!(left["snapshots"], json!([]));
}

#[tokio::test]
async fn nothing_remains_of_a_file_whose_sender_disconnects() {
    let kitchens = Kitchens::open(ArchiveAccess::everyone()).await;
    kitchens.session("s", 3).await;
    let file = kitchens.download("s").await.body;
    let half: Vec<String> = file.split_inclusive('\n').take(3).map(str::to_owned).collect();
    let pieces = futures::stream::iter(half.into_iter().map(Ok)).chain(futures::stream::once(async {
        Err(std::io::Error::other("unplugged"))
    }));
    let mut url = reqwest::Url::parse(&kitchens.server.url("/agents/chef/import")).unwrap();
    url.query_pairs_mut().append_pair("init", r#"{"sessionId":"t"}"#);

    let broken = kitchens
        .server
        .client
        .post(url)
        .header("content-type", "application/x-ndjson")
        .header("x-name", "ann")
        .body(reqwest::Body::wrap_stream(pieces))
        .send()
        .await;

    assert!(broken.is_err());
    // The active import ends with the server, which waits for it.
    let list = json!({"sessionId": "t"});
    loop {
        let left = kitchens.call("listSnapshots", list.clone()).await.result();
        if left["snapshots"] == json!([]) {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_foreign_session_answers_exactly_like_one_that_does_not_exist() {
    let kitchens = Kitchens::open(ArchiveAccess::everyone()).await;
    let line = kitchens.session("s", 2).await;
    let bob = Kitchens {
        name: "bob",
        ..kitchens
    };
    let (known, unknown) = (line[0].as_str(), "00000000-0000-0000-0000-000000000000");

    for (action, foreign, missing) in [
        ("tree", json!({"sessionId": "s"}), json!({"sessionId": "x"})),
        ("getSession", json!({"sessionId": "s"}), json!({"sessionId": "x"})),
        (
            "listSnapshots",
            json!({"sessionId": "s"}),
            json!({"sessionId": "x"}),
        ),
        ("export", json!({"sessionId": "s"}), json!({"sessionId": "x"})),
        ("delete", json!({"sessionId": "s"}), json!({"sessionId": "x"})),
        (
            "delete",
            json!({"snapshotId": known}),
            json!({"snapshotId": unknown}),
        ),
        (
            "copy",
            json!({"sessionId": "s", "to": "t"}),
            json!({"sessionId": "x", "to": "t"}),
        ),
        (
            "diff",
            json!({"left": known, "right": known}),
            json!({"left": unknown, "right": unknown}),
        ),
        (
            "label",
            json!({"snapshotId": known, "label": "mine"}),
            json!({"snapshotId": unknown, "label": "mine"}),
        ),
        (
            "fork",
            json!({"snapshotId": known, "sessionId": "t"}),
            json!({"snapshotId": unknown, "sessionId": "t"}),
        ),
    ] {
        let foreign = bob.call(action, foreign).await;
        let missing = bob.call(action, missing).await;

        let renamed = foreign.body.replace(known, unknown).replace("'s'", "'x'");
        assert_eq!(
            (foreign.status, renamed),
            (missing.status, missing.body.clone()),
            "{action}"
        );
    }
    assert_eq!(
        bob.call("listSessions", Value::Null).await.result()["sessions"],
        json!([])
    );
    let ann = Kitchens { name: "ann", ..bob };
    let tree = ann.call("tree", json!({"sessionId": "s"})).await.result();
    assert_eq!(ids(&tree["snapshots"], "snapshotId"), [&*line[0], &*line[1]]);
}
