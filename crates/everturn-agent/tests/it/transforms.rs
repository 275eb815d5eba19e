//! Transforms shape everything that clients see, and nothing leaves without them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentInit, AgentReply, Artifact, Turn};
use everturn_ai::{History, Message};
use everturn_core::{Context, Error, Reason, Status};
use serde::Serialize;
use serde_json::{Value, json};

use crate::support;
use crate::support::{Counter, all_chunks, handling, json, replying, said, snapshots, texts};

#[tokio::test]
async fn a_dropped_chunk_is_not_sent_and_its_effect_stays() {
    let agent = handling("writer", |turn: Turn| async move {
        turn.send_chunk("secret").await?;
        turn.send_chunk("hello").await?;
        turn.send_artifact(Artifact::text("hidden", "x")).await?;
        Ok(())
    })
    .stream_transform(|mut chunk, context| {
        if let Some(model) = &mut chunk.model_chunk {
            if model.text() == "secret" {
                return Ok(None);
            }
            let who = context.auth().and_then(Value::as_str).unwrap_or("nobody");
            *model = format!("{} to {who}", model.text()).as_str().into();
        }
        Ok(Some(chunk).filter(|chunk| chunk.artifact.is_none()))
    })
    .define()
    .unwrap();

    let context = Context::new().with_value("auth", "ann");
    let mut connection = agent.connect_in(AgentInit::default(), &context);
    connection.send("go").await.unwrap();
    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await.unwrap();

    assert_eq!(
        json(&chunks),
        json!([{"modelChunk": {"content": [{"text": "hello to ann"}]}}, {"turnEnd": {}}])
    );
    assert_eq!(output.artifacts.unwrap().len(), 1);
}

#[tokio::test]
async fn a_failing_stream_transform_lets_nothing_more_out_and_fails_the_invocation() {
    let handler = |turn: Turn| async move {
        turn.send_chunk("one").await?;
        turn.send_chunk("bad").await?;
        turn.send_chunk("three").await?;
        support::reply(turn).await
    };
    let failing = handling("failing", handler).stream_transform(|chunk, _| {
        match chunk
            .model_chunk
            .as_ref()
            .map(|model| model.text().into_owned())
            .as_deref()
        {
            Some("bad") => Err(Error::permission_denied("no swearing").into()),
            _ => Ok(Some(chunk)),
        }
    });
    let panicking = handling("panicking", handler).stream_transform(|chunk, _| {
        assert!(!json(&chunk).to_string().contains("bad"), "cannot bear it");
        Ok(Some(chunk))
    });

    for (agent, status) in [(failing, Status::PermissionDenied), (panicking, Status::Internal)] {
        let agent = agent.define().unwrap();
        let mut connection = agent.connect(AgentInit::default());
        connection.send("go").await.unwrap();
        let chunks = all_chunks(&mut connection).await;
        let output = connection.output().await.unwrap();

        assert_eq!(
            json(&chunks),
            json!([{"modelChunk": {"content": [{"text": "one"}]}}])
        );
        assert_eq!(output.error.unwrap().status, Some(status));
        assert!(
            texts(&output.state.unwrap().messages).is_empty(),
            "the last good state is the beginning"
        );
    }
}

#[tokio::test]
async fn a_failing_state_transform_withholds_the_patch_and_fails_the_invocation() {
    const HIDDEN: Reason = Reason::new("hidden");
    let calls = Arc::new(AtomicUsize::new(0));
    let agent = {
        let calls = Arc::clone(&calls);
        handling("counter", |turn: Turn<Counter>| async move {
            turn.update_custom(|custom| custom.counter += 1);
            turn.context().ended().await;
            Ok(())
        })
        .state_transform(move |_, _| {
            calls.fetch_add(1, Ordering::SeqCst);
            Err(Error::data_loss("cannot redact").with_reason(HIDDEN).into())
        })
        .define()
        .unwrap()
    };

    let mut connection = agent.connect(AgentInit::default());
    connection.send("go").await.unwrap();
    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await.unwrap();

    assert!(chunks.is_empty(), "{chunks:?}");
    assert_eq!(output.error.unwrap().status, Some(Status::DataLoss));
    assert_eq!(output.state, None, "what cannot be redacted is not shown");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_state_transform_that_fails_only_on_the_output_fails_it() {
    let agent = replying("chef")
        .state_transform(|_, _| Err(Error::data_loss("cannot redact").into()))
        .define()
        .unwrap();
    let started_wrong = replying("chef")
        .state_transform(|state, _| match state.messages.len() {
            2 => Err(Error::data_loss("cannot redact").into()),
            _ => Ok(Some(state)),
        })
        .define()
        .unwrap();

    let failed = agent.run_text("one").await.unwrap_err();
    let cause = agent.run_text("boom").await.unwrap_err();
    let last_good = started_wrong.run_text("one").await.unwrap_err();

    assert_eq!(failed.status(), Status::DataLoss);
    assert_eq!(AgentReply::<Value>::of(&failed).unwrap().state(), None);
    assert_eq!(
        cause.status(),
        Status::Unavailable,
        "what went wrong first is what the caller learns"
    );
    assert_eq!(last_good.status(), Status::DataLoss);
    assert_eq!(
        AgentReply::<Value>::of(&last_good).unwrap().state(),
        None,
        "the turn was good; its state cannot be shown"
    );
}

#[tokio::test]
async fn snapshots_stay_raw_and_reads_are_shaped() {
    let store = Arc::new(MemoryStore::new());
    let agent = replying("chef")
        .store(Arc::clone(&store))
        .state_transform(|mut state, _| {
            if state.messages.len() > 2 {
                return Err(Error::resource_exhausted("too long to redact").into());
            }
            state.messages = History::from_iter([Message::user("[redacted]")]);
            Ok(Some(state))
        })
        .define()
        .unwrap();

    let reply = agent.chat().resume("s").run("one").await.unwrap();
    let read = agent
        .get_snapshot(reply.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    let longer = agent.chat().resume("s").run("two").await.unwrap();
    let unreadable = agent
        .get_snapshot(longer.snapshot_id().unwrap().clone())
        .await
        .unwrap_err();

    let raw = snapshots(store.as_ref(), &"s".into()).await;
    assert_eq!(texts(&read.state.unwrap().messages), ["[redacted]"]);
    assert_eq!(
        texts(&raw[0].state.as_ref().unwrap().messages),
        ["one", "re: one"]
    );
    assert_eq!(
        unreadable.status(),
        Status::ResourceExhausted,
        "a run that shows no state is not concerned, a read is"
    );
}

#[tokio::test]
async fn a_transform_that_fails_after_the_turn_was_saved_fails_the_output_and_keeps_the_snapshot() {
    let agent = handling("chef", |turn: Turn| async move {
        assert_eq!(said(&turn), "one");
        Ok(())
    })
    .store(MemoryStore::new())
    .stream_transform(|chunk, _| match &chunk.turn_end {
        Some(_) => Err(Error::internal("no endings").into()),
        None => Ok(Some(chunk)),
    })
    .define()
    .unwrap();

    let failed = agent.chat().resume("s").run("one").await.unwrap_err();

    let snapshot = agent.latest_snapshot("s").await.unwrap();
    assert!(failed.message().contains("no endings"), "{failed}");
    assert_eq!(
        AgentReply::<Value>::of(&failed).unwrap().snapshot_id(),
        Some(&snapshot.snapshot_id)
    );
}

#[derive(Serialize)]
struct PublicCounter {
    rounded: u64,
}

#[tokio::test]
async fn a_transform_over_the_custom_state_shapes_reads_and_patches() {
    let store = Arc::new(MemoryStore::new());
    let agent = handling("counter", |turn: Turn<Counter>| async move {
        turn.update_custom(|counter| counter.counter += 7);
        Ok(())
    })
    .store(Arc::clone(&store))
    .custom_transform(|counter: Counter, _| {
        Ok(Some(PublicCounter {
            rounded: u64::from(counter.counter) / 5 * 5,
        }))
    })
    .state_transform(|mut state, _| {
        state.artifacts = Arc::default();
        Ok(Some(state))
    })
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::session("s"));
    connection.send("go").await.unwrap();
    let chunks = all_chunks(&mut connection).await;
    connection.output().await.unwrap();

    let patched = chunks.iter().find_map(|chunk| chunk.custom_patch.as_ref());
    assert_eq!(json(&patched.unwrap())[0]["value"], json!({"rounded": 5}));
    let read = agent.latest_snapshot("s").await.unwrap().state.unwrap();
    assert_eq!(read.custom.as_deref(), Some(&json!({"rounded": 5})));
    let kept = &snapshots(store.as_ref(), &"s".into()).await[0];
    assert_eq!(
        kept.state.as_ref().unwrap().custom.as_deref(),
        Some(&json!({"counter": 7}))
    );
}

#[tokio::test]
async fn a_transform_over_the_custom_state_that_fails_shows_nothing() {
    let agent = handling("counter", |turn: Turn<Counter>| async move {
        turn.update_custom(|counter| counter.counter += 1);
        Ok(())
    })
    .custom_transform(|_: Counter, _| Err::<Option<Counter>, _>(Error::internal("cannot show").into()))
    .define()
    .unwrap();

    let error = agent.run_text("go").await.unwrap_err();

    assert!(error.message().contains("cannot show"), "{error}");
}
