//! A request's id is in its answer, its caller's trace goes on, and its turns are counted by how they ended.

use std::sync::{Arc, Mutex};

use everturn_agent::store::MemoryStore;
use everturn_core::{Error, Registry, SpanListener, SpanRecord, TraceParent, listen_to_spans};
use serde_json::json;

use crate::support::agents::{parrot, says};
use crate::support::{Served, answer};

#[tokio::test]
async fn an_answer_has_the_id_of_its_request_or_a_new_one() {
    let registry = Registry::new();
    registry
        .define_flow("menu", |theme: String| async move { Ok(format!("{theme} soup")) })
        .unwrap();
    let server = Served::of(&registry).await;
    let ask = |id: Option<&str>| {
        let request = server.request("/flows/menu", &json!({ "data": "leek" }));
        answer(match id {
            Some(id) => request.header("x-request-id", id),
            None => request,
        })
    };

    let (named, first, second, forged) = (
        ask(Some("req-7")).await,
        ask(None).await,
        ask(None).await,
        ask(Some("a b")).await,
    );

    assert_eq!(named.header("x-request-id"), Some("req-7"));
    assert_eq!(first.header("x-request-id").map(str::len), Some(32));
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
    assert_eq!(forged.header("x-request-id").map(str::len), Some(32));
}

#[tokio::test]
async fn a_turn_that_failed_is_counted_as_failed_beside_its_answer_200() {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    let server = Served::of(&registry).await;

    server.post("/agents/parrot", &says("hello")).await;
    let failed = server.post("/agents/parrot", &says("fail")).await;

    assert_eq!(failed.status, 200);
    let metrics = server.get("/metrics").await.body;
    for line in [
        r#"everturn_turns_total{agent="parrot",finish_reason="stop",status="OK"} 1"#,
        r#"everturn_turns_total{agent="parrot",finish_reason="failed",status="INTERNAL"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<Arc<SpanRecord>>>);

impl SpanListener for Heard {
    fn started(&self, _span: &SpanRecord) {}

    fn ended(&self, span: &Arc<SpanRecord>) {
        self.0.lock().unwrap().push(Arc::clone(span));
    }
}

#[tokio::test]
async fn a_call_belongs_to_the_trace_and_the_request_of_its_caller() {
    let heard = Arc::new(Heard::default());
    let _listening = listen_to_spans(heard.clone());
    let registry = Registry::new();
    registry
        .define_flow("traced", |(): ()| async {
            Err::<(), _>(Error::unavailable("down").into())
        })
        .unwrap();
    let server = Served::of(&registry).await;
    let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let caller = TraceParent::parse(header).unwrap();

    let request = server.request("/flows/traced", &json!({ "data": null }));
    let request = request
        .header("traceparent", header)
        .header("x-request-id", "req-8");
    let answered = answer(request).await;

    let heard = heard.0.lock().unwrap();
    let span = heard.iter().find(|span| span.name == "traced").unwrap();
    assert_eq!(span.ids.trace, caller.ids().trace);
    assert_eq!(span.remote_parent, Some(caller.ids().span));
    assert_eq!(span.attributes["everturn.request.id"], "req-8");
    assert_eq!(span.failure.as_deref(), Some("down"));
    assert_eq!(answered.header("x-request-id"), Some("req-8"));
    assert_eq!(
        answered.header("x-genkit-trace-id"),
        Some(caller.ids().trace.to_string().as_str())
    );
}
