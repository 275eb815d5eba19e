//! The current context reaches nested code and no other task's code.

use std::sync::Arc;

use everturn_core::{Action, ActionType, Context, Emitter, HandlerResult, Inputs, JsonCall, Registry, run};
use everturn_core::{BidiAction, DynAction};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::support::within;

/// The caller, from code without a context argument.
fn caller() -> Value {
    Context::current().auth().cloned().unwrap_or_default()
}

fn who_am_i() -> Action<(), Value> {
    Action::new(ActionType::CUSTOM, "who am I", |(): (), _| async { Ok(caller()) })
}

#[tokio::test]
async fn nested_code_finds_the_context_no_signature_carries() {
    async fn several_calls_down() -> HandlerResult<Value> {
        Ok(run("a step", || async { Ok(who_am_i().run(()).await?) }).await?)
    }
    let flow = Registry::new()
        .define_flow("outer", |(): ()| several_calls_down())
        .unwrap();

    let seen = flow
        .call((), Context::new().with_value("auth", "ada"), Emitter::silent())
        .await
        .unwrap();

    assert_eq!(seen, "ada");
    assert_eq!(caller(), Value::Null);
}

#[tokio::test]
async fn the_context_handed_over_is_the_current_one() {
    let action = Action::new(
        ActionType::CUSTOM,
        "both",
        |(): (), context: Context| async move { Ok((context.auth().cloned(), caller())) },
    );
    let call = JsonCall {
        context: Context::new().with_value("auth", "ada"),
        ..JsonCall::default()
    };

    assert_eq!(action.run_json(call).await.unwrap(), json!(["ada", "ada"]));
}

#[tokio::test]
async fn an_explicit_context_replaces_the_current_one() {
    let outer = Action::new(ActionType::CUSTOM, "outer", |(): (), _| async {
        let other = Context::new().with_value("auth", "grace");
        let inside = who_am_i().call((), other, Emitter::silent()).await?;
        Ok((inside, caller()))
    });

    let seen = outer
        .call((), Context::new().with_value("auth", "ada"), Emitter::silent())
        .await
        .unwrap();

    assert_eq!(seen, (json!("grace"), json!("ada")));
}

#[tokio::test(start_paused = true)]
async fn connections_and_streams_carry_the_context_into_their_tasks() {
    let streams = Action::streaming(
        ActionType::CUSTOM,
        "streams",
        |(): (), _, emitter: Emitter<Value>| async move {
            emitter.send(caller()).await?;
            Ok(caller())
        },
    );
    let talks = BidiAction::new(
        ActionType::CUSTOM,
        "talks",
        |(): (), mut inputs: Inputs<()>, emitter: Emitter<Value>, _| async move {
            while inputs.next().await.is_some() {
                emitter.send(caller()).await?;
            }
            Ok(caller())
        },
    );

    let seen = Context::new().with_value("auth", "ada").scope(async {
        let mut stream = streams.stream(());
        let mut connection = talks.connect(());
        let mut json = talks.connect_json(None, &Context::current()).unwrap();
        connection.send(()).await.unwrap();
        json.send(Value::Null).await.unwrap();
        [
            stream.next().await.unwrap(),
            stream.output().await.unwrap(),
            connection.receive().next().await.unwrap(),
            connection.output().await.unwrap(),
            json.receive().next().await.unwrap(),
            json.output().await.unwrap(),
        ]
    });

    assert!(within(seen).await.iter().all(|caller| caller == "ada"));
}

#[tokio::test]
async fn a_task_spawned_by_hand_starts_without_a_context_and_can_be_given_one() {
    let spawns = Action::new(
        ActionType::CUSTOM,
        "spawns",
        |(): (), context: Context| async move {
            let bare = tokio::spawn(async { caller() });
            let scoped = tokio::spawn(context.scope(async { caller() }));
            Ok((bare.await?, scoped.await?))
        },
    );

    let seen = spawns
        .call((), Context::new().with_value("auth", "ada"), Emitter::silent())
        .await
        .unwrap();

    assert_eq!(seen, (Value::Null, json!("ada")));
}

/// A flow that looks at its caller again and again while a thousand others do the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_interleaved_invocations_see_only_their_own_context() {
    let barrier = Arc::new(Barrier::new(1_000));
    let registry = Registry::new();
    let looks = registry
        .define_flow("looks", move |rounds: usize| {
            let barrier = Arc::clone(&barrier);
            async move {
                // All of them have started before the first one continues.
                barrier.wait().await;
                let mut seen = Vec::new();
                for round in 0..rounds {
                    seen.push(caller());
                    tokio::task::yield_now().await;
                    seen.push(
                        run(&format!("round {round}"), || async {
                            Ok(who_am_i().run(()).await?)
                        })
                        .await?,
                    );
                    let mut streaming = who_am_i().stream(());
                    seen.push(streaming.output().await?);
                }
                Ok(seen)
            }
        })
        .unwrap();

    let invocations = (0..1_000).map(|n| {
        let (looks, context) = (looks.clone(), Context::new().with_value("auth", n));
        tokio::spawn(async move { (n, looks.call(5, context, Emitter::silent()).await.unwrap()) })
    });

    for invocation in futures::future::join_all(invocations).await {
        let (n, seen) = invocation.unwrap();
        assert_eq!(seen.len(), 15);
        assert!(seen.iter().all(|caller| *caller == n), "{n} saw {seen:?}");
    }
    assert_eq!(caller(), Value::Null);
}

#[tokio::test]
async fn invocations_that_share_one_task_do_not_share_a_context() {
    let looks = Action::new(ActionType::CUSTOM, "looks", |(): (), _| async {
        let before = caller();
        tokio::task::yield_now().await;
        Ok((before, caller()))
    });
    let invoke =
        |name: &'static str| looks.call((), Context::new().with_value("auth", name), Emitter::silent());

    let (ada, grace) = tokio::join!(invoke("ada"), invoke("grace"));

    assert_eq!(ada.unwrap(), (json!("ada"), json!("ada")));
    assert_eq!(grace.unwrap(), (json!("grace"), json!("grace")));
}
