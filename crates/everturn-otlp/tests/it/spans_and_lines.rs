//! Parents, attributes, events, statuses and log lines of one program.

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, agent};
use everturn_ai::{Message, ModelResponse, Part, Tool, ToolRequest, Usage};
use everturn_core::{Error, Registry};
use everturn_otlp::Otlp;
use everturn_testkit::{Reply, ScriptedModel};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;

use crate::collector::{Collector, ONE_AT_A_TIME, attributes, text, texts};

fn desk(registry: &Registry, replies: impl IntoIterator<Item = Reply>) -> Agent {
    ScriptedModel::new()
        .replies(replies)
        .register(registry, "acme/large")
        .unwrap();
    let look_up = Tool::new("look_up", "Looks up.", |_: Value, _| async {
        tracing::info!(customer = 7, "looked up");
        Ok("Ada")
    });
    agent(registry, "desk")
        .model("acme/large")
        .tool(look_up)
        .store(MemoryStore::new())
        .define()
        .unwrap()
}

fn asks() -> Reply {
    let request = Part::from(ToolRequest::new("look_up", json!({})));
    let usage = Usage {
        input_tokens: Some(10),
        output_tokens: Some(3),
        cached_content_tokens: Some(4),
        thoughts_tokens: Some(2),
        ..Usage::default()
    };
    Reply::response(ModelResponse::new(Message::model(request)).with_usage(usage))
}

#[tokio::test]
async fn spans_have_parents_names_for_generative_ai_and_no_content() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let collector = Collector::start().await;
    let telemetry = Otlp::new()
        .endpoint(&collector.url)
        .service("support-desk")
        .start()
        .unwrap();
    let layer = telemetry.log_layer();
    let _logged = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let desk = desk(&Registry::new(), [asks(), Reply::text("It is Ada.")]);

    desk.chat()
        .resume("s1")
        .run("Who is it? My secret is 4711.")
        .await
        .unwrap();
    telemetry.flush().await;

    assert_eq!(collector.resource()["service.name"], "support-desk");
    let (root, turn, tool) = (
        collector.span("desk"),
        collector.span("runTurn-1"),
        collector.span("look_up"),
    );
    assert!(root.parent_span_id.is_empty());
    assert_eq!(turn.parent_span_id, root.span_id);
    assert!(
        collector
            .spans()
            .iter()
            .all(|span| span.trace_id == root.trace_id)
    );
    let agent = attributes(&root);
    assert_eq!(agent["gen_ai.operation.name"], "invoke_agent");
    assert_eq!(agent["gen_ai.agent.name"], "desk");
    assert_eq!(agent["gen_ai.conversation.id"], "s1");
    assert_eq!(agent["genkit:key"], "/agent/desk");
    let called = attributes(&tool);
    assert_eq!(called["gen_ai.operation.name"], "execute_tool");
    assert_eq!(called["gen_ai.tool.name"], "look_up");
    let model = &collector.named("acme/large")[0];
    assert_eq!(model.kind(), SpanKind::Client);
    let asked = attributes(model);
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "acme"),
        ("gen_ai.request.model", "large"),
        ("gen_ai.usage.input_tokens", "10"),
        ("gen_ai.usage.output_tokens", "3"),
        ("gen_ai.usage.cache_read.input_tokens", "4"),
        ("gen_ai.usage.reasoning.output_tokens", "2"),
    ] {
        assert_eq!(asked[name], value, "{name}");
    }
    for span in collector.spans() {
        let content = format!("{:?}", attributes(&span));
        assert!(!content.contains("4711"), "{}: {content}", span.name);
    }

    let lines = collector.lines();
    let line = lines
        .iter()
        .find(|line| text(line.body.as_ref()) == "looked up")
        .unwrap();
    assert_eq!(line.trace_id, root.trace_id);
    assert_eq!(line.span_id, tool.span_id);
    assert_eq!(line.severity_text, "INFO");
    assert_eq!(texts(&line.attributes)["customer"], "7");
}

#[tokio::test]
async fn no_lines_are_sent_to_a_collector_for_spans_only() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let collector = Collector::start().await;
    let telemetry = Otlp::new()
        .endpoint(&collector.url)
        .without_logs()
        .start()
        .unwrap();
    let layer = telemetry.log_layer();
    let _logged = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let desk = desk(&Registry::new(), [asks(), Reply::text("It is Ada.")]);

    desk.run_text("Who is it?").await.unwrap();
    telemetry.flush().await;

    assert_eq!(collector.named("look_up").len(), 1);
    assert!(collector.lines().is_empty());
    assert_eq!(telemetry.dropped(), 0);
}

#[tokio::test]
async fn content_is_exported_through_the_function_that_redacts_it() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let collector = Collector::start().await;
    let telemetry = Otlp::new()
        .endpoint(&collector.url)
        .content(|name, json| (name != "genkit:output").then(|| json.replace("4711", "…")))
        .start()
        .unwrap();
    let desk = desk(&Registry::new(), [Reply::text("Thanks.")]);

    desk.run_text("My secret is 4711.").await.unwrap();
    telemetry.flush().await;

    let asked = attributes(&collector.span("acme/large"));
    assert!(asked["genkit:input"].contains("My secret is …."), "{asked:?}");
    assert!(!asked.contains_key("genkit:output"));
}

#[tokio::test]
async fn a_failure_is_the_status_and_an_event_of_every_span_it_passed() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let collector = Collector::start().await;
    let telemetry = Otlp::new().endpoint(&collector.url).start().unwrap();
    let down = Reply::error(Error::unavailable("the model server is down"));
    let desk = desk(&Registry::new(), [down]);

    desk.run_text("Hello?").await.unwrap_err();
    telemetry.flush().await;

    for name in ["desk", "runTurn-1", "acme/large"] {
        let span = collector.span(name);
        let status = span.status.as_ref().unwrap();
        assert_eq!(status.code(), StatusCode::Error, "{name}");
        assert!(status.message.contains("the model server is down"), "{name}");
        assert_eq!(attributes(&span)["error.type"], "UNAVAILABLE", "{name}");
        let event = span
            .events
            .iter()
            .find(|event| event.name == "exception")
            .unwrap();
        assert_eq!(
            texts(&event.attributes)["exception.type"],
            "UNAVAILABLE",
            "{name}"
        );
    }
}

#[tokio::test]
async fn dropping_the_export_sends_the_last_spans() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let collector = Collector::start().await;
    let telemetry = Otlp::new().endpoint(&collector.url).start().unwrap();
    let desk = desk(&Registry::new(), [Reply::text("Bye.")]);

    desk.run_text("Hello?").await.unwrap();
    // The collector needs this thread, which a drop would block.
    tokio::task::spawn_blocking(move || drop(telemetry))
        .await
        .unwrap();

    assert_eq!(collector.named("desk").len(), 1);
}
