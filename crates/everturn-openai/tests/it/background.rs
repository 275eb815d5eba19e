//! Responses in the background, and streams that are read again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_agent::{Clock, Heartbeat, agent};
use everturn_core::Registry;
use everturn_core::stream_log::MemoryStreamLog;
use everturn_testkit::{Gate, Reply, ScriptedModel};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{Answer, Served, answer, names};

async fn settled(server: &Served, id: &str) -> Value {
    loop {
        let response = server.get(&format!("/responses/{id}")).await.json();
        if !["queued", "in_progress"].contains(&response["status"].as_str().unwrap()) {
            return response;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn background_work_continues_without_its_caller() {
    let server = Served::answering(["Done."]).await;

    let queued = server
        .respond(json!({"input": "work", "background": true}))
        .await
        .json();

    assert_eq!(queued["status"], "queued");
    assert_eq!(queued["background"], true);
    let done = settled(&server, queued["id"].as_str().unwrap()).await;
    assert_eq!(done["status"], "completed");
    assert_eq!(done["background"], true);
    assert_eq!(done["output"][0]["content"][0]["text"], "Done.");
}

#[tokio::test]
async fn work_can_be_cancelled() {
    let server = Served::with(
        ScriptedModel::new().reply(Reply::text("never").wait(&Gate::new())),
        |server| server,
    )
    .await;
    let queued = server
        .respond(json!({"input": "work", "background": true}))
        .await
        .json();
    let id = queued["id"].as_str().unwrap();
    let path = format!("/responses/{id}");

    assert_eq!(answer(server.request("DELETE", &path)).await.error().0, 400);
    let cancelled = answer(server.request("POST", &format!("{path}/cancel")))
        .await
        .json();

    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(settled(&server, id).await["status"], "cancelled");
    let watched = server.get(&format!("{path}?stream=true")).await.events();
    let error = watched.last().unwrap();
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("error"), &json!("cancelled"))
    );
    assert_eq!(error["error"]["message"], error["message"]);
}

#[tokio::test]
async fn cancelling_work_that_is_done_changes_nothing() {
    let server = Served::answering(["Done."]).await;
    let asked = json!({"input": "work", "background": true});
    let queued = server.respond(asked).await.json();
    let id = queued["id"].as_str().unwrap();
    let done = settled(&server, id).await;

    let cancelled = answer(server.request("POST", &format!("/responses/{id}/cancel"))).await;

    assert_eq!(cancelled.json(), done);
}

#[tokio::test]
async fn a_stream_that_is_not_recorded_has_expired_and_the_response_stays() {
    let tiny = MemoryStreamLog::options().max_bytes(1).build();
    let model = ScriptedModel::new().reply("One.");
    let server = Served::with(model, |server| server.stream_log(tiny)).await;
    let response = server.respond(json!({"input": "hi"})).await.json();
    let path = format!("/responses/{}", response["id"].as_str().unwrap());

    let expired = server.get(&format!("{path}?stream=true")).await;

    let (code, reason, _) = expired.error();
    assert_eq!((code, reason.as_str()), (400, "stream_expired"));
    assert_eq!(server.get(&path).await.json()["output"], response["output"]);
}

#[tokio::test]
async fn a_streamed_request_whose_response_was_lost_is_replayed() {
    let server = Served::answering(["one", "never"]).await;
    let body = json!({"model": "keeper", "input": "hi", "stream": true});
    let ask = |tries: u32| {
        let request = server.request("POST", "/responses").json(&body);
        answer(request.header("x-stainless-retry-count", tries))
    };

    let first = ask(0).await;
    let again = ask(1).await;

    assert_eq!(again.events(), first.events());
    server.model.assert_calls(1);
}

#[tokio::test]
async fn only_background_work_can_be_cancelled() {
    let server = Served::answering(["one"]).await;
    let response = server.respond(json!({"input": "hi"})).await.json();
    let path = format!("/responses/{}/cancel", response["id"].as_str().unwrap());

    assert_eq!(answer(server.request("POST", &path)).await.error().0, 400);
}

fn body(answer: &Answer) -> &str {
    answer.body.trim_start_matches(": heartbeat\n\n")
}

#[tokio::test]
async fn a_stream_is_read_again_byte_for_byte() {
    for background in [false, true] {
        let server = Served::answering([Reply::text("One two.").chunks(["One ", "two."])]).await;
        let asked = json!({"input": "hi", "stream": true, "background": background});
        let first = server.respond(asked).await;
        let events = first.events();
        let id = events[0]["response"]["id"].as_str().unwrap();
        assert_eq!(names(&events).last(), Some(&"response.completed"));

        let again = server.get(&format!("/responses/{id}?stream=true")).await;
        let rest = server
            .get(&format!("/responses/{id}?stream=true&starting_after=3"))
            .await;

        assert_eq!(body(&again), body(&first), "background: {background}");
        assert_eq!(rest.events(), events[4..], "background: {background}");
        let wrong = server
            .get(&format!("/responses/{id}?stream=true&starting_after=x"))
            .await;
        assert_eq!(wrong.error().0, 400);
    }
}

/// Sends a request as clients do that count how often they tried.
async fn tried(server: &Served, body: &Value, tries: u32) -> Value {
    let request = server.request("POST", "/responses").json(body);
    answer(request.header("x-stainless-retry-count", tries))
        .await
        .json()
}

#[tokio::test]
async fn a_request_whose_answer_was_lost_does_not_run_again() {
    let server = Served::answering(["one", "two"]).await;
    let asked = json!({"model": "keeper", "input": "hi"});

    let first = tried(&server, &asked, 0).await;
    let again = tried(&server, &asked, 1).await;
    let meant = tried(&server, &asked, 0).await;
    let meant_again = tried(&server, &asked, 1).await;

    assert_eq!(again["id"], first["id"]);
    assert_eq!(again["output"], first["output"]);
    assert_ne!(meant["id"], first["id"]);
    // The same words were meant twice, and the answer to the latter was lost.
    assert_eq!(meant_again, meant);
    server.model.assert_calls(2);
}

#[tokio::test]
async fn the_input_of_active_work_is_listed() {
    let gate = Gate::new();
    let model = ScriptedModel::new()
        .reply("One.")
        .reply(Reply::text("Done.").wait(&gate));
    let server = Served::with(model, |server| server).await;
    let first = server.respond(json!({"input": "hi"})).await.json();
    let asked = json!({"input": "work", "background": true, "previous_response_id": first["id"]});
    let queued = server.respond(asked).await.json();
    let id = queued["id"].as_str().unwrap();
    let path = format!("/responses/{id}/input_items");

    let pending = server.get(&path).await.json();
    gate.open();
    settled(&server, id).await;

    assert_eq!(pending["data"][0]["content"][0]["text"], "work", "{pending}");
    assert_eq!(pending["data"].as_array().unwrap().len(), 1);
    assert_eq!(server.get(&path).await.json(), pending);
}

#[tokio::test]
async fn work_whose_worker_is_lost_fails_after_one_more_heartbeat() {
    for (minutes, status) in [(10, "in_progress"), (150, "in_progress"), (200, "failed")] {
        let beat = Timestamp::now() - SignedDuration::from_mins(minutes);
        let time = Arc::new(Mutex::new(beat));
        let clock = Clock::new({
            let time = Arc::clone(&time);
            move || *time.lock().unwrap()
        });
        let model = ScriptedModel::new().reply(Reply::text("never").wait(&Gate::new()));
        let define = |registry: &Registry| {
            let slow = agent(registry, "slow").clock(clock).heartbeat(Heartbeat {
                interval: Duration::from_hours(1),
                expiry: Duration::from_hours(2),
            });
            slow.store(MemoryStore::new()).define().unwrap();
        };
        let server = Served::beside(define, model, |server| server).await;

        let asked = json!({"model": "slow", "input": "work", "background": true});
        let queued = server.post("/responses", asked).await.json();
        *time.lock().unwrap() = Timestamp::now();
        let path = format!("/responses/{}", queued["id"].as_str().unwrap());
        let response = server.get(&path).await.json();

        assert_eq!(response["status"], status, "{minutes} minutes: {response}");
        if status == "failed" {
            assert_eq!(response["error"]["code"], "server_error");
        }
    }
}
