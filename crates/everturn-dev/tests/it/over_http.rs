//! The reflection API over HTTP.

use everturn_dev::Environment;
use serde_json::{Value, json};

use crate::support::{TraceServer, echoing_chef, program, request, run_action, started};

fn development() -> Environment {
    Environment {
        development: true,
        ..Environment::default()
    }
}

#[tokio::test]
async fn the_tools_find_the_program_by_its_file_until_it_ends() {
    let (tools, folder) = started(&program(), development()).await;
    let runtimes = folder.path().join(".genkit/runtimes");
    let files = || {
        std::fs::read_dir(&runtimes)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect::<Vec<_>>()
    };

    let found = files();
    assert_eq!(found.len(), 1, "{found:?}");
    let info: Value = serde_json::from_str(&std::fs::read_to_string(&found[0]).unwrap()).unwrap();
    assert_eq!(info["reflectionServerUrl"], tools.url().unwrap());
    assert_eq!(info["reflectionApiSpecVersion"], 1);
    assert_eq!(info["pid"], std::process::id());
    let health = |id: &str| {
        let path = format!("/api/__health?id={id}");
        let url = tools.url().unwrap().to_owned();
        async move { request(&url, "GET", &path, "", "").await.status }
    };
    assert_eq!(health(info["id"].as_str().unwrap()).await, 200);
    assert_eq!(health("somebody-else").await, 503);

    tools.end().await;
    assert!(files().is_empty());
}

#[tokio::test]
async fn an_id_from_the_environment_and_the_own_one_are_both_healthy() {
    let environment = Environment {
        runtime_id: Some("my id".to_owned()),
        ..development()
    };
    let (tools, _folder) = started(&program(), environment).await;
    let url = tools.url().unwrap();
    let port = url.rsplit_once(':').unwrap().1;

    for id in ["my%20id".to_owned(), format!("{}-{port}", std::process::id())] {
        let health = request(url, "GET", &format!("/api/__health?id={id}"), "", "").await;
        assert_eq!(health.status, 200, "{id}");
    }
}

#[tokio::test]
async fn a_flow_runs_with_its_trace_named_in_head_and_body() {
    let traces = TraceServer::new().await;
    let environment = Environment {
        telemetry_server: Some(traces.url.clone()),
        realtime: true,
        ..development()
    };
    let (tools, _folder) = started(&program(), environment).await;

    let body = json!({ "key": "/flow/hello", "input": "Ann", "context": null, "telemetryLabels": { "batchRun": "L1" } });
    let answer = run_action(tools.url().unwrap(), body).await;

    assert_eq!(answer.json()["result"], "Hello, Ann!");
    let trace = answer.header("x-genkit-trace-id").unwrap();
    assert_eq!(answer.json()["telemetry"]["traceId"], trace);
    // Other tests of this program are traced as well.
    let spans: Vec<_> = traces
        .spans()
        .into_iter()
        .filter(|span| span["traceId"] == trace)
        .collect();
    let (running, over): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span["endTime"] == 0.0);
    assert_eq!(
        (running.len(), over.len()),
        (2, 2),
        "the beginning and the end of two spans before the answer"
    );
    let root = over
        .iter()
        .find(|span| span.get("parentSpanId").is_none())
        .unwrap();
    assert_eq!(root["spanId"], answer.header("x-genkit-span-id").unwrap());
    assert_eq!(root["attributes"]["batchRun"], "L1");
    assert_eq!(root["attributes"]["genkit:output"], r#""Hello, Ann!""#);
    assert!(!spans.iter().any(has_null), "{spans:?}");
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(members) => members.values().any(has_null),
        _ => false,
    }
}

#[tokio::test]
async fn chunks_are_lines_and_the_last_object_has_no_newline() {
    let (tools, _folder) = started(&program(), development()).await;
    let url = tools.url().unwrap();

    let body = json!({ "key": "/flow/count", "input": 2 }).to_string();
    let counted = request(url, "POST", "/api/runAction?stream=true", "", &body).await;
    let body = json!({ "key": "/flow/fail" }).to_string();
    let failed = request(url, "POST", "/api/runAction?stream=true", "", &body).await;

    assert!(
        counted.body.starts_with("0\n1\n{\"result\":\"counted\""),
        "{}",
        counted.body
    );
    assert!(!counted.body.ends_with('\n'));
    assert_eq!(failed.json()["error"]["code"], 13);
    assert!(failed.json()["error"]["details"]["traceId"].is_string());
}

#[tokio::test]
async fn errors_are_objects_that_the_tools_can_print() {
    let (tools, _folder) = started(&program(), development()).await;
    let url = tools.url().unwrap();

    let failed = run_action(url, json!({ "key": "/flow/fail" })).await;
    assert_eq!(
        (failed.status, &failed.json()["error"]["message"]),
        (200, &json!("boom"))
    );
    let invalid = run_action(url, json!({ "key": "/flow/hello", "input": 7 })).await;
    assert_eq!(
        (invalid.status, &invalid.json()["error"]["code"]),
        (200, &json!(3))
    );
    let unknown = run_action(url, json!({ "key": "/flow/none" })).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json()["message"], "action /flow/none not found");
    let malformed = request(url, "POST", "/api/runAction", "", "{").await;
    assert_eq!((malformed.status, &malformed.json()["code"]), (400, &json!(3)));
}

#[tokio::test]
async fn a_run_is_cancelled_by_its_trace_and_only_once() {
    let (tools, _folder) = started(&program(), development()).await;
    let url = tools.url().unwrap().to_owned();
    let waiting = tokio::spawn({
        let url = url.clone();
        async move { run_action(&url, json!({ "key": "/flow/wait" })).await }
    });
    let trace = loop {
        let list = tools.traces().answer("traces").unwrap();
        let mut traces = list["traces"].as_array().unwrap().iter();
        let found = traces.find(|trace| trace["displayName"] == "wait" && trace["endTime"] == 0.0);
        if let Some(found) = found {
            break found["traceId"].as_str().unwrap().to_owned();
        }
        tokio::task::yield_now().await;
    };
    let cancel = || {
        let body = json!({ "traceId": trace }).to_string();
        let url = url.clone();
        async move { request(&url, "POST", "/api/cancelAction", "", &body).await }
    };

    assert_eq!(cancel().await.status, 200);
    let answer = waiting.await.unwrap().json();
    assert_eq!(answer["error"]["code"], 1);
    assert_eq!(answer["error"]["message"], "Action was cancelled");
    assert_eq!(cancel().await.status, 404);
}

#[tokio::test]
async fn pages_and_foreign_names_are_refused() {
    let (tools, _folder) = started(&program(), development()).await;
    let url = tools.url().unwrap();
    let body = json!({ "key": "/flow/hello", "input": "Ann" }).to_string();

    for headers in [
        "origin: https://example.com\r\n",
        "origin: http://localhost:4000\r\n",
        "host: example.com\r\n",
        "host: localhost.example.com:3100\r\n",
    ] {
        let answer = request(url, "POST", "/api/runAction", headers, &body).await;
        assert_eq!(answer.status, 403, "{headers}");
    }
}

#[tokio::test]
async fn actions_of_types_unknown_to_the_tools_are_not_listed() {
    let registry = program();
    everturn_agent::agent(&registry, "chef")
        .system("You cook.")
        .store(everturn_agent::store::MemoryStore::new())
        .define()
        .unwrap();
    let (tools, _folder) = started(&registry, development()).await;

    let listed = request(tools.url().unwrap(), "GET", "/api/actions", "", "")
        .await
        .json();

    let keys: Vec<_> = listed.as_object().unwrap().keys().collect();
    assert!(listed["/agent/chef"]["metadata"]["agent"].is_object(), "{keys:?}");
    assert!(
        !keys.iter().any(|key| key.starts_with("/agent-session")),
        "{keys:?}"
    );
}

#[tokio::test]
async fn snapshots_are_read_under_the_keys_of_earlier_designs() {
    let registry = program();
    let chef = echoing_chef(&registry);
    let reply = chef.run_text("leeks").await.unwrap();
    let (session, snapshot) = (reply.session_id().unwrap(), reply.snapshot_id().unwrap());
    let (tools, _folder) = started(&registry, development()).await;
    let ask = |key: &str, input: Value| {
        let (url, body) = (
            tools.url().unwrap().to_owned(),
            json!({ "key": key, "input": input }),
        );
        async move { run_action(&url, body).await.json()["result"].clone() }
    };

    for store in ["session-store", "snapshot-store"] {
        let one = ask(
            &format!("/{store}/chef/getSnapshot"),
            json!({ "snapshotId": snapshot }),
        )
        .await;
        assert_eq!(one["snapshotId"], snapshot.as_str(), "{store}");
        let all = ask(
            &format!("/{store}/chef/listSnapshots"),
            json!({ "sessionId": session }),
        )
        .await;
        assert_eq!(
            all[0]["state"]["messages"][0]["content"][0]["text"], "leeks",
            "{store}"
        );
    }
    let session_now = ask("/session-store/chef/getSession", json!({ "sessionId": session })).await;
    assert_eq!(session_now["id"], session.as_str());
    assert_eq!(session_now["state"]["messages"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_long_session_is_listed_in_pages_of_bounded_size() {
    let registry = program();
    let chef = echoing_chef(&registry);
    // The model repeats the texts, and every snapshot contains all earlier ones.
    for _ in 0..4 {
        chef.chat()
            .resume("long")
            .run("x".repeat(1_000_000))
            .await
            .unwrap();
    }
    let (tools, _folder) = started(&registry, development()).await;
    let list = async |key: &str, after: &Value| {
        let mut input = json!({ "sessionId": "long", "whole": true });
        if !after.is_null() {
            input["after"] = after.clone();
        }
        let answer = run_action(tools.url().unwrap(), json!({ "key": key, "input": input })).await;
        assert!(answer.body.len() < 12_000_000, "{} bytes", answer.body.len());
        answer.json()["result"].clone()
    };

    let (mut listed, mut pages, mut next) = (0, 0, Value::Null);
    loop {
        let page = list("/agent-snapshots/chef", &next).await;
        listed += page["snapshots"].as_array().unwrap().len();
        pages += 1;
        next = page["next"].clone();
        if next.is_null() {
            break;
        }
    }
    let first = list("/session-store/chef/listSnapshots", &Value::Null).await;

    assert_eq!(listed, 4);
    assert!(pages > 1);
    assert!(first.as_array().unwrap().len() < 4);
}

#[tokio::test]
async fn a_body_whose_values_would_take_too_much_memory_is_refused() {
    let (tools, _folder) = started(&program(), development()).await;

    let objects = vec![r#"{"":0}"#; 200_000].join(",");
    let body = format!(r#"{{"key":"/flow/hello","input":[{objects}]}}"#);
    let answer = request(tools.url().unwrap(), "POST", "/api/runAction", "", &body).await;

    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("bytes of memory"), "{}", answer.body);
}
