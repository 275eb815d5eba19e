//! Defining agents, and what a listing says about them.

use std::time::Duration;

use everturn_agent::store::{MemoryStore, Scope};
use everturn_agent::{AgentBuilder, AgentSession, Clock, Concurrency, Heartbeat, Turn, custom_agent};
use everturn_core::{ActionType, JsonCall, Registry, Status};
use serde_json::{Value, json};

use crate::support;
use crate::support::{Counter, FaultyStore, handling, replying};

#[test]
fn saying_something_twice_is_an_error_when_the_agent_is_defined() {
    type Say = fn(AgentBuilder<Value>) -> AgentBuilder<Value>;
    let everything: [(&str, Say); 10] = [
        ("description", |agent| agent.description("x")),
        ("store", |agent| agent.store(MemoryStore::new())),
        ("scope", |agent| agent.scope(|_| Scope::default())),
        ("state transform", |agent| {
            agent.state_transform(|state, _| Ok(Some(state)))
        }),
        ("stream transform", |agent| {
            agent.stream_transform(|chunk, _| Ok(Some(chunk)))
        }),
        ("concurrency", |agent| agent.concurrency(Concurrency::Queue)),
        ("heartbeat", |agent| agent.heartbeat(Heartbeat::default())),
        ("cancellation grace", |agent| {
            agent.cancellation_grace(Duration::ZERO)
        }),
        ("clock", |agent| agent.clock(Clock::system())),
        ("prompt input", |agent| agent.prompt_input(1)),
    ];

    for (what, say) in everything {
        assert!(say(replying("chef")).build().is_ok(), "{what}");
        let error = say(say(replying("chef"))).build().unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains(what), "{error}");
    }
    assert_eq!(
        replying("").build().unwrap_err().status(),
        Status::InvalidArgument
    );
}

#[tokio::test]
async fn an_agent_is_registered_with_its_companions_under_its_name() {
    let registry = Registry::new();
    let define = |name: &str| {
        custom_agent(&registry, name, |session: AgentSession<Counter>| async move {
            Ok(session.result())
        })
    };
    define("kept").description("Keeps nothing.").define().unwrap();
    define("stored").store(MemoryStore::new()).define().unwrap();
    define("blind")
        .store(FaultyStore::default().without_watching())
        .define()
        .unwrap();

    let again = define("kept").define().unwrap_err();
    let listing = registry.list().await.unwrap();

    let keys: Vec<_> = listing.keys().map(String::as_str).collect();
    assert_eq!(again.status(), Status::AlreadyExists);
    assert_eq!(
        keys,
        [
            "/agent-abort/stored",
            "/agent-session/blind",
            "/agent-session/stored",
            "/agent-snapshot/blind",
            "/agent-snapshot/stored",
            "/agent-snapshots/blind",
            "/agent-snapshots/stored",
            "/agent-watch/stored",
            "/agent/blind",
            "/agent/kept",
            "/agent/stored",
            "/session-store/blind/getSession",
            "/session-store/stored/getSession",
            "/snapshot-store/blind/getSnapshot",
            "/snapshot-store/blind/listSnapshots",
            "/snapshot-store/stored/getSnapshot",
            "/snapshot-store/stored/listSnapshots",
        ]
    );
    let kept = &listing["/agent/kept"];
    assert_eq!(kept.description.as_deref(), Some("Keeps nothing."));
    assert_eq!(
        (&kept.metadata["bidi"], &kept.metadata["description"]),
        (&json!(true), &json!("Keeps nothing."))
    );
    assert_eq!(kept.metadata["agent"]["stateManagement"], "client");
    assert_eq!(kept.metadata["agent"]["abortable"], false);
    assert_eq!(
        kept.metadata["agent"]["stateSchema"]["properties"]["counter"]["type"],
        "integer"
    );
    assert_eq!(listing["/agent/stored"].metadata["agent"]["abortable"], true);
    assert_eq!(listing["/agent/blind"].metadata["agent"]["abortable"], false);
}

#[tokio::test]
async fn an_untyped_state_has_no_schema() {
    let agent = replying("chef").define().unwrap();

    let metadata = support::json(&agent.metadata());

    assert_eq!(metadata, json!({"stateManagement": "client", "abortable": false}));
}

#[tokio::test]
async fn an_agent_built_without_registering_works_and_can_be_registered_elsewhere() {
    let agent = handling("chef", |turn: Turn| support::reply(turn))
        .store(MemoryStore::new())
        .build()
        .unwrap();
    let elsewhere = Registry::new();

    let reply = agent.run_text("one").await.unwrap();
    agent.register(&elsewhere).unwrap();
    let found = elsewhere.of_type(&ActionType::AGENT);
    let input = json!({"message": {"role": "user", "content": [{"text": "two"}]}});
    let call = JsonCall {
        init: Some(json!({"sessionId": reply.session_id().as_str()})),
        ..JsonCall::new(input)
    };
    let answered = found["chef"].run_json(call).await.unwrap();

    assert!(agent.registry().get("/agent/chef").is_none());
    assert!(elsewhere.get("/agent-snapshot/chef").is_some() && elsewhere.get("/agent-abort/chef").is_some());
    assert_eq!(answered["message"]["content"][0]["text"], "re: two");
    assert_eq!(answered["finishReason"], "stop");
}
