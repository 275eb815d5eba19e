//! Runs that are kept, and sessions that are deleted.

use everturn_agent::store::Scope;
use everturn_core::stream_log::{MemoryStreamLog, StreamLog, StreamSubject};
use everturn_testkit::ScriptedModel;
use serde_json::json;

use crate::support::{Served, answer, user};

#[tokio::test]
async fn a_recorded_run_is_erased_with_its_session() {
    for keeps_streams in [false, true] {
        let model = ScriptedModel::new().replies(["one", "two"]);
        let log = keeps_streams.then(MemoryStreamLog::new);
        let server = Served::with(model, |server| match log {
            Some(log) => server.stream_log(log),
            None => server,
        })
        .await;
        let run = async || server.run("r1", json!([user("u1", "hi")])).await.text();
        assert_eq!(run().await, "one");
        assert_eq!(run().await, "one", "the same run is read again");

        answer(server.request("DELETE", "/v1/conversations/t"))
            .await
            .json();

        assert_eq!(run().await, "two", "a log of the server: {keeps_streams}");
    }
}

#[tokio::test]
async fn the_streams_of_a_thread_are_erased_and_no_others() {
    let log = MemoryStreamLog::new();
    let model = ScriptedModel::new().replies(["one", "two"]);
    let server = Served::with(model, |server| server.stream_log(log.clone())).await;
    for thread in ["gone", "kept"] {
        let thread = json!({"threadId": thread});
        let messages = json!([user("u1", "hi")]);
        server.run_of("keeper", "r1", messages, thread).await.end();
    }

    answer(server.request("DELETE", "/v1/conversations/gone"))
        .await
        .json();

    let left = async |session: &str| {
        log.erase(&StreamSubject::session(Scope::default().as_str(), session))
            .await
            .unwrap()
    };
    assert_eq!(left("gone").await, 0);
    assert_ne!(left("kept").await, 0);
}
