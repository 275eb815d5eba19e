//! The operator's log: one line per failure, and lines whose length does not depend on the conversation.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, AgentFinishReason, AgentInit, AgentSession, agent, custom_agent};
use everturn_ai::{FinishReason, Message, Tool};
use everturn_core::{Context, Error, Registry, RequestId};
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;

use crate::alone;

/// The lines logged since they were last taken.
struct Log(File);

impl Log {
    fn filtered(filter: &str) -> (Self, DefaultGuard) {
        let log = tempfile::NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(log.reopen().unwrap())
            .with_ansi(false)
            .with_env_filter(EnvFilter::new(filter))
            .finish();
        (
            Self(log.into_file()),
            tracing::subscriber::set_default(subscriber),
        )
    }

    fn take(&self) -> String {
        let mut lines = String::new();
        (&self.0).read_to_string(&mut lines).unwrap();
        lines
    }
}

/// An agent whose model asks for a tool in every turn, which logs a line.
fn desk(registry: &Registry) -> Agent {
    let model = ScriptedModel::new().otherwise(|request| {
        let answered = request
            .messages
            .last()
            .is_some_and(|last| last.role() == everturn_ai::Role::Tool);
        if answered {
            Reply::text("Your secret is safe.")
        } else {
            Reply::tool("look_up", json!({ "customer": "Ada" }))
        }
    });
    model.register(registry, "scripted").unwrap();
    let look_up = Tool::new("look_up", "Looks up a customer.", |_: Value, _| async {
        tracing::info!("looked up");
        Ok("a secret of Ada")
    });
    agent(registry, "desk")
        .model("scripted")
        .tool(look_up)
        .store(MemoryStore::new())
        .define()
        .unwrap()
}

#[tokio::test]
async fn a_turn_logs_as_many_bytes_at_turn_1000_as_at_turn_10_and_none_of_the_conversation() {
    let _alone = alone();
    let (log, _guard) = Log::filtered("debug");
    let desk = desk(&Registry::new());
    let mut chat = desk.chat().resume("s").open().await.unwrap();

    let mut lengths = Vec::new();
    let mut line = String::new();
    for _ in 0..1000 {
        chat.run("My secret is 4711.").await.unwrap();
        line = log.take();
        lengths.push(line.len());
    }

    assert!(line.contains("looked up"), "{line}");
    assert!(
        !line.contains("secret") && !line.contains("4711") && !line.contains("Ada"),
        "{line}"
    );
    // The number of the turn has more digits.
    assert!(
        lengths[999].abs_diff(lengths[9]) <= 32,
        "{} at turn 10, {} at turn 1000",
        lengths[9],
        lengths[999]
    );
    assert!(lengths[999] < 4096, "{} bytes: {line}", lengths[999]);
}

fn failing(registry: &Registry) -> Agent {
    custom_agent(registry, "parrot", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                if turn.message().is_some_and(|message| message.text() == "boom") {
                    let cause = std::io::Error::other("connection refused");
                    return Err(Error::unavailable("the model server is down")
                        .with_source(cause)
                        .into());
                }
                turn.add_message(Message::model("fine"));
                Ok(FinishReason::Stop)
            })
            .await?;
        Ok(session.result())
    })
    .store(MemoryStore::new())
    .define()
    .unwrap()
}

#[tokio::test]
async fn a_failed_turn_is_one_error_with_its_causes_and_the_id_of_its_request() {
    let _alone = alone();
    let (log, _guard) = Log::filtered("info");
    let parrot = failing(&Registry::new());
    let context = Context::new().with_extension(Arc::new(RequestId::given("req-1").unwrap()));

    let mut connection = parrot.connect_in(AgentInit::session("s"), &context);
    connection.send("boom").await.unwrap();
    connection.output().await.unwrap();

    let log = log.take();
    let errors: Vec<_> = log.lines().filter(|line| line.contains("ERROR")).collect();
    let [error] = errors.as_slice() else {
        panic!("{log}");
    };
    for part in [
        "a turn failed",
        "the model server is down",
        "connection refused",
        "UNAVAILABLE",
        "req-1",
        "parrot",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_turn_that_reaches_its_limit_of_rounds_is_one_warning() {
    let _alone = alone();
    let (log, _guard) = Log::filtered("info");
    let registry = Registry::new();
    let model = ScriptedModel::new().otherwise(|_| Reply::tool("look_up", json!({ "customer": "Ada" })));
    model.register(&registry, "scripted").unwrap();
    let look_up = Tool::new("look_up", "Looks up a customer.", |_: Value, _| async {
        Ok("Ada")
    });
    let desk = agent(&registry, "desk")
        .model("scripted")
        .tool(look_up)
        .max_rounds(2)
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let mut connection = desk.connect(AgentInit::session("s"));
    connection.send("Who is it?").await.unwrap();
    let output = connection.output().await.unwrap();

    assert_eq!(output.finish_reason, Some(AgentFinishReason::Aborted));
    let log = log.take();
    assert!(log.contains("a turn was stopped by a limit"), "{log}");
    assert_eq!(
        (log.matches("WARN").count(), log.matches("ERROR").count()),
        (1, 0),
        "{log}"
    );
}

#[tokio::test]
async fn a_failed_background_run_is_one_error_too() {
    let _alone = alone();
    let (log, _guard) = Log::filtered("info");
    let parrot = failing(&Registry::new());

    let mut chat = parrot.chat().open().await.unwrap();
    let task = chat.detach("boom").await.unwrap();
    task.wait().await.unwrap_err();

    let log = log.take();
    assert_eq!(log.matches("ERROR").count(), 1, "{log}");
}

#[tokio::test]
async fn spans_are_filtered_apart_from_the_lines_of_every_crate() {
    let _alone = alone();
    let (log, _guard) = Log::filtered("info,everturn_span=off");
    let parrot = failing(&Registry::new());

    parrot.run_text("boom").await.unwrap_err();

    let log = log.take();
    assert!(log.contains("a turn failed"), "{log}");
    assert!(!log.contains("otel.name"), "{log}");
}

#[tokio::test]
async fn a_stored_state_that_cannot_be_read_is_one_error_without_its_content() {
    let _alone = alone();
    let (log, _guard) = Log::filtered("info");
    let store = MemoryStore::new();
    let writer = custom_agent(&Registry::new(), "desk", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.set_custom(json!("a secret"));
                Ok(())
            })
            .await?;
        Ok(session.result())
    });
    let writer = writer.store(store.clone()).define().unwrap();
    writer.chat().resume("ann").run("Hello.").await.unwrap();
    let reader = |session: AgentSession<u64>| async move { Ok(session.result()) };
    let reader = custom_agent(&Registry::new(), "desk", reader)
        .store(store)
        .define()
        .unwrap();

    reader.chat().resume("ann").run("Hello.").await.unwrap_err();

    let log = log.take();
    let errors: Vec<_> = log.lines().filter(|line| line.contains("ERROR")).collect();
    let [error] = errors.as_slice() else {
        panic!("{log}");
    };
    for part in [
        "session 'ann'",
        "u64",
        "field '.'",
        "let the type read it",
        "FAILED_PRECONDITION",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("secret"), "{error}");
}
