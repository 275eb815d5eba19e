//! The powers of hooks, and looking up middleware by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_ai::{
    FinishReason, GenerateRound, Message, Middleware, MiddlewareDefinition, MiddlewareRef, ModelInfo,
    ModelResponse, MultipartToolResponse, NextRound, Tool, ToolContext, async_trait, define_middleware,
    define_model, generate_hook, interrupt, middleware_descriptions, model_hook, reason, tool_hook,
};
use everturn_core::{Error, HandlerResult, Registry, Status};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::generate_support;
use crate::generate_support::{Chunks, constant, message, request, says, scripted, step, streaming};

fn asks() -> generate_support::Step {
    step(message(json!([request("t", "1", json!({}))])))
}

/// Counts the rounds it has seen.
#[derive(Default)]
struct Counter {
    rounds: AtomicUsize,
    report: Arc<AtomicUsize>,
}

impl Clone for Counter {
    fn clone(&self) -> Self {
        Self {
            rounds: AtomicUsize::new(0),
            report: Arc::clone(&self.report),
        }
    }
}

#[async_trait]
impl Middleware for Counter {
    async fn generate(&self, round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        let seen = self.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        self.report.fetch_max(seen, Ordering::Relaxed);
        Ok(next.run(round).await?)
    }
}

#[tokio::test]
async fn state_spans_the_rounds_of_one_call_and_no_more() {
    let (_registry, _script, generate) = scripted([asks(), step(says("x")), asks(), step(says("x"))]);
    let counter = Counter::default();
    let generate = generate
        .prompt("p")
        .tool(constant("t", "o"))
        .use_middleware(counter.clone());

    generate.clone().await.unwrap();
    generate.await.unwrap();

    assert_eq!(counter.report.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_edit_of_the_messages_stays_for_later_rounds_and_leaves_the_callers_alone() {
    let (_registry, script, generate) = scripted([asks(), step(says("x"))]);
    let messages = everturn_ai::Messages::from(Message::user("p"));
    let edit = generate_hook(|mut round, next| async move {
        if round.index == 0 {
            round.inject(Message::user("a file")).await?;
        }
        Ok(next.run(round).await?)
    });
    let chunks = Chunks::default();

    let generate = generate
        .messages(messages.clone())
        .tool(constant("t", "o"))
        .use_middleware(edit);
    generate.emitter(chunks.emitter()).await.unwrap();

    let texts: Vec<usize> = script
        .json_requests()
        .iter()
        .map(|request| request["messages"].as_array().unwrap().len())
        .collect();
    assert_eq!(texts, [2, 4]);
    assert_eq!(messages.len(), 1);
    let indices: Vec<_> = chunks
        .all()
        .iter()
        .map(|chunk| (chunk["role"].clone(), chunk["index"].clone()))
        .collect();
    assert_eq!(json!(indices), json!([["user", 0], ["tool", 1]]));
}

#[tokio::test]
async fn a_hooks_own_chunks_are_the_models_at_the_rounds_index() {
    let (_registry, _script, generate) = scripted([streaming(&["b"], says("b"))]);
    let chatty = generate_hook(|round, next| async move {
        round.emitter.send("a".into()).await?;
        Ok(next.run(round).await?)
    });
    let chunks = Chunks::default();

    generate
        .prompt("p")
        .use_middleware(chatty)
        .emitter(chunks.emitter())
        .await
        .unwrap();

    let part = |text: &str| json!({ "role": "model", "index": 0, "content": [{ "text": text }] });
    assert_eq!(chunks.all(), [part("a"), part("b")]);
}

#[tokio::test]
async fn a_model_hook_may_repeat_replace_or_redirect_the_call() {
    let (registry, script, generate) = scripted([step(says("one")), step(says("two"))]);
    define_model(
        &registry,
        "other",
        ModelInfo::default(),
        |_request, _emitter, _context| async { Ok(ModelResponse::text_of("other")) },
    )
    .unwrap();
    let generate = generate.prompt("p");

    let twice = model_hook(|call, next| async move {
        next.run(call.clone()).await?;
        Ok(next.run(call).await?)
    });
    let never = model_hook(|_call, _next| async { Ok(ModelResponse::text_of("cached")) });
    let redirected = model_hook(|mut call, next| async move {
        call.model = "other".to_owned();
        Ok(next.run(call).await?)
    });

    assert_eq!(
        generate.clone().use_middleware(twice).await.unwrap().text(),
        "two"
    );
    assert_eq!(
        generate.clone().use_middleware(never).await.unwrap().text(),
        "cached"
    );
    assert_eq!(generate.use_middleware(redirected).await.unwrap().text(), "other");
    assert_eq!(script.calls(), 2);
}

#[tokio::test]
async fn a_tool_hook_may_answer_or_interrupt_in_the_tools_place() {
    let (_registry, script, generate) = scripted([asks(), step(says("x")), asks()]);
    let never = || {
        Tool::dynamic("t", "d", None, |_input, _cx: ToolContext| async {
            panic!("the tool ran")
        })
    };
    let generate = generate.prompt("p").tool(never());

    let answer = tool_hook(|_call, _next| async {
        Ok(MultipartToolResponse {
            output: Some(json!("instead")),
            ..MultipartToolResponse::default()
        })
    });
    generate.clone().use_middleware(answer).await.unwrap();
    let pause = tool_hook(|_call, _next| async { Err(interrupt(json!({ "ask": 1 })).into()) });
    let paused = generate.use_middleware(pause).await.unwrap();

    let answered = script.json_requests()[1]["messages"][2]["content"][0]["toolResponse"]["output"].clone();
    assert_eq!(answered, "instead");
    assert_eq!(paused.finish_reason(), FinishReason::Interrupted);
    assert_eq!(
        paused.interrupts().next().unwrap().interrupt(),
        Some(&json!({ "ask": 1 }))
    );
}

struct Toolbox;

#[async_trait]
impl Middleware for Toolbox {
    fn tools(&self) -> Vec<Tool> {
        vec![constant("extra", "from the box")]
    }
}

#[derive(Deserialize, JsonSchema)]
struct NoConfig {}

fn toolbox(registry: &Registry) {
    let definition = MiddlewareDefinition::new("toolbox", |_config: NoConfig, _registry| Ok(Toolbox));
    define_middleware(registry, definition.description("Adds a tool.")).unwrap();
}

#[tokio::test]
async fn tools_of_middleware_come_after_the_declared_ones_and_may_not_clash() {
    let (registry, script, generate) = scripted([step(says("x"))]);
    toolbox(&registry);

    generate
        .clone()
        .prompt("p")
        .tool(constant("t", "o"))
        .use_middleware("toolbox")
        .await
        .unwrap();
    let clash = generate
        .prompt("p")
        .tool(constant("extra", "o"))
        .use_middleware("toolbox")
        .await
        .unwrap_err();

    let names: Vec<_> = script.last_request()["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].clone())
        .collect();
    assert_eq!(names, ["t", "extra"]);
    assert_eq!(clash.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn middleware_is_found_under_both_spellings_of_its_name() {
    let (registry, _script, generate) = scripted([step(says("x")), step(says("x"))]);
    toolbox(&registry);

    assert!(
        generate
            .clone()
            .prompt("p")
            .use_middleware("toolbox")
            .await
            .is_ok()
    );
    assert!(
        generate
            .clone()
            .prompt("p")
            .use_middleware("genkit-middleware/toolbox")
            .await
            .is_ok()
    );
    let missing = generate.prompt("p").use_middleware("toolbax").await.unwrap_err();

    assert_eq!(missing.status(), Status::NotFound);
    assert!(missing.is(reason::MIDDLEWARE_NOT_FOUND));
    let described: Vec<_> = middleware_descriptions(&registry)
        .into_iter()
        .map(|described| described.name)
        .collect();
    assert_eq!(described, ["toolbox"]);
}

#[tokio::test]
async fn a_middleware_that_cannot_be_made_is_the_callers_mistake() {
    #[derive(Deserialize, JsonSchema)]
    struct Config {
        level: u8,
    }
    let (registry, _script, generate) = scripted([]);
    let definition = MiddlewareDefinition::new("picky", |config: Config, _registry| match config.level {
        0 => Err(Error::unavailable("not at level 0").into()),
        _ => Ok(Toolbox),
    });
    define_middleware(&registry, definition).unwrap();
    let with = |config: Value| {
        generate
            .clone()
            .prompt("p")
            .use_middleware(MiddlewareRef::new("picky").with_config(config))
    };

    for config in [json!({}), json!({ "level": "high" }), json!({ "level": 0 })] {
        let error = with(config).await.unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        assert!(error.message().contains("picky"), "{error}");
    }
}
