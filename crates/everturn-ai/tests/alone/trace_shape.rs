//! The spans of a generation: `generate → {model, tool..., generate → {model}}`.

use std::sync::{Arc, Mutex};

use everturn_ai::{MultipartToolResponse, register_generate, tool_hook};
use everturn_core::JsonCall;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::alone;
use crate::generate_support::{Step, constant, message, request, says, scripted, step};

/// Notes every span as `parent/.../name`.
#[derive(Clone, Default)]
struct Shape(Arc<Mutex<Vec<String>>>);

struct Name(String);

impl Visit for Name {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "otel.name" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Shape {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut name = Name(String::new());
        attributes.record(&mut name);
        let span = context.span(id).expect("the span exists");
        let path = match span.parent() {
            Some(parent) => format!(
                "{}/{}",
                parent.extensions().get::<Name>().map_or("", |name| &name.0),
                name.0
            ),
            None => name.0,
        };
        self.0.lock().unwrap().push(path.clone());
        span.extensions_mut().insert(Name(path));
    }
}

impl Shape {
    async fn of<F: Future>(work: F) -> Vec<String> {
        use tracing::instrument::WithSubscriber;
        let shape = Self::default();
        let subscriber = tracing_subscriber::registry().with(shape.clone());
        work.with_subscriber(subscriber).await;
        std::mem::take(&mut *shape.0.lock().unwrap())
    }
}

fn asks() -> Step {
    step(message(json!([
        request("t", "1", json!({})),
        request("u", "2", json!({}))
    ])))
}

#[tokio::test]
async fn rounds_nest_and_hold_their_model_and_tools() {
    let _alone = alone();
    let (_registry, _script, generate) = scripted([asks(), step(says("x"))]);
    let generate = generate
        .prompt("p")
        .tools([constant("t", "o"), constant("u", "o")]);

    let spans = Shape::of(generate.run()).await;

    assert_eq!(
        spans,
        [
            "generate",
            "generate/programmableModel",
            "generate/t",
            "generate/u",
            "generate/generate",
            "generate/generate/programmableModel",
        ]
    );
}

#[tokio::test]
async fn the_action_is_the_first_round() {
    let _alone = alone();
    let (registry, _script, _generate) = scripted([asks(), step(says("x"))]);
    register_generate(&registry).unwrap();
    constant("t", "o").register(&registry).unwrap();
    constant("u", "o").register(&registry).unwrap();
    let options = json!({
        "model": "programmableModel",
        "messages": [{ "role": "user", "content": [{ "text": "p" }] }],
        "tools": ["t", "/tool.v2/u"],
        "stepName": "cook",
    });
    let action = registry.resolve("/util/generate").await.unwrap();

    let spans = Shape::of(async { action.run_json(JsonCall::new(options)).await.unwrap() }).await;

    assert_eq!(spans[..2], ["generate", "generate/programmableModel"]);
    assert_eq!(spans[4..], ["generate/cook", "generate/cook/programmableModel"]);
}

#[tokio::test]
async fn a_hook_that_answers_for_a_tool_leaves_the_tools_span() {
    let _alone = alone();
    let (_registry, _script, generate) = scripted([asks(), step(says("x"))]);
    let generate = generate
        .prompt("p")
        .tools([constant("t", "o"), constant("u", "o")]);
    let instead = tool_hook(|_call, _next| async { Ok(MultipartToolResponse::default()) });

    let spans = Shape::of(generate.use_middleware(instead).run()).await;

    assert!(spans.contains(&"generate/t".to_owned()), "{spans:?}");
}

#[tokio::test]
async fn deep_rounds_nest_like_the_first_ones() {
    let _alone = alone();
    let rounds = (0..6).map(|_| step(message(json!([request("t", "1", json!({}))]))));
    let (_registry, _script, generate) = scripted(rounds.chain([step(says("x"))]));

    let spans = Shape::of(generate.prompt("p").tool(constant("t", "o")).max_rounds(9).run()).await;

    let deepest = ["generate"; 7].join("/");
    assert_eq!(spans.last(), Some(&format!("{deepest}/programmableModel")));
}
