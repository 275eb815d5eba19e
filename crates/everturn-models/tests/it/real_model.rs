//! A real model, tiny and on this machine, behind three protocols. It is not wise: shape and flow are
//! asserted, never what it says.
//!
//! `./test` starts its server and passes the address: `EVERTURN_TEST_MODEL` is its address and
//! `EVERTURN_TEST_MODEL_LOG` the file that it logs to.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use everturn_ai::{Generate, ModelRequest, Role, Tool, ToolContext, call_model};
use everturn_core::{Context, Emitter, Plugin, Registry, Status};
use everturn_models::Anthropic;
use everturn_models::openai::{Api, OpenAi};
use everturn_testkit::eventually;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::asking::{ask, question};

/// How long one answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// Where the model is, and its log.
struct Real {
    url: String,
    log: PathBuf,
}

/// The model's server; `None`, with a word about why, if there is none.
fn real() -> Option<Real> {
    let (url, log) = (
        std::env::var("EVERTURN_TEST_MODEL"),
        std::env::var("EVERTURN_TEST_MODEL_LOG"),
    );
    let Ok((url, log)) = url.and_then(|url| Ok((url, log?))) else {
        println!("skipped: no real model is served here; `./test` does so where `../shared/llm` is present");
        return None;
    };
    Some(Real { url, log: log.into() })
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Protocol {
    Chat,
    Responses,
    Anthropic,
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Chat, Protocol::Responses, Protocol::Anthropic];

impl Protocol {
    fn plugin(self, real: &Real) -> Arc<dyn Plugin> {
        let local = || {
            OpenAi::compatible("local", &real.url)
                .enforces_schemas(true)
                .timeout(PATIENCE)
        };
        match self {
            Self::Chat => Arc::new(local()),
            Self::Responses => Arc::new(local().api(Api::Responses)),
            Self::Anthropic => Arc::new(Anthropic::new("none").base_url(&real.url).timeout(PATIENCE)),
        }
    }

    fn registry(self, real: &Real) -> Registry {
        let registry = Registry::new();
        registry.install(self.plugin(real)).unwrap();
        registry
    }

    fn model(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic/smollm2-135m",
            _ => "local/smollm2-135m",
        }
    }
}

fn short(tokens: u32) -> Value {
    json!({ "maxOutputTokens": tokens, "temperature": 0 })
}

#[tokio::test]
async fn it_chats_and_streams() {
    let Some(real) = real() else { return };
    for protocol in PROTOCOLS {
        let request = ModelRequest {
            config: Some(short(24)),
            ..question("Tell me about leeks.")
        };
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1000);
        let registry = protocol.registry(&real);

        let called = call_model(
            &registry,
            protocol.model(),
            request,
            Emitter::channel(sender),
            Context::new(),
        );
        let response = tokio::time::timeout(PATIENCE, called).await.unwrap().unwrap();

        let mut chunks = Vec::new();
        while let Ok(chunk) = receiver.try_recv() {
            chunks.push(chunk.text().into_owned());
        }
        assert!(chunks.len() > 3, "{protocol:?}: {chunks:?}");
        assert_eq!(chunks.concat(), response.text(), "{protocol:?}");
        let usage = response.usage.unwrap();
        assert!(
            usage.input_tokens > Some(0) && usage.output_tokens > Some(0),
            "{protocol:?}: {usage:?}"
        );
    }
}

#[tokio::test]
async fn it_calls_a_tool_and_gets_the_result() {
    let Some(real) = real() else { return };
    for protocol in PROTOCOLS {
        let called = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&called);
        let weather = Tool::new(
            "get_weather",
            "Gets the weather in a city.",
            move |_: City, _: ToolContext| {
                counter.fetch_add(1, Ordering::Relaxed);
                async { Ok(json!({ "weather": "clear" })) }
            },
        );
        let registry = protocol.registry(&real);

        let reply = Generate::new(&registry)
            .model(protocol.model())
            .config(short(64))
            .prompt("Use a tool: what is the weather in Paris?")
            .tool(weather);
        let reply = tokio::time::timeout(PATIENCE, reply.into_future())
            .await
            .unwrap()
            .unwrap();

        assert_eq!(called.load(Ordering::Relaxed), 1, "{protocol:?}");
        let roles: Vec<Role> = reply.messages().iter().map(everturn_ai::Message::role).collect();
        assert_eq!(
            roles,
            [Role::User, Role::Model, Role::Tool, Role::Model],
            "{protocol:?}"
        );
        assert!(!reply.text().is_empty(), "{protocol:?}");
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct City {
    #[expect(dead_code, reason = "only its shape matters")]
    city: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Person {
    name: String,
    age: u8,
}

/// The server enforces schemas for Chat Completions alone.
#[tokio::test]
async fn it_answers_in_the_shape_of_a_schema() {
    let Some(real) = real() else { return };
    let registry = Protocol::Chat.registry(&real);

    let reply = Generate::new(&registry)
        .model(Protocol::Chat.model())
        .config(short(64))
        .prompt("Bob is 42 years old. Who is it?")
        .output::<Person>();
    let reply = tokio::time::timeout(PATIENCE, reply.into_future())
        .await
        .unwrap()
        .unwrap();

    let person = reply.output().unwrap();
    assert!(!person.name.is_empty() && person.age > 0, "{person:?}");
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled_at_the_server() {
    let Some(real) = real() else { return };
    for protocol in PROTOCOLS {
        let cancelled_before = cancellations(&real);
        let request = ModelRequest {
            config: Some(short(2000)),
            ..question("Tell me a long story.")
        };
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let registry = protocol.registry(&real);
        let call = tokio::spawn(async move {
            call_model(
                &registry,
                protocol.model(),
                request,
                Emitter::channel(sender),
                Context::new(),
            )
            .await
        });
        receiver.recv().await.expect("a chunk");

        call.abort();

        let stopped = format!("{protocol:?}: the server has stopped");
        eventually(&stopped, async || cancellations(&real) > cancelled_before).await;
    }
}

/// How often the server has stopped working on something.
fn cancellations(real: &Real) -> usize {
    std::fs::read_to_string(&real.log)
        .unwrap()
        .matches("cancel task")
        .count()
}

#[tokio::test]
async fn embeddings_come_where_they_are_offered() {
    let Some(real) = real() else { return };
    let registry = Protocol::Chat.registry(&real);

    let embedded = everturn_ai::embed(&registry, "local/smollm2-135m", ["leeks", "peas"]).await;

    match embedded {
        Ok(vectors) => assert_eq!(vectors.len(), 2),
        Err(error) => assert_eq!(error.status(), Status::Unimplemented, "{error}"),
    }
}

#[tokio::test]
async fn its_models_are_listed() {
    let Some(real) = real() else { return };
    let plugin = OpenAi::compatible("local", &real.url);

    assert_eq!(plugin.chat_models().await.unwrap(), ["smollm2-135m"]);
    let asked = ask(plugin, "local/any-name", question("Hi.")).await;
    assert!(asked.result.is_ok());
}
