//! Turns that failed and were kept are read and tried again over HTTP, and snapshots show their place in the
//! session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentBuilder, AgentSession, Timeline, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_core::{Error, Registry};
use serde_json::{Value, json};

use crate::support::agents::{says, says_in};
use crate::support::{Served, answer};

/// An agent whose first turn fails, and whose later turns answer the last message.
fn cook(registry: &Registry) -> AgentBuilder<Value> {
    let failed = Arc::new(AtomicBool::new(false));
    custom_agent(registry, "cook", move |session: AgentSession| {
        let failed = Arc::clone(&failed);
        async move {
            session
                .run(|turn| {
                    let is_first = !failed.swap(true, Ordering::SeqCst);
                    async move {
                        if is_first {
                            return Err(turn.committed(Error::unavailable("the secret is 42")).into());
                        }
                        let last = turn.messages().last().map(|last| last.text().into_owned());
                        turn.add_message(Message::model(format!("re: {}", last.unwrap_or_default())));
                        Ok(FinishReason::Stop)
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
}

async fn read(server: &Served, id: &Value) -> Value {
    let read = json!({"data": {"snapshotId": id}});
    let request = server.request("/agents/cook/getSnapshot", &read);
    answer(request.header("x-everturn-extensions", "1"))
        .await
        .result()
}

#[tokio::test]
async fn a_first_message_that_failed_is_tried_again_over_http() {
    let registry = Registry::new();
    cook(&registry).store(MemoryStore::new()).define().unwrap();
    let server = Served::of(&registry).await;

    let failed = server.post("/agents/cook", &says("leeks?")).await.result();
    let kept = read(&server, &failed["snapshotId"]).await;
    let retry = json!({"data": {}, "init": {"sessionId": failed["sessionId"]}});
    let done = server.post("/agents/cook", &retry).await.result();

    assert_eq!(failed["finishReason"], "failed", "{failed}");
    assert_eq!(kept["status"], "failed", "{kept}");
    assert_eq!(kept["error"]["status"], "UNAVAILABLE", "{kept}");
    assert!(
        !kept.to_string().contains("secret"),
        "operators' text stays inside: {kept}"
    );
    assert_eq!(
        kept["state"]["messages"][0]["content"],
        json!([{"text": "leeks?"}])
    );
    assert_eq!(
        (&kept["index"], &kept["turnIndex"], &kept["event"]),
        (&json!(0), &json!(0), &json!("turnEnd"))
    );
    assert_eq!(
        done["message"]["content"],
        json!([{"text": "re: leeks?"}]),
        "{done}"
    );
    let done = read(&server, &done["snapshotId"]).await;
    assert_eq!(done["parentId"], failed["snapshotId"]);
    assert_eq!(done["state"]["messages"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_superseded_snapshot_is_marked_for_callers_who_ask() {
    let registry = Registry::new();
    cook(&registry)
        .timeline(Timeline::Linear)
        .store(MemoryStore::new())
        .define()
        .unwrap();
    let server = Served::of(&registry).await;
    let init = json!({"sessionId": "s"});
    let mut ids = Vec::new();
    for text in ["one", "two", "three"] {
        let output = server.post("/agents/cook", &says_in(text, &init)).await.result();
        ids.push(output["snapshotId"].clone());
    }

    let back = json!({"snapshotId": ids[1]});
    server
        .post("/agents/cook", &says_in("again", &back))
        .await
        .result();

    let (kept, orphaned) = (read(&server, &ids[1]).await, read(&server, &ids[2]).await);
    let plain = json!({"data": {"snapshotId": ids[2]}});
    let plain = server.post("/agents/cook/getSnapshot", &plain).await.result();
    assert_eq!(
        (kept.get("orphaned"), &orphaned["orphaned"]),
        (None, &json!(true))
    );
    assert_eq!(plain.get("orphaned"), None, "{plain}");
}
