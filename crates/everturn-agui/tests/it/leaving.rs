//! Clients that leave or stop a run, and servers that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::IntoStore;
use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_core::stream_log::MemoryStreamLog;
use everturn_sqlite::SqliteStore;
use everturn_testkit::{Gate, Reply, ScriptedModel};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::support::{Answer, Served, answer, call, first, user};

/// Starts a run of `keeper` and returns its body once it has begun.
async fn begun(server: &Served, run: &str, messages: Value) -> reqwest::Response {
    let body = json!({"threadId": "t", "runId": run, "protocolVersion": "1.0", "messages": messages});
    let response = server
        .request("POST", "/agui/keeper")
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    response
}

#[tokio::test]
async fn leaving_cancels_the_turn_and_the_thread_is_free() {
    let gate = Gate::new();
    let model = ScriptedModel::new()
        .reply(Reply::text("Half an answer.").chunk("Half").wait(&gate))
        .reply("Whole.");
    let server = Served::with(model, |server| server).await;

    let response = begun(&server, "r1", json!([user("u1", "1")])).await;
    let mut body = response.bytes_stream();
    let mut read = String::new();
    while !read.contains("Half") {
        read.push_str(&String::from_utf8_lossy(&body.next().await.unwrap().unwrap()));
    }
    let busy = server.run("r2", json!([user("u2", "2")])).await;
    assert_eq!(busy.error().1, "ABORTED");
    assert_eq!(busy.status, 409);
    drop(body);
    // Messages of the stopped turn are skipped, so that the user messages before them count.
    let data = read
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    let half = json!({
        "id": first(&events, "TEXT_MESSAGE_START")["messageId"], "role": "assistant", "content": "Half",
    });
    let messages = json!([user("u1", "1"), half, user("u2", "2")]);
    let answer = next_run(&server, messages, json!({})).await;

    assert_eq!(answer.text(), "Whole.");
    assert_eq!(server.asked()[1..], ["user: 1", "user: 2"].map(str::to_owned));
    assert_eq!(server.thread().await.len(), 3);
}

/// Repeats a run of `keeper` until the run before it is gone: the server learns from the connection that the
/// client has left.
async fn next_run(server: &Served, messages: Value, more: Value) -> Answer {
    for run in 0.. {
        let run = format!("next-{run}");
        let answer = server
            .run_of("keeper", &run, messages.clone(), more.clone())
            .await;
        if answer.status != 409 {
            return answer;
        }
        tokio::task::yield_now().await;
    }
    unreachable!("runs are numbered without end")
}

/// Sends a request, waits until the gate is reached, and leaves.
async fn leave(request: reqwest::RequestBuilder, gate: &Gate) {
    let leaving = tokio::spawn(async move { request.send().await?.text().await });
    gate.reached().await;
    leaving.abort();
}

/// The adapters, each with a turn of `keeper` in the thread `t`.
fn ways() -> [(&'static str, Value); 3] {
    let said = json!([{"role": "user", "content": "1"}]);
    [
        (
            "/agui/keeper",
            json!({"threadId": "t", "runId": "r0", "messages": [user("u1", "1")]}),
        ),
        (
            "/v1/responses",
            json!({"model": "keeper", "conversation": "t", "input": "1", "stream": true}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "keeper", "metadata": {"conversation_id": "t"}, "messages": said, "stream": true}),
        ),
    ]
}

async fn finished_rounds_are_kept_on(store: impl AsyncFn() -> Arc<dyn SessionStore>) {
    for (path, body) in ways() {
        for phase in ["before a word", "in a text", "after a tool", "in a tool"] {
            let gate = Gate::new();
            let half = Reply::text("One two.");
            let replies = match phase {
                "before a word" => vec![half.wait(&gate)],
                "in a text" => vec![half.chunk("One ").wait(&gate)],
                "after a tool" => vec![call("look", json!({})), half.wait(&gate)],
                _ => vec![call("hold", json!({}))],
            };
            let model = ScriptedModel::new().replies(replies).reply("Free.");
            let server = Served::on(store().await, model, |server| server).await;
            let gate = if phase == "in a tool" { &server.hold } else { &gate };

            leave(server.request("POST", path).json(&body), gate).await;

            let next = next_run(&server, json!([user("u2", "2")]), json!({})).await;
            assert_eq!(next.text(), "Free.", "{path} {phase}");
            let asked = server.asked();
            let (first, last) = (&asked[1], asked.last().unwrap());
            assert_eq!(
                (first.as_str(), last.as_str()),
                ("user: 1", "user: 2"),
                "{path} {phase}"
            );
            // A round is kept with the answers of its tools, or not at all.
            let rounds = usize::from(phase == "after a tool");
            assert_eq!(asked.len(), 3 + 2 * rounds, "{path} {phase}: {asked:?}");
            assert_eq!(server.thread().await.len(), 3 + 2 * rounds, "{path} {phase}");
        }
    }
}

#[tokio::test]
async fn disconnecting_cancels_the_turn_although_its_stream_is_recorded() {
    let gate = Gate::new();
    let model = ScriptedModel::new()
        .reply(Reply::text("Half an answer.").chunk("Half").wait(&gate))
        .reply("Whole.");
    let server = Served::with(model, |server| server.stream_log(MemoryStreamLog::new())).await;
    let body = json!({"threadId": "t", "runId": "r1", "messages": [user("u1", "1")]});

    leave(server.request("POST", "/agui/keeper").json(&body), &gate).await;

    let next = next_run(&server, json!([user("u2", "2")]), json!({})).await;
    assert_eq!(next.text(), "Whole.");
    assert_eq!(
        server.thread().await.len(),
        3,
        "the message is kept, and not half an answer"
    );
}

#[tokio::test]
async fn finished_rounds_of_a_turn_whose_client_disconnects_in_any_phase_are_kept() {
    finished_rounds_are_kept_on(async || MemoryStore::new().into_store()).await;
}

#[tokio::test]
async fn finished_rounds_of_a_turn_whose_client_disconnects_in_any_phase_are_kept_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let number = AtomicUsize::new(0);
    finished_rounds_are_kept_on(async || {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let path = folder.path().join(format!("{number}.db"));
        SqliteStore::open(path).await.unwrap().into_store()
    })
    .await;
}

#[tokio::test]
async fn a_question_stays_open_if_the_client_disconnects_while_its_answer_is_processed() {
    let gate = Gate::new();
    let model = ScriptedModel::new()
        .reply(call("ask", json!({})))
        .reply(Reply::text("Half an answer.").chunk("Half").wait(&gate))
        .reply("Whole.");
    let server = Served::with(model, |server| server).await;
    let asked = server.run("r1", json!([user("u1", "1")])).await.end();
    let id = &asked["outcome"]["interrupts"][0]["id"];
    let resume = json!({"resume": [{"interruptId": id, "status": "resolved", "payload": {"counter": 1}}]});

    let mut body = json!({"threadId": "t", "runId": "r2", "protocolVersion": "1.0", "messages": []});
    body["resume"] = resume["resume"].clone();
    leave(server.request("POST", "/agui/keeper").json(&body), &gate).await;

    assert_eq!(next_run(&server, json!([]), resume).await.text(), "Whole.");
}

#[tokio::test]
async fn a_request_that_breaks_off_runs_nothing() {
    let server = Served::answering(["never"]).await;
    let address = server.base.trim_start_matches("http://");
    let mut half = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /agui/keeper HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
    );
    half.write_all(head.as_bytes()).await.unwrap();
    half.write_all(b"{\"threadId\": \"t\", \"runI").await.unwrap();
    drop(half);

    server.get("/copilotkit/info").await.json();

    server.model.assert_calls(0);
}

#[tokio::test]
async fn a_background_run_continues_when_the_client_that_watches_it_disconnects() {
    let gate = Gate::new();
    let model = ScriptedModel::new().reply(Reply::text("Done.").chunk("Do").wait(&gate));
    let server = Served::with(model, |server| server).await;
    let work = json!({"model": "keeper", "input": "work", "conversation": "t", "background": true});
    let run = server.post("/v1/responses", &work).await.json();
    gate.reached().await;
    let body = json!({"threadId": "t", "runId": "watch", "protocolVersion": "1.0", "messages": []});

    let response = server.request("POST", "/agui/keeper/connect").json(&body);
    let mut watched = response.send().await.unwrap().bytes_stream();
    let mut read = String::new();
    while !read.contains("\"Do\"") {
        read.push_str(&String::from_utf8_lossy(&watched.next().await.unwrap().unwrap()));
    }
    drop(watched);
    gate.open();

    let path = format!("/v1/responses/{}?stream=true", run["id"].as_str().unwrap());
    assert!(server.get(&path).await.body.contains("response.completed"));
    assert_eq!(server.thread().await[1]["content"], "Done.");
}

#[tokio::test]
async fn a_run_can_be_stopped_from_outside() {
    for (version, end) in [(Some("1.0"), "RUN_FINISHED"), (None, "RUN_ERROR")] {
        let gate = Gate::new();
        let model = ScriptedModel::new().reply(Reply::text("Half.").chunk("Ha").wait(&gate));
        let server = Served::with(model, |server| server).await;
        let mut body = json!({"threadId": "t", "runId": "r1", "messages": [user("u1", "1")]});
        if let Some(version) = version {
            body["protocolVersion"] = json!(version);
        }

        let running = server.post("/copilotkit/agent/keeper/run", &body);
        let (run, stopped) = tokio::join!(running, async {
            gate.reached().await;
            // Browsers send no body.
            answer(server.request("POST", "/copilotkit/agent/keeper/stop/t"))
                .await
                .json()
        });

        assert_eq!(stopped, json!({"stopped": true}));
        let last = run.end();
        assert_eq!(last["type"], end);
        assert_eq!(
            last["metadata"]["everturn"],
            json!({"sessionId": "t", "finishReason": "aborted"})
        );
        match version {
            Some(_) => assert_eq!(last["outcome"], json!({"type": "cancelled"})),
            None => assert_eq!(last["code"], "CANCELLED"),
        }
        let nothing = server
            .post("/copilotkit/agent/keeper/stop/t", &json!({}))
            .await
            .json();
        assert_eq!(nothing, json!({"stopped": false}));
    }
}

#[tokio::test]
async fn a_run_of_a_server_that_ends_is_reported_to_continue_elsewhere() {
    let gate = Gate::new();
    let model = ScriptedModel::new().reply(Reply::text("Later.").chunk("La").wait(&gate));
    let mut handle = None;
    let server = Served::with(model, |server| {
        let grace = everturn_server::Grace {
            period: std::time::Duration::ZERO,
            ..everturn_server::Grace::default()
        };
        let server = server.grace(grace);
        handle = Some(server.handle());
        server
    })
    .await;

    let running = server.run("r1", json!([user("u1", "1")]));
    let (run, ()) = tokio::join!(running, async {
        gate.reached().await;
        handle.unwrap().shut_down();
    });

    let last = run.end();
    assert_eq!(
        (&last["type"], &last["code"]),
        (&json!("RUN_ERROR"), &json!("UNAVAILABLE"))
    );
}
