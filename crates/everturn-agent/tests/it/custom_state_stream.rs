//! Changes of the custom state are streamed to the client as patches.

use std::sync::Arc;

use everturn_agent::patch::JsonPatch;
use everturn_agent::{AgentInit, AgentSession, AgentStreamChunk, Turn, custom_agent};
use everturn_core::{Registry, Status};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Counter, all_chunks, handling, json, said};

fn patches(chunks: &[AgentStreamChunk]) -> Value {
    chunks
        .iter()
        .filter_map(|chunk| chunk.custom_patch.as_ref())
        .map(json)
        .collect()
}

#[tokio::test]
async fn the_first_patch_of_every_turn_is_the_whole_document_and_the_rest_are_changes() {
    let agent = handling("counter", |turn: Turn<Counter>| async move {
        turn.update_custom(|custom| custom.counter += 1);
        turn.update_custom(|custom| custom.counter += 1);
        turn.update_custom(|_| {});
        turn.update_custom(|custom| custom.status = "done".into());
        Ok(())
    })
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::default());
    let mut turns = Vec::new();
    for text in ["one", "two"] {
        connection.send(text).await.unwrap();
        let mut chunks = Vec::new();
        let mut turn = connection.receive();
        while let Some(chunk) = turn.next().await {
            chunks.push(chunk);
        }
        turns.push(chunks);
    }

    assert_eq!(
        patches(&turns[0]),
        json!([
            [{"op": "replace", "path": "", "value": {"counter": 1}}],
            [{"op": "replace", "path": "/counter", "value": 2}],
            [{"op": "add", "path": "/status", "value": "done"}],
        ])
    );
    assert_eq!(
        patches(&turns[1]),
        json!([
            [{"op": "replace", "path": "", "value": {"counter": 3, "status": "done"}}],
            [{"op": "replace", "path": "/counter", "value": 4}],
        ])
    );
    assert!(
        turns[0].last().unwrap().turn_end.is_some(),
        "every patch of a turn precedes its end"
    );
    assert_eq!(
        connection.custom().unwrap(),
        Counter {
            counter: 4,
            status: "done".into()
        }
    );
}

#[tokio::test]
async fn a_turn_that_changes_nothing_sends_no_patch_and_one_that_sets_the_same_sends_the_document() {
    let agent = handling("counter", |turn: Turn<Counter>| async move {
        if said(&turn) == "touch" {
            turn.set_custom(turn.custom());
        }
        Ok(())
    })
    .define()
    .unwrap();

    let mut quiet = agent.connect(AgentInit::default());
    quiet.send("look").await.unwrap();
    let mut touched = agent.connect(AgentInit::default());
    touched.send("touch").await.unwrap();

    assert_eq!(patches(&all_chunks(&mut quiet).await), json!([]));
    assert_eq!(
        patches(&all_chunks(&mut touched).await),
        json!([[{"op": "replace", "path": "", "value": {"counter": 0}}]])
    );
}

#[tokio::test]
async fn changes_outside_turns_are_streamed_too() {
    let agent = custom_agent(
        &Registry::new(),
        "counter",
        |session: AgentSession<Counter>| async move {
            session.update_custom(|custom| custom.counter = 1);
            session
                .run(|turn| async move {
                    turn.update_custom(|custom| custom.counter = 2);
                    Ok(())
                })
                .await?;
            session.update_custom(|custom| custom.counter = 3);
            Ok(session.result())
        },
    )
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::default());
    connection.send("go").await.unwrap();
    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await.unwrap();

    assert_eq!(
        patches(&chunks),
        json!([
            [{"op": "replace", "path": "", "value": {"counter": 1}}],
            [{"op": "replace", "path": "", "value": {"counter": 2}}],
            [{"op": "replace", "path": "/counter", "value": 3}],
        ])
    );
    assert_eq!(
        output.state.unwrap().custom,
        Some(Arc::new(json!({"counter": 3})))
    );
}

#[tokio::test]
async fn clients_see_the_transformed_document_rooted_at_the_custom_state() {
    let agent = handling("counter", |turn: Turn<Value>| async move {
        turn.set_custom(json!({"secret": "x", "open": 1}));
        turn.update_custom(|custom| custom["secret"] = "y".into());
        turn.update_custom(|custom| custom["open"] = 2.into());
        Ok(())
    })
    .state_transform(|mut state, _| {
        state.custom = state.custom.map(|custom| {
            let mut custom = Value::clone(&custom);
            custom.as_object_mut().unwrap().shift_remove("secret");
            Arc::new(custom)
        });
        Ok(Some(state))
    })
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::default());
    connection.send("go").await.unwrap();
    let chunks = all_chunks(&mut connection).await;

    assert_eq!(
        patches(&chunks),
        json!([
            [{"op": "replace", "path": "", "value": {"open": 1}}],
            [{"op": "replace", "path": "/open", "value": 2}],
        ])
    );
    assert!(
        !json(&connection.output().await.unwrap())
            .to_string()
            .contains("secret")
    );
}

#[tokio::test]
async fn a_transform_that_shows_nothing_shows_null() {
    let agent = handling("hidden", |turn: Turn<Counter>| async move {
        turn.update_custom(|custom| custom.counter = 1);
        Ok(())
    })
    .state_transform(|_, _| Ok(None))
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::default());
    connection.send("go").await.unwrap();
    let chunks = all_chunks(&mut connection).await;

    assert_eq!(
        patches(&chunks),
        json!([[{"op": "replace", "path": "", "value": null}]])
    );
    assert_eq!(connection.output().await.unwrap().state, None);
}

#[tokio::test]
async fn a_change_is_all_or_nothing() {
    let agent = handling("clumsy", |turn: Turn<Counter>| async move {
        let session = turn.session().clone();
        let dropped = tokio::spawn(async move {
            session.update_custom(|custom| {
                custom.counter = 99;
                panic!("slipped");
            });
        });
        assert!(dropped.await.is_err());
        turn.update_custom(|custom| custom.counter += 1);
        Ok(())
    })
    .define()
    .unwrap();

    let reply = agent.run_text("go").await.unwrap();

    assert_eq!(
        reply.custom().unwrap(),
        Some(Counter {
            counter: 1,
            status: String::new()
        })
    );
}

#[tokio::test]
async fn a_state_that_cannot_be_json_fails_the_invocation() {
    let agent = handling("odd", |turn: Turn<Vec<Odd>>| async move {
        turn.update_custom(|custom| custom.push(Odd));
        Ok(())
    })
    .define()
    .unwrap();

    let failed = agent.run_text("go").await.unwrap_err();

    assert_eq!(failed.status(), Status::Internal);
    assert!(failed.message().contains("cannot be written as JSON"), "{failed}");
}

/// Refuses to be written.
#[derive(Debug, Clone, Default, serde::Deserialize, schemars::JsonSchema)]
struct Odd;

impl serde::Serialize for Odd {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn patches_of_concurrent_changes_arrive_in_the_order_of_the_changes() {
    let agent = handling("busy", |turn: Turn<Counter>| async move {
        let workers = (0..8).map(|_| {
            let session = turn.session().clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    session.update_custom(|custom| custom.counter += 1);
                    tokio::task::yield_now().await;
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await?;
        }
        Ok(())
    })
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::default());
    connection.send("go").await.unwrap();
    let chunks = all_chunks(&mut connection).await;

    let mut seen = Vec::new();
    let mut view = Value::Null;
    for patch in chunks.iter().filter_map(|chunk| chunk.custom_patch.as_ref()) {
        view = patch.apply(&view).unwrap();
        seen.push(view["counter"].as_u64().unwrap());
    }
    assert_eq!(seen, (1..=400).collect::<Vec<_>>());
}

fn documents() -> impl Strategy<Value = Vec<Value>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from)
    ];
    let document = leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c/~]{1,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    prop::collection::vec(document, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn applying_all_patches_of_a_turn_to_null_gives_the_custom_state(steps in documents()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let last = steps.last().unwrap().clone();
            let agent = handling("any", move |turn: Turn<Value>| {
                let steps = steps.clone();
                async move {
                    for step in steps {
                        turn.set_custom(step);
                    }
                    Ok(())
                }
            })
            .define()
            .unwrap();

            let mut connection = agent.connect(AgentInit::default());
            connection.send("go").await.unwrap();
            let chunks = all_chunks(&mut connection).await;

            let patches = chunks.iter().filter_map(|chunk| chunk.custom_patch.as_ref());
            let view = patches.fold(Value::Null, |view, patch: &JsonPatch| patch.apply(&view).unwrap());
            assert_eq!(view, last);
        });
    }
}
