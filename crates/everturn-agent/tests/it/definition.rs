//! Defining agents, and their descriptions in a listing.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{Detail, MemoryStore, Scope, SessionStore};
use everturn_agent::{
    AgentSession, Clock, Concurrency, Heartbeat, SnapshotPolicy, Timeline, Turn, custom_agent,
};
use everturn_core::{ActionType, JsonCall, Registry, Status};
use serde_json::json;

use crate::support;
use crate::support::{Counter, FaultyStore, handling, replying};

#[tokio::test]
async fn the_last_of_two_settings_wins_and_recorded_values_add_up() {
    let kept = Arc::new(MemoryStore::new());
    let agent = replying("chef")
        .description("first")
        .description("last")
        .store(MemoryStore::new())
        .store(Arc::clone(&kept))
        .scope(|_| Scope::new("first"))
        .scope(|_| Scope::new("last"))
        .state_transform(|_, _| Ok(None))
        .state_transform(|state, _| Ok(Some(state)))
        .stream_transform(|_, _| Ok(None))
        .stream_transform(|chunk, _| Ok(Some(chunk)))
        .heartbeat(Heartbeat {
            interval: Duration::ZERO,
            expiry: Duration::ZERO,
        })
        .heartbeat(Heartbeat::default())
        .timeline(Timeline::Linear)
        .concurrency(Concurrency::Fork)
        .concurrency(Concurrency::Queue)
        .cancellation_grace(Duration::ZERO)
        .cancellation_grace(Duration::from_secs(1))
        .snapshots(SnapshotPolicy::never())
        .snapshots(SnapshotPolicy::default())
        .clock(Clock::system())
        .clock(Clock::system())
        .build()
        .unwrap();

    agent.chat().resume("s").run("hello").await.unwrap();

    let latest = kept.latest(&Scope::new("last"), &"s".into(), Detail::Whole).await;
    assert!(latest.unwrap().is_some());
    assert_eq!(agent.description(), Some("last"));
}

#[test]
fn an_agent_without_a_name_is_refused() {
    let error = replying("").build().unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
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
            "/agent-copy/blind",
            "/agent-copy/stored",
            "/agent-delete-tenant/blind",
            "/agent-delete-tenant/stored",
            "/agent-delete/blind",
            "/agent-delete/stored",
            "/agent-diff/blind",
            "/agent-diff/stored",
            "/agent-export/blind",
            "/agent-export/stored",
            "/agent-fork/blind",
            "/agent-fork/stored",
            "/agent-import/blind",
            "/agent-import/stored",
            "/agent-label/blind",
            "/agent-label/stored",
            "/agent-retain/blind",
            "/agent-retain/stored",
            "/agent-session/blind",
            "/agent-session/stored",
            "/agent-sessions/blind",
            "/agent-sessions/stored",
            "/agent-snapshot/blind",
            "/agent-snapshot/stored",
            "/agent-snapshots/blind",
            "/agent-snapshots/stored",
            "/agent-tenants/blind",
            "/agent-tenants/stored",
            "/agent-tree/blind",
            "/agent-tree/stored",
            "/agent-usage/blind",
            "/agent-usage/stored",
            "/agent-watch/stored",
            "/agent/blind",
            "/agent/kept",
            "/agent/stored",
            "/session-store/blind/getSession",
            "/session-store/blind/getSnapshot",
            "/session-store/blind/listSnapshots",
            "/session-store/stored/getSession",
            "/session-store/stored/getSnapshot",
            "/session-store/stored/listSnapshots",
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
        init: Some(json!({"sessionId": reply.session_id().unwrap().as_str()})),
        ..JsonCall::new(input)
    };
    let answered = found["chef"].run_json(call).await.unwrap();

    assert!(agent.registry().get("/agent/chef").is_none());
    assert!(elsewhere.get("/agent-snapshot/chef").is_some() && elsewhere.get("/agent-abort/chef").is_some());
    assert_eq!(answered["message"]["content"][0]["text"], "re: two");
    assert_eq!(answered["finishReason"], "stop");
}
