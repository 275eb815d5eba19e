//! The inits that an invocation accepts, and the errors of the others.

use std::sync::Arc;

use everturn_agent::store::{MemoryStore, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{
    Agent, AgentInit, AgentReply, FailedTurns, SessionId, SessionState, Snapshot, SnapshotId, SnapshotStatus,
    store::SnapshotQuery,
};
use everturn_ai::{History, Message};
use everturn_core::{DynAction, JsonCall, Result, RuntimeError, Status};
use serde_json::{Value, json};

use crate::support::{Counter, FaultyStore, handling, replying, texts};

async fn put(store: &dyn SessionStore, id: &str, session: &str, status: SnapshotStatus, second: i64) {
    let created_at = jiff::Timestamp::from_second(second).unwrap();
    let mut snapshot = Snapshot::new(id.into(), session.into(), created_at);
    snapshot.status = status;
    snapshot.state = Some(SessionState {
        messages: History::from_iter([Message::user(format!("in {id}"))]),
        ..SessionState::default()
    });
    if status == SnapshotStatus::Failed {
        snapshot.error = Some(RuntimeError {
            status: Some(Status::Internal),
            message: "burnt".into(),
            details: None,
        });
    }
    let mutation = Mutation::new(move |_| Ok(Some(snapshot.clone())));
    store
        .save(&Scope::default(), Some(&id.into()), Precondition::None, mutation)
        .await
        .unwrap();
}

async fn stocked() -> MemoryStore {
    let store = MemoryStore::new();
    put(&store, "done", "good", SnapshotStatus::Completed, 1).await;
    put(&store, "failed", "bad", SnapshotStatus::Failed, 1).await;
    put(&store, "aborted", "stopped", SnapshotStatus::Aborted, 1).await;
    put(&store, "pending", "busy", SnapshotStatus::Pending, 1).await;
    store
}

fn init(session: Option<&str>, snapshot: Option<&str>, state: bool) -> AgentInit {
    AgentInit {
        session_id: session.map(SessionId::from),
        snapshot_id: snapshot.map(SnapshotId::from),
        state: state.then(SessionState::default),
        ..AgentInit::default()
    }
}

async fn begin(agent: &Agent, init: AgentInit) -> Result<AgentReply> {
    let mut connection = agent.connect(init);
    // A refused invocation takes no input.
    let _ = connection.send("hello").await;
    AgentReply::from_output(connection.output().await?)
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn every_refusal_has_its_status_and_its_words() {
    let strict = replying("stored").failed_turns(FailedTurns::Discard);
    let stored = strict.store(stocked().await).define().unwrap();
    let kept = replying("kept").define().unwrap();
    let cases = [
        (
            &stored,
            init(None, None, true),
            Status::FailedPrecondition,
            "Cannot send 'state' to agent",
        ),
        (
            &kept,
            init(None, Some("done"), false),
            Status::FailedPrecondition,
            "Cannot use 'snapshotId'",
        ),
        (
            &kept,
            init(Some("good"), None, false),
            Status::FailedPrecondition,
            "Cannot use 'sessionId'",
        ),
        (
            &kept,
            init(Some("good"), Some("done"), false),
            Status::FailedPrecondition,
            "Cannot use 'snapshotId'",
        ),
        (
            &kept,
            init(Some("good"), None, true),
            Status::InvalidArgument,
            "one or the other",
        ),
        (
            &stored,
            init(Some("good"), None, true),
            Status::InvalidArgument,
            "one or the other",
        ),
        (
            &stored,
            init(None, Some("done"), true),
            Status::InvalidArgument,
            "one or the other",
        ),
        (
            &stored,
            init(None, Some("gone"), false),
            Status::NotFound,
            "'gone' was not found",
        ),
        (
            &stored,
            init(Some("bad"), Some("done"), false),
            Status::InvalidArgument,
            "does not belong to session",
        ),
        (
            &stored,
            init(Some("good"), Some("failed"), false),
            Status::InvalidArgument,
            "does not belong to session",
        ),
        (
            &stored,
            init(None, Some("failed"), false),
            Status::FailedPrecondition,
            "'failed': it is failed; nothing was saved before it",
        ),
        (
            &stored,
            init(None, Some("pending"), false),
            Status::FailedPrecondition,
            "'pending': it is pending: wait for its run, or abort it",
        ),
        (
            &stored,
            init(None, Some("aborted"), false),
            Status::FailedPrecondition,
            "'aborted': it is aborted; nothing was saved before it",
        ),
        (
            &stored,
            init(Some("bad"), None, false),
            Status::FailedPrecondition,
            "'failed': it is failed; nothing was saved before it",
        ),
        (
            &stored,
            init(Some("busy"), None, false),
            Status::FailedPrecondition,
            "'pending': it is pending: wait for its run, or abort it",
        ),
        (
            &stored,
            init(Some("stopped"), None, false),
            Status::FailedPrecondition,
            "'aborted': it is aborted; nothing was saved before it",
        ),
    ];

    for (agent, init, status, words) in cases {
        let error = begin(agent, init.clone()).await.unwrap_err();

        assert_eq!(error.status(), status, "{init:?}: {error}");
        assert!(error.message().contains(words), "{init:?}: {error}");
        assert!(
            AgentReply::<Value>::of(&error).is_none(),
            "{init:?} is thrown, not a failed output"
        );
        // Everything about the request and the snapshot is public, but the private text of a failure, and
        // nothing about how the agent is configured.
        assert_eq!(
            error.public_message().is_none(),
            words.contains("Cannot"),
            "{error:?}"
        );
        assert!(
            !error.public_message().is_some_and(|text| text.contains("burnt")),
            "{error:?}"
        );
    }
}

/// Stores a snapshot of a session with one completed turn, `one`.
async fn put_after_one(
    store: &MemoryStore,
    session: &str,
    id: &str,
    status: SnapshotStatus,
    beat: Option<i64>,
) {
    let one = format!("{session}-one");
    put(store, &one, session, SnapshotStatus::Completed, 1).await;
    let second = |second| jiff::Timestamp::from_second(second).unwrap();
    let row = Snapshot {
        status,
        parent_id: Some(one.into()),
        heartbeat_at: beat.map(second),
        ..Snapshot::new(id.into(), session.into(), second(2))
    };
    let mutation = Mutation::new(move |_| Ok(Some(row.clone())));
    let (scope, id) = (Scope::default(), SnapshotId::from(id));
    store
        .save(&scope, Some(&id), Precondition::None, mutation)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_refusal_names_the_row_its_status_and_what_to_do() {
    let store = MemoryStore::new();
    let now = jiff::Timestamp::now().as_second();
    let (alive, silent) = (Some(now), Some(now - 3600));
    let before =
        |session: &str| format!("resume snapshot '{session}-one' with 'snapshotId' to go on before it");
    let cases = [
        (
            "a",
            SnapshotStatus::Pending,
            alive,
            "it is pending: wait for its run, or abort it".to_owned(),
        ),
        (
            "b",
            SnapshotStatus::Aborting,
            alive,
            "it is aborting: its run is being stopped; retry with the same id".to_owned(),
        ),
        (
            "c",
            SnapshotStatus::Pending,
            silent,
            format!(
                "it is expired: its run has lost its worker; abort it, then {}",
                before("c")
            ),
        ),
        (
            "d",
            SnapshotStatus::Aborting,
            silent,
            format!("it is expired: its run has lost its worker; {}", before("d")),
        ),
        (
            "e",
            SnapshotStatus::Failed,
            None,
            format!("it is failed and holds no state; {}", before("e")),
        ),
        (
            "f",
            SnapshotStatus::Aborted,
            None,
            format!("it is aborted and holds no state; {}", before("f")),
        ),
    ];
    for (session, status, beat, _) in &cases {
        put_after_one(&store, session, &format!("{session}-two"), *status, *beat).await;
    }
    let agent = replying("stored").store(store).define().unwrap();

    for (session, _, _, words) in cases {
        let row = format!("{session}-two");
        for init in [init(None, Some(&row), false), init(Some(session), None, false)] {
            let error = begin(&agent, init).await.unwrap_err();

            assert_eq!(error.status(), Status::FailedPrecondition);
            let public = error.public_message().unwrap();
            assert!(
                public.ends_with(&format!("snapshot '{row}': {words}")),
                "{public}"
            );
            let resumable = error
                .details()
                .map(|details| details["resumableSnapshotId"].clone());
            let expected = words
                .contains("to go on before it")
                .then(|| json!(format!("{session}-one")));
            assert_eq!(resumable, expected);
        }
    }
}

#[tokio::test]
async fn failed_and_aborted_snapshots_with_a_state_are_resumed_by_id_and_as_tips() {
    for (id, session) in [("failed", "bad"), ("aborted", "stopped")] {
        let agent = replying("stored").store(stocked().await).define().unwrap();

        let by_session = begin(&agent, init(Some(session), None, false)).await.unwrap();
        let by_id = begin(&agent, init(None, Some(id), false)).await.unwrap();

        for reply in [by_session, by_id] {
            let snapshot = agent
                .get_snapshot(reply.snapshot_id().unwrap().clone())
                .await
                .unwrap();
            assert_eq!(snapshot.parent_id, Some(id.into()));
        }
    }
}

#[tokio::test]
async fn every_start_that_is_allowed_resumes_where_it_says() {
    let store = stocked().await;
    let stored = replying("stored").store(store.clone()).define().unwrap();
    let kept = replying("kept").define().unwrap();

    let by_snapshot = begin(&stored, init(None, Some("done"), false)).await.unwrap();
    let branch = begin(&stored, init(Some("good"), Some("done"), false))
        .await
        .unwrap();
    let by_session = begin(&stored, init(Some("good"), None, false)).await.unwrap();
    let own_id = begin(&stored, init(Some("not a uuid!"), None, false))
        .await
        .unwrap();
    let empty_ids = begin(&stored, init(Some(""), Some(""), false)).await.unwrap();
    let from_state = begin(&kept, init(None, None, true)).await.unwrap();

    let messages = async |reply: &AgentReply| {
        let snapshot = stored
            .get_snapshot(reply.snapshot_id().unwrap().clone())
            .await
            .unwrap();
        (snapshot.parent_id, texts(&snapshot.state.unwrap().messages))
    };
    let expected = vec!["in done".to_owned(), "hello".to_owned(), "re: hello".to_owned()];
    assert_eq!(
        messages(&by_snapshot).await,
        (Some("done".into()), expected.clone())
    );
    assert_eq!(messages(&branch).await, (Some("done".into()), expected));
    assert_eq!(messages(&by_session).await.0.as_ref(), branch.snapshot_id());
    assert_eq!(own_id.session_id(), Some(&"not a uuid!".into()));
    assert_eq!(messages(&own_id).await.0, None);
    assert_ne!(empty_ids.session_id(), Some(&"".into()));
    assert_eq!(
        texts(&from_state.state().unwrap().messages),
        ["hello", "re: hello"]
    );
}

#[tokio::test]
async fn a_dead_tip_is_walked_past_where_the_agent_allows_it() {
    let store = MemoryStore::new();
    put(&store, "one", "s", SnapshotStatus::Completed, 1).await;
    let mut dead = Snapshot::new("two".into(), "s".into(), jiff::Timestamp::from_second(2).unwrap());
    dead.status = SnapshotStatus::Failed;
    dead.parent_id = Some("one".into());
    let mutation = Mutation::new(move |_| Ok(Some(dead.clone())));
    store
        .save(
            &Scope::default(),
            Some(&"two".into()),
            Precondition::None,
            mutation,
        )
        .await
        .unwrap();
    put(&store, "orphan", "lost", SnapshotStatus::Pending, 1).await;
    let agent = replying("patient")
        .store(store.clone())
        .resume_past_failures()
        .define()
        .unwrap();

    let resumed = begin(&agent, AgentInit::session("s")).await.unwrap();
    let anew = begin(&agent, AgentInit::session("lost")).await.unwrap();

    let snapshot = agent
        .get_snapshot(resumed.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    assert_eq!(snapshot.parent_id, Some("one".into()));
    assert_eq!(
        agent.latest_snapshot("s").await.unwrap().snapshot_id,
        snapshot.snapshot_id
    );
    let snapshot = agent
        .get_snapshot(anew.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    assert_eq!(
        (snapshot.parent_id, texts(&snapshot.state.unwrap().messages).len()),
        (None, 2)
    );
}

#[tokio::test]
async fn a_refused_start_runs_and_writes_nothing() {
    let store = FaultyStore::default();
    let agent = handling("never", |_: everturn_agent::Turn| async move {
        panic!("the function must not run");
        #[expect(unreachable_code, reason = "gives the handler its type")]
        Ok(())
    })
    .store(store.clone())
    .define()
    .unwrap();

    begin(&agent, init(None, Some("gone"), false)).await.unwrap_err();
    store.fail_reads(true);
    let unreadable = begin(&agent, init(Some("s"), None, false)).await.unwrap_err();

    assert_eq!(unreadable.status(), Status::Unavailable);
    assert!(
        unreadable.message().contains("could not be loaded"),
        "{unreadable}"
    );
    assert_eq!(store.saves(), 0);
    assert_eq!(
        store
            .inner
            .list(&Scope::default(), &SnapshotQuery::of("s".into()))
            .await
            .unwrap()
            .items
            .len(),
        0
    );
}

#[tokio::test]
async fn custom_state_that_is_not_the_agents_is_refused() {
    let agent = handling(
        "counter",
        |_: everturn_agent::Turn<Counter>| async move { Ok(()) },
    )
    .define()
    .unwrap();
    let state = SessionState {
        custom: Some(Arc::new(json!({"counter": "seven"}))),
        ..SessionState::default()
    };

    let error = agent.chat().state(state).run("hello").await.unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(AgentReply::<Counter>::of(&error).is_none());
}

#[tokio::test]
async fn unknown_fields_and_a_missing_input_are_refused_from_outside() {
    let agent = replying("strict").define().unwrap();
    let call = |init: Value, input: Option<Value>| JsonCall {
        input,
        init: Some(init),
        ..JsonCall::default()
    };
    let hello = || Some(json!({"message": {"role": "user", "content": [{"text": "hi"}]}}));

    let unknown = agent
        .action()
        .run_json(call(json!({"sesionId": "s"}), hello()))
        .await
        .unwrap_err();
    let missing = agent.action().run_json(call(json!({}), None)).await.unwrap_err();
    let served = agent.action().run_json(call(json!({}), hello())).await.unwrap();

    assert_eq!(unknown.status(), Status::InvalidArgument);
    assert_eq!(missing.status(), Status::InvalidArgument);
    assert!(missing.public_message().is_some());
    assert_eq!(served["message"]["content"][0]["text"], "re: hi");
}

#[tokio::test]
async fn a_conversation_has_one_prompt_input_from_its_beginning() {
    let store = MemoryStore::new();
    let agent = handling("prompted", |turn: everturn_agent::Turn| async move {
        turn.add_message(Message::model(
            turn.prompt_input().unwrap_or_default().to_string(),
        ));
        Ok(())
    })
    .prompt_input(json!({"tone": "kind"}))
    .store(store)
    .define()
    .unwrap();

    let own = agent.run_text("a").await.unwrap();
    let given = agent
        .chat()
        .resume("s")
        .prompt_input(json!({"tone": "dry"}))
        .run("a")
        .await
        .unwrap();
    let kept = agent.chat().resume("s").run("b").await.unwrap();
    let same = agent
        .chat()
        .resume("s")
        .prompt_input(json!({"tone": "dry"}))
        .run("c")
        .await
        .unwrap();
    let other = agent
        .chat()
        .resume("s")
        .prompt_input(json!({"tone": "sour"}))
        .run("d")
        .await
        .unwrap_err();

    assert_eq!(own.text(), r#"{"tone":"kind"}"#);
    for reply in [given, kept, same] {
        assert_eq!(reply.text(), r#"{"tone":"dry"}"#);
    }
    assert_eq!(other.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn a_new_session_with_an_id_that_some_store_cannot_keep_is_refused_before_anything_runs() {
    let long = "x".repeat(201);
    for id in [
        "../up",
        "a/b",
        "a\\b",
        ".hidden",
        "a..b",
        "line\nbreak",
        long.as_str(),
    ] {
        let store = MemoryStore::new();
        let agent = replying("stored").store(store.clone()).define().unwrap();

        let refused = begin(&agent, init(Some(id), None, false)).await.unwrap_err();

        assert_eq!(refused.status(), Status::InvalidArgument, "{id:?}: {refused}");
        let listed = store.list(&Scope::default(), &SnapshotQuery::of(id.into())).await;
        assert!(listed.unwrap().items.is_empty(), "{id:?}");
    }
}

#[tokio::test]
async fn a_session_of_an_earlier_version_continues_whatever_its_id() {
    let store = MemoryStore::new();
    put(&store, "old", "kitchen/7", SnapshotStatus::Completed, 1).await;
    let agent = replying("stored").store(store).define().unwrap();

    let reply = begin(&agent, init(Some("kitchen/7"), None, false)).await;

    assert!(reply.is_ok());
}
