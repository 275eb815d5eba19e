//! Clients that leave or stop a run, and servers that end.

use everturn_testkit::{Gate, Reply, ScriptedModel};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::support::{Served, call, first, user};

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
    // What the stopped turn told is passed over, so that the words before it still count.
    let data = read
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    let half = json!({
        "id": first(&events, "TEXT_MESSAGE_START")["messageId"], "role": "assistant", "content": "Half",
    });
    let messages = json!([user("u1", "1"), half, user("u2", "2")]);
    let mut run = 3;
    let answer = loop {
        let answer = server.run(&format!("r{run}"), messages.clone()).await;
        if answer.status != 409 {
            break answer;
        }
        // The server learns from the connection that the client has left.
        run += 1;
        tokio::task::yield_now().await;
    };

    assert_eq!(answer.text(), "Whole.");
    assert_eq!(server.asked()[1..], ["user: 1", "user: 2"].map(str::to_owned));
    assert_eq!(server.thread().await.len(), 3);
}

#[tokio::test]
async fn nothing_is_stored_of_a_run_whose_client_leaves_in_any_phase() {
    let half = || Reply::text("One two.");
    let phases = [
        ("before a word", None, half()),
        ("in the middle of a text", None, half().chunk("One ")),
        ("after a tool", Some(call("look", json!({}))), half()),
    ];
    for (phase, before, blocked) in phases {
        let gate = Gate::new();
        let model = ScriptedModel::new().replies(before);
        let model = model.reply(blocked.wait(&gate)).reply("Free.");
        let server = Served::with(model, |server| server).await;
        let body = json!({"threadId": "t", "runId": "r0", "messages": [user("u1", "1")]});
        let request = server.request("POST", "/agui/keeper").json(&body);

        let leaving = tokio::spawn(async move { request.send().await?.text().await });
        gate.reached().await;
        leaving.abort();
        let mut run = 1;
        let answer = loop {
            let answer = server.run(&format!("r{run}"), json!([user("u2", "2")])).await;
            if answer.status != 409 {
                break answer;
            }
            // The server learns from the connection that the client has left.
            run += 1;
            tokio::task::yield_now().await;
        };

        assert_eq!(answer.text(), "Free.", "{phase}");
        assert_eq!(server.asked()[1..], ["user: 2".to_owned()], "{phase}");
        assert_eq!(server.thread().await.len(), 2, "{phase}");
    }
}

#[tokio::test]
async fn a_background_run_goes_on_when_the_client_that_watches_it_leaves() {
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
            server
                .post("/copilotkit/agent/keeper/stop/t", &json!({}))
                .await
                .json()
        });

        assert_eq!(stopped, json!({"stopped": true}));
        let last = run.end();
        assert_eq!(last["type"], end);
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
async fn a_run_of_a_server_that_ends_is_told_to_go_on_elsewhere() {
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
