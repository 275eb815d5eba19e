//! Clients that leave: the turn is cancelled, what it had finished is kept, and the conversation is free.

use everturn_testkit::{Gate, Reply, ScriptedModel};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::support::{Served, answer};

/// Repeats a turn of the conversation until the turn before it is gone.
async fn next_turn(server: &Served) -> Value {
    loop {
        let next = server
            .respond(json!({"input": "again", "conversation": "c"}))
            .await;
        if next.status != 409 {
            return next.json();
        }
        tokio::task::yield_now().await;
    }
}

async fn reached(gate: &Gate) {
    while !gate.is_reached() {
        tokio::task::yield_now().await;
    }
}

/// The phase of the turn in which the client disconnects.
#[derive(Debug, Clone, Copy)]
enum Phase {
    NothingSaid,
    HalfSaid,
    ToolRan,
}

#[tokio::test]
async fn a_turn_whose_client_disconnects_is_cancelled_and_keeps_its_finished_rounds() {
    let phases = [Phase::NothingSaid, Phase::HalfSaid, Phase::ToolRan];
    let ways = [("/responses", false), ("/responses", true)];
    let ways = ways
        .into_iter()
        .chain([("/chat/completions", false), ("/chat/completions", true)]);
    for ((path, streams), phase) in ways.flat_map(|way| phases.map(|phase| (way, phase))) {
        let gate = Gate::new();
        let blocked = Reply::text("One two.");
        let model = match phase {
            Phase::NothingSaid => ScriptedModel::new().reply(blocked.wait(&gate)),
            Phase::HalfSaid => ScriptedModel::new().reply(blocked.chunk("One ").wait(&gate)),
            Phase::ToolRan => {
                let look = Reply::tool("look", json!({}));
                ScriptedModel::new().reply(look).reply(blocked.wait(&gate))
            }
        };
        let model = model.reply("Free.");
        let server = Served::with(model, |server| server).await;
        let body = json!({
            "model": "keeper", "stream": streams, "conversation": "c",
            "input": "hi", "messages": [{"role": "user", "content": "hi"}],
        });
        let request = server
            .request("POST", path)
            .header("x-conversation-id", "c")
            .json(&body);

        let leaving = tokio::spawn(async move {
            let response = request.send().await?;
            response.text().await
        });
        reached(&gate).await;
        leaving.abort();

        let next = next_turn(&server).await;
        let what = format!("{path} {streams} {phase:?}");
        assert_eq!(next["output"][0]["content"][0]["text"], "Free.", "{what}");
        let rounds = usize::from(matches!(phase, Phase::ToolRan));
        assert_eq!(
            server.asked().len(),
            3 + 2 * rounds,
            "{what}: the message and its finished rounds are kept"
        );
    }
}

#[tokio::test]
async fn a_retry_of_a_cancelled_turn_runs_it() {
    let gate = Gate::new();
    let model = ScriptedModel::new()
        .reply(Reply::text("Lost.").wait(&gate))
        .reply("Kept.");
    let server = Served::with(model, |server| server).await;
    let body = json!({"model": "keeper", "input": "hi"});
    let ask = |tries: u32| {
        let request = server.request("POST", "/responses").json(&body);
        request.header("x-stainless-retry-count", tries)
    };

    let leaving = tokio::spawn(ask(0).send());
    reached(&gate).await;
    leaving.abort();
    let again = answer(ask(1)).await.json();

    assert_eq!(again["output"][0]["content"][0]["text"], "Kept.");
}

#[tokio::test]
async fn background_work_continues_without_its_reader() {
    let gate = Gate::new();
    let model = ScriptedModel::new().reply(Reply::text("Done.").wait(&gate));
    let server = Served::with(model, |server| server).await;
    let body = json!({"model": "keeper", "input": "hi", "background": true, "stream": true, "metadata": {"who": "ann"}});

    let mut response = server
        .request("POST", "/responses")
        .json(&body)
        .send()
        .await
        .unwrap();
    let mut head = String::new();
    while !head.contains("\n\n") {
        head.push_str(&String::from_utf8_lossy(
            &response.chunk().await.unwrap().unwrap(),
        ));
    }
    drop(response);
    let data = head.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let created: Value = serde_json::from_str(data).unwrap();
    let path = format!("/responses/{}", created["response"]["id"].as_str().unwrap());
    let pending = server.get(&path).await.json();
    assert_eq!(pending["status"], "in_progress");
    assert_eq!(pending["metadata"], json!({"who": "ann"}));
    gate.open();

    let done = server.get(&format!("{path}?stream=true")).await.events();
    assert_eq!(done.last().unwrap()["type"], "response.completed");
    let stored = server.get(&path).await.json();
    assert_eq!(stored["output"][0]["content"][0]["text"], "Done.");
    assert_eq!(
        (&stored["metadata"], &stored["background"]),
        (&json!({"who": "ann"}), &json!(true))
    );
}

#[tokio::test]
async fn a_request_that_breaks_off_runs_nothing() {
    let server = Served::answering(["never", "one"]).await;
    let address = server.address();
    let mut half = tokio::net::TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "POST /v1/responses HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
    );
    half.write_all(head.as_bytes()).await.unwrap();
    half.write_all(b"{\"model\": \"keeper\", \"inp").await.unwrap();
    drop(half);

    server.get("/models").await.json();

    server.model.assert_calls(0);
}
