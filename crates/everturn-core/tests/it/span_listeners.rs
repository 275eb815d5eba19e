//! Listeners receive every span, with its content, independently of the `tracing` subscriber.

use std::sync::{Arc, Mutex};

use everturn_core::{
    Context, Error, JsonCall, Registry, RequestId, SpanLabels, SpanListener, SpanObserver, SpanRecord,
    SpanRecorder, TraceParent, listen_to_spans, run,
};
use serde_json::{Map, json};

/// Keeps the spans of one root, because the listener receives those of other tests, too.
#[derive(Default)]
struct Received(Mutex<Vec<(&'static str, SpanRecord)>>);

impl SpanListener for Received {
    fn started(&self, span: &SpanRecord) {
        self.0.lock().unwrap().push(("started", span.clone()));
    }

    fn ended(&self, span: &Arc<SpanRecord>) {
        self.0.lock().unwrap().push(("ended", SpanRecord::clone(span)));
    }
}

impl Received {
    fn of(&self, name: &str) -> Vec<(&'static str, SpanRecord)> {
        let received = self.0.lock().unwrap();
        received
            .iter()
            .filter(|(_, span)| span.name == name)
            .cloned()
            .collect()
    }
}

#[tokio::test]
async fn a_span_is_reported_when_it_starts_and_when_it_ends_with_its_content() {
    let received = Arc::new(Received::default());
    let listening = listen_to_spans(received.clone());
    let registry = Registry::new();
    let flow = registry
        .define_flow("received menu", |dish: String| async move {
            Ok(run("received step", || async { Ok(format!("{dish} soup")) }).await?)
        })
        .unwrap();

    flow.run("leek".to_owned()).await.unwrap();
    drop(listening);
    flow.run("onion".to_owned()).await.unwrap();

    let flow = received.of("received menu");
    let [("started", began), ("ended", ended)] = flow.as_slice() else {
        panic!("{flow:?}");
    };
    assert_eq!(began.ended_at, None);
    assert_eq!(began.attributes["genkit:key"], "/flow/received menu");
    assert_eq!(began.attributes["genkit:isRoot"], true);
    assert!(ended.ended_at.is_some());
    assert_eq!(ended.attributes["genkit:input"], r#""leek""#);
    assert_eq!(ended.attributes["genkit:output"], r#""leek soup""#);
    assert_eq!(ended.attributes["genkit:state"], "success");
    let step = &received.of("received step")[0].1;
    assert_eq!(step.parent, Some(began.ids.span));
    assert_eq!(step.ids.trace, began.ids.trace);
}

#[tokio::test]
async fn the_innermost_span_that_failed_is_marked() {
    let received = Arc::new(Received::default());
    let _listening = listen_to_spans(received.clone());
    let registry = Registry::new();
    let flow = registry
        .define_flow("broken menu", |(): ()| async {
            let failed = run("broken step", || async {
                Err::<(), _>(Error::internal("boom").into())
            });
            Ok(failed.await?)
        })
        .unwrap();

    flow.run(()).await.unwrap_err();

    for (name, source) in [("broken menu", None), ("broken step", Some(&json!(true)))] {
        let ended = &received.of(name)[1].1;
        assert_eq!(ended.failure.as_deref(), Some("boom"), "{name}");
        assert_eq!(ended.attributes["genkit:state"], "error", "{name}");
        assert_eq!(ended.attributes.get("genkit:isFailureSource"), source, "{name}");
    }
}

#[tokio::test]
async fn labels_are_on_the_outermost_span_and_its_ids_are_observed() {
    let received = Arc::new(Received::default());
    let _listening = listen_to_spans(received.clone());
    let registry = Registry::new();
    registry
        .define_flow("labelled menu", |(): ()| async {
            Ok(run("labelled step", || async { Ok(()) }).await?)
        })
        .unwrap();
    let observed = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&observed);
    let labels = Map::from_iter([("batchRun".to_owned(), json!("L1"))]);
    let context = Context::new()
        .with_extension(Arc::new(SpanLabels(labels)))
        .with_extension(Arc::new(SpanObserver::new(move |recorder| {
            *seen.lock().unwrap() = recorder.ids();
        })));

    let flow = registry.get("/flow/labelled menu").unwrap();
    let call = JsonCall {
        context,
        ..JsonCall::default()
    };
    flow.run_json(call).await.unwrap();

    let flow = &received.of("labelled menu")[0].1;
    assert_eq!(flow.attributes["batchRun"], "L1");
    assert_eq!(*observed.lock().unwrap(), Some(flow.ids));
    assert!(
        !received.of("labelled step")[0]
            .1
            .attributes
            .contains_key("batchRun")
    );
}

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn the_outermost_span_belongs_to_the_trace_of_the_program_that_called() {
    let received = Arc::new(Received::default());
    let registry = Registry::new();
    let flow = registry
        .define_flow("called menu", |(): ()| async {
            let named = || async { Ok(TraceParent::current().map(|parent| parent.to_string())) };
            Ok(run("called step", named).await?)
        })
        .unwrap();
    let caller = TraceParent::parse(CALLER).unwrap();
    let context = Context::new()
        .with_extension(Arc::new(caller.clone()))
        .with_extension(Arc::new(RequestId::given("r-7").unwrap()));
    let call = || flow.call((), context.clone(), everturn_core::Emitter::silent());

    let listening = listen_to_spans(received.clone());
    let named = call().await.unwrap();
    drop(listening);

    let flow = &received.of("called menu")[1].1;
    let step = &received.of("called step")[1].1;
    assert_eq!(flow.ids.trace, caller.ids().trace);
    assert_eq!((flow.parent, flow.remote_parent), (None, Some(caller.ids().span)));
    assert_eq!(flow.attributes["everturn.request.id"], "r-7");
    assert_eq!((step.parent, step.remote_parent), (Some(flow.ids.span), None));
    let expected = format!("00-{}-{}-01", step.ids.trace, step.ids.span);
    assert_eq!(named, Some(expected));
}

#[tokio::test]
async fn a_value_that_reports_a_failure_ends_its_span_as_failed() {
    let received = Arc::new(Received::default());
    let _listening = listen_to_spans(received.clone());
    let caller = TraceParent::parse(CALLER).unwrap();

    run("marked step", || async {
        let recorder = SpanRecorder::current();
        recorder.link(&caller, "watch");
        recorder.event("detached", [("snapshotId", json!("s1"))]);
        recorder.mark_failed(&Error::unavailable("the model is gone"));
        Ok("failed")
    })
    .await
    .unwrap();

    let step = &received.of("marked step")[1].1;
    assert_eq!(step.failure.as_deref(), Some("the model is gone"));
    assert_eq!(step.attributes["error.type"], "UNAVAILABLE");
    assert_eq!(step.links[0].to, caller);
    assert_eq!(step.events[0].attributes["snapshotId"], "s1");
}
