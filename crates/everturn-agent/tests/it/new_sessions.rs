//! The content of a session before its first turn: initial messages, and the custom state of the agent or of
//! the caller.

use std::sync::Arc;

use everturn_agent::store::{MemoryStore, Scope, SessionStore, SnapshotQuery};
use everturn_agent::{AgentBuilder, AgentInit, ClientPermissions, Concurrency, SessionState, Turn, agent};
use everturn_ai::Message;
use everturn_core::{Context, DynAction, Error, JsonCall, Status};
use everturn_testkit::{Gate, ScriptedModel};
use serde_json::{Value, json};

use crate::prompt_support::{asked, registry, said};
use crate::support::{Counter, handling, texts};

/// An agent that adds one to the counter in each turn.
fn counting() -> AgentBuilder<Counter> {
    handling("counting", |turn: Turn<Counter>| async move {
        turn.update_custom(|counter| counter.counter += 1);
        Ok(())
    })
}

fn counter(counter: u32) -> Counter {
    Counter {
        counter,
        ..Counter::default()
    }
}

async fn count_of(store: &MemoryStore, session: &str) -> usize {
    let query = SnapshotQuery::of(session.into());
    store.list(&Scope::default(), &query).await.unwrap().items.len()
}

#[tokio::test]
async fn initial_messages_begin_the_history_once_and_are_kept_in_it() {
    let model = ScriptedModel::new().otherwise(|_| "fine");
    let tutor = agent(&registry(&model), "tutor")
        .system("You are a tutor.")
        .initial_message("I am learning Rust.")
        .initial_messages([Message::model("Where shall we start?")])
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let first = tutor.chat().resume("s").run("Lifetimes.").await.unwrap();
    tutor.chat().resume("s").run("Traits.").await.unwrap();
    let stored = tutor.latest_snapshot("s").await.unwrap().state.unwrap();
    let begun = tutor.get_snapshot(first.snapshot_id()).await.unwrap();

    let expected = [
        "user: I am learning Rust.",
        "model: Where shall we start?",
        "user: Lifetimes.",
        "model: fine",
        "user: Traits.",
        "model: fine",
    ];
    assert_eq!(said(&stored.messages), expected);
    assert_eq!(begun.state.unwrap().messages.len(), 4);
    let second_request = asked(&model.last_request().unwrap());
    assert_eq!(second_request[0], "system: You are a tutor.");
    assert_eq!(second_request[1..], expected[..5]);
}

#[tokio::test]
async fn a_client_that_keeps_the_state_is_given_the_initial_messages_once() {
    let agent = counting().initial_message("a").define().unwrap();

    let first = agent.run_text("b").await.unwrap();
    let state = first.state().unwrap().clone();
    let second = agent.chat().state(state).run("c").await.unwrap();
    let forgotten = SessionState {
        session_id: Some("s".into()),
        ..SessionState::default()
    };
    let cleared = agent.chat().state(forgotten).run("d").await.unwrap();

    assert_eq!(texts(&second.state().unwrap().messages), ["a", "b", "c"]);
    assert_eq!(texts(&cleared.state().unwrap().messages), ["d"]);
}

#[tokio::test]
async fn the_custom_state_begins_with_the_definitions_value() {
    let agent = counting()
        .initial_custom(counter(41))
        .store(MemoryStore::new())
        .define()
        .unwrap();

    agent.chat().resume("s").run("a").await.unwrap();
    agent.chat().resume("s").run("b").await.unwrap();
    let chat = agent.chat().resume("s").open().await.unwrap();

    assert_eq!(chat.custom().unwrap().counter, 43);
}

#[tokio::test]
async fn the_custom_state_is_made_from_the_callers_context() {
    let store = MemoryStore::new();
    let agent = counting()
        .initial_custom_with(|caller: Context| async move {
            let start = caller.value("start").and_then(Value::as_u64);
            let start = start.ok_or_else(|| Error::permission_denied("no start"))?;
            Ok(counter(u32::try_from(start)?))
        })
        .store(store.clone())
        .define()
        .unwrap();
    let of = |start: u32| Context::new().with_value("start", start);

    let ten = agent.chat().context(of(10)).resume("ten").open().await;
    let ten = ten.unwrap().run("a").await.unwrap();
    agent
        .chat()
        .context(of(20))
        .resume("twenty")
        .run("a")
        .await
        .unwrap();
    let refused = agent.chat().resume("none").run("a").await.unwrap_err();

    let of_ten = agent
        .get_snapshot(ten.snapshot_id())
        .await
        .unwrap()
        .state
        .unwrap();
    let of_twenty = agent.latest_snapshot("twenty").await.unwrap().state.unwrap();
    assert_eq!(of_ten.custom.unwrap()["counter"], 11);
    assert_eq!(of_twenty.custom.unwrap()["counter"], 21);
    assert_eq!(refused.status(), Status::PermissionDenied);
    assert_eq!(count_of(&store, "none").await, 0);
}

#[tokio::test]
async fn a_caller_gives_a_new_session_its_custom_state() {
    let agent = counting()
        .initial_custom(counter(1))
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let mut unnamed = agent.chat().custom(counter(7)).open().await.unwrap();
    unnamed.run("a").await.unwrap();
    unnamed.run("b").await.unwrap();
    let mut named = agent.chat().resume("s").custom(counter(70)).open().await.unwrap();
    let shown_before_the_first_turn = named.custom().unwrap();
    named.run("a").await.unwrap();

    assert_eq!(unnamed.custom().unwrap().counter, 9);
    assert_eq!(shown_before_the_first_turn.counter, 70);
    assert_eq!(
        agent
            .chat()
            .resume("s")
            .open()
            .await
            .unwrap()
            .custom()
            .unwrap()
            .counter,
        71
    );
}

#[tokio::test]
async fn a_session_that_exists_refuses_another_custom_state() {
    let store = MemoryStore::new();
    let agent = counting().store(store.clone()).define().unwrap();
    let begun = agent.chat().resume("s").run("a").await.unwrap();

    let by_session = agent
        .chat()
        .resume("s")
        .custom(counter(7))
        .run("b")
        .await
        .unwrap_err();
    let snapshot = begun.snapshot_id().unwrap().clone();
    let by_snapshot = agent
        .chat()
        .snapshot(snapshot)
        .custom(counter(7))
        .run("b")
        .await
        .unwrap_err();

    assert_eq!(by_session.status(), Status::FailedPrecondition);
    assert!(
        by_session.message().contains("session 's' exists"),
        "{by_session}"
    );
    assert_eq!(by_snapshot.status(), Status::InvalidArgument);
    assert!(
        by_snapshot.message().contains("is of an existing one"),
        "{by_snapshot}"
    );
    assert_eq!(count_of(&store, "s").await, 1);
}

#[tokio::test]
async fn a_session_that_began_while_its_caller_waited_refuses_another_custom_state() {
    let gate = Arc::new(Gate::new());
    let held = Arc::clone(&gate);
    let agent = handling("queued", move |turn: Turn<Counter>| {
        let gate = Arc::clone(&held);
        async move {
            if turn.message().is_some_and(|message| message.text() == "first") {
                gate.pass().await;
            }
            Ok(())
        }
    })
    .concurrency(Concurrency::Queue)
    .store(MemoryStore::new())
    .define()
    .unwrap();
    let run = |text: &'static str| {
        let chat = agent.chat().resume("s").custom(counter(7));
        tokio::spawn(async move { chat.run(text).await })
    };

    let first = run("first");
    gate.reached().await;
    let second = run("second");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    gate.open();

    first.await.unwrap().unwrap();
    let refused = second.await.unwrap().unwrap_err();
    assert_eq!(refused.status(), Status::FailedPrecondition);
    assert!(refused.message().contains("exists"), "{refused}");
}

#[tokio::test]
async fn a_client_gives_it_only_where_the_agent_accepts_that_and_it_fits() {
    let store = MemoryStore::new();
    let closed = counting().store(store.clone()).define().unwrap();
    let open = counting().client_permissions(ClientPermissions::none().custom());
    let open = open.store(store.clone()).define().unwrap();
    let kept = counting().define().unwrap();
    let call = |init: Value| JsonCall {
        input: Some(json!({"message": {"role": "user", "content": [{"text": "hi"}]}})),
        init: Some(init),
        ..JsonCall::default()
    };
    let by_field = || call(json!({"sessionId": "s", "custom": {"counter": 7}}));
    let by_state = || call(json!({"state": {"custom": {"counter": 7}}}));

    let not_accepted = [
        closed.action().run_json(by_field()).await.unwrap_err(),
        closed.action().run_json(by_state()).await.unwrap_err(),
    ];
    let unfit = call(json!({"sessionId": "s", "custom": {"counter": "seven"}}));
    let unfit = open.action().run_json(unfit).await.unwrap_err();
    let whole_state =
        call(json!({"state": {"messages": [{"role": "user", "content": []}], "custom": {"counter": 7}}}));
    let whole_state = open.action().run_json(whole_state).await.unwrap_err();
    let before = count_of(&store, "s").await;
    open.action().run_json(by_field()).await.unwrap();
    let again = open.action().run_json(by_field()).await.unwrap_err();
    let unnamed = open.action().run_json(by_state()).await.unwrap();
    let beside_state = kept.action().run_json(call(json!({"custom": {"counter": 7}})));
    let beside_state = beside_state.await.unwrap_err();
    let to_client = kept.action().run_json(by_state()).await.unwrap();

    let [by_field, by_state] = not_accepted;
    for refused in [by_field, beside_state] {
        assert_eq!(refused.status(), Status::InvalidArgument, "{refused}");
        let told = refused.public_message().unwrap();
        assert!(told.contains("ClientPermissions::custom"), "{told}");
    }
    assert_eq!(by_state.status(), Status::FailedPrecondition, "{by_state}");
    assert_eq!(unfit.status(), Status::InvalidArgument);
    assert!(unfit.public_message().unwrap().contains("/counter"), "{unfit}");
    assert_eq!(whole_state.status(), Status::FailedPrecondition);
    assert_eq!(before, 0);
    assert_eq!(again.status(), Status::FailedPrecondition);
    assert!(again.public_message().unwrap().contains("'s' exists"), "{again}");
    let unnamed = open
        .get_snapshot(unnamed["snapshotId"].as_str().unwrap())
        .await
        .unwrap();
    assert_eq!(unnamed.state.unwrap().custom.unwrap()["counter"], 8);
    assert_eq!(to_client["state"]["custom"]["counter"], 8);
}

#[tokio::test]
async fn an_initial_custom_state_of_another_type_is_found_when_the_agent_is_defined() {
    let model = ScriptedModel::new();

    let wrong = agent(&registry(&model), "wrong")
        .initial_custom(json!({"counter": "seven"}))
        .custom::<Counter>()
        .define()
        .unwrap_err();

    assert_eq!(wrong.status(), Status::InvalidArgument);
    assert!(wrong.message().contains("'wrong'"), "{wrong}");
}

#[tokio::test]
async fn a_background_run_begins_with_the_same_content() {
    let agent = counting()
        .initial_message("a")
        .initial_custom(counter(41))
        .store(MemoryStore::new())
        .define()
        .unwrap();
    let mut chat = agent.chat().resume("s").open().await.unwrap();

    chat.detach("b").await.unwrap().wait().await.unwrap();

    let state = agent.latest_snapshot("s").await.unwrap().state.unwrap();
    assert_eq!(texts(&state.messages), ["a", "b"]);
    assert_eq!(state.custom.unwrap()["counter"], 42);
}

#[tokio::test]
async fn a_state_and_a_custom_state_beside_it_are_refused() {
    let agent = counting().define().unwrap();
    let init = AgentInit::state(SessionState::default()).with_custom(json!({"counter": 1}));

    let refused = agent.connect(init).output().await.unwrap_err();

    assert_eq!(refused.status(), Status::InvalidArgument);
}
