//! The log of recent traces.

use everturn_ai::{Tool, ToolContext};
use everturn_dev::Environment;
use everturn_testkit::{Gate, Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::support::{echoing_chef, program, request, run_action, started};

#[tokio::test]
async fn a_trace_is_listed_and_read_with_its_spans() {
    let (tools, _folder) = started(&program(), Environment::default()).await;
    let url = tools.url().unwrap();
    let ran = run_action(url, json!({ "key": "/flow/hello", "input": "Ann" })).await;
    let id = ran.header("x-genkit-trace-id").unwrap();

    let list = request(url, "GET", "/api/dev/traces?limit=1000", "", "")
        .await
        .json();
    let trace = request(url, "GET", &format!("/api/dev/traces/{id}"), "", "")
        .await
        .json();

    let line = list["traces"]
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["traceId"] == id)
        .unwrap();
    assert_eq!(line["displayName"], "hello");
    assert_eq!(line["state"], "success");
    assert_eq!(trace["spans"].as_object().unwrap().len(), 2);
    let missing = request(url, "GET", "/api/dev/traces/none", "", "").await;
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn traces_are_found_by_session_and_snapshot() {
    let registry = program();
    let chef = echoing_chef(&registry);
    let (tools, _folder) = started(&registry, Environment::default()).await;

    let reply = chef.run_text("leeks").await.unwrap();
    chef.run_text("onions").await.unwrap();

    let session = reply.session_id().unwrap();
    for query in [
        format!("sessionId={session}"),
        format!("snapshotId={}", reply.snapshot_id().unwrap()),
    ] {
        let found = tools.traces().answer(&format!("traces?{query}")).unwrap();
        let found = found["traces"].as_array().unwrap();
        assert_eq!(found.len(), 1, "{query}");
        assert_eq!(found[0]["sessionId"], session.as_str(), "{query}");
    }
}

#[tokio::test]
async fn the_journal_of_a_turn_is_in_its_trace_while_the_turn_runs_and_its_snapshot_afterwards() {
    let registry = program();
    let gate = Gate::new();
    let model = ScriptedModel::new()
        .reply(Reply::tool("stock", json!({ "item": "leeks" })))
        .reply(Reply::text("Done.").wait(&gate));
    model.register(&registry, "model").unwrap();
    let stock = Tool::new("stock", "Stocks.", |_: Value, _: ToolContext| async {
        Ok("stocked")
    });
    let chef = everturn_agent::agent(&registry, "chef")
        .model("model")
        .tool(stock)
        .store(everturn_agent::store::MemoryStore::new())
        .define()
        .unwrap();
    let (tools, _folder) = started(&registry, Environment::default()).await;
    let inputs = |named: &str| -> Vec<String> {
        let list = tools.traces().answer("traces?sessionId=s").unwrap();
        let id = list["traces"][0]["traceId"].as_str().unwrap();
        let trace = tools.traces().answer(&format!("traces/{id}")).unwrap();
        let spans = trace["spans"].as_object().unwrap().values();
        spans
            .filter(|span| span["displayName"] == named)
            .map(|span| span["attributes"]["genkit:input"].as_str().unwrap().to_owned())
            .collect()
    };

    let chat = chef.chat().resume("s");
    let turn = tokio::spawn(async move { chat.run("leeks").await });
    gate.reached().await;

    let journal = inputs("journal").join("\n");
    assert!(
        journal.contains("replied") && journal.contains("stocked"),
        "{journal}"
    );
    assert!(inputs("snapshot").is_empty());
    gate.open();
    let reply = turn.await.unwrap().unwrap();
    assert_eq!(
        inputs("snapshot"),
        [format!("\"{}\"", reply.snapshot_id().unwrap())]
    );
}
