//! A panic in user code is an `INTERNAL` error, wherever it happens, and the process lives.

use std::sync::Arc;

use everturn_core::{
    Action, ActionType, BidiAction, Connection, Context, DynAction, Emitter, HandlerResult, Inputs, JsonCall,
};
use everturn_core::{Plugin, Reason, Registry, Result, Status, run};
use futures::future::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::support::{assert_failed, within};

#[track_caller]
fn assert_panicked<T>(result: Result<T>) {
    assert_failed(result, Status::Internal, Reason::PANIC);
}

#[tokio::test(start_paused = true)]
async fn a_connection_reports_the_panic_of_its_action_and_its_message() {
    let mut connection: Connection<(), (), u8> = Connection::open(
        "/custom/soup",
        &Context::new(),
        |_, emitter: Emitter<u8>, _| async move {
            emitter.send(1).await?;
            panic!("burnt after {} minutes", 40)
        },
    );

    assert_eq!(within(connection.receive().next()).await, Some(1));
    assert_eq!(within(connection.receive().next()).await, None);
    let error = assert_failed(within(connection.output()).await, Status::Internal, Reason::PANIC);
    assert_eq!(error.message(), "/custom/soup panicked: burnt after 40 minutes");
    let late = connection.send(()).await;
    assert_failed(late, Status::FailedPrecondition, Reason::ACTION_COMPLETED);
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_there_is_a_future_counts_too() {
    let mut connection: Connection<(), (), ()> = Connection::open(
        "eager",
        &Context::new(),
        |_, _, _| -> BoxFuture<'static, HandlerResult<()>> { panic!("at once") },
    );

    assert_panicked(within(connection.output()).await);
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_waits_is_released() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    let connection: Connection<u8, (), ()> =
        Connection::open("deaf", &Context::new(), |inputs: Inputs<u8>, _, _| async move {
            let _inputs = inputs;
            opened.notified().await;
            panic!("enough")
        });
    connection.send(1).await.unwrap();
    let sender = connection.sender();
    let waiting = tokio::spawn(async move { sender.send(2).await });

    gate.notify_one();

    let result = within(waiting).await.unwrap();
    assert_failed(result, Status::FailedPrecondition, Reason::ACTION_COMPLETED);
}

#[tokio::test]
async fn an_action_fails_and_can_be_called_again() {
    let divide = Action::new(
        ActionType::CUSTOM,
        "divide",
        |by: u32, _| async move { Ok(100 / by) },
    );

    assert_panicked(divide.run(0).await);
    assert_panicked(divide.run_json(JsonCall::new(0)).await);
    assert_eq!(divide.run(5).await.unwrap(), 20);
}

#[tokio::test]
async fn an_action_whose_function_panics_before_its_future_fails_too() {
    let eager = Action::new(ActionType::CUSTOM, "eager", |by: u32, _| {
        let share = 100 / by;
        async move { Ok(share) }
    });

    assert_panicked(eager.run(0).await);
    assert_panicked(eager.run_json(JsonCall::new(0)).await);
    assert_panicked(eager.stream(0).output().await);
}

#[tokio::test]
async fn a_panic_with_anything_as_its_payload_is_reported() {
    let odd = Action::new(ActionType::CUSTOM, "odd", |(): (), _| async {
        std::panic::panic_any(17_u8) as HandlerResult<()>
    });

    let error = assert_failed(odd.run(()).await, Status::Internal, Reason::PANIC);

    assert_eq!(error.message(), "/custom/odd panicked: no message");
}

#[tokio::test]
async fn a_panic_in_a_step_fails_its_flow() {
    let flow = Registry::new()
        .define_flow("cooks", |(): ()| async {
            Ok(run("boil", || async { panic!("dry") as HandlerResult<()> }).await?)
        })
        .unwrap();

    assert_panicked(flow.run(()).await);
}

#[tokio::test]
async fn a_bidirectional_action_fails_typed_and_as_json() {
    let bidi = BidiAction::new(
        ActionType::CUSTOM,
        "talks",
        |(): (), mut inputs: Inputs<u8>, _emitter: Emitter<u8>, _| async move {
            inputs.next().await;
            panic!("speechless") as HandlerResult<()>
        },
    );

    let mut typed = bidi.connect(());
    typed.send(1).await.unwrap();
    assert_panicked(typed.output().await);

    let mut json = bidi.connect_json(None, &Context::new()).unwrap();
    json.send(json!(1)).await.unwrap();
    assert_panicked(json.output().await);

    assert_panicked(bidi.run_json(JsonCall::new(1)).await);
}

/// Panics in each of the places where a type's own code runs.
#[derive(Clone, schemars::JsonSchema)]
#[schemars(transparent)]
struct Grenade(String);

impl Default for Grenade {
    fn default() -> Self {
        panic!("default")
    }
}

impl Serialize for Grenade {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0, "serialize");
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Grenade {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        assert_ne!(text, "deserialize");
        Ok(Self(text))
    }
}

#[tokio::test]
async fn a_payload_that_panics_fails_the_call() {
    let echo = Action::new(ActionType::CUSTOM, "echo", |grenade: Grenade, _| async move {
        Ok(grenade)
    });

    assert_panicked(echo.run_json(JsonCall::new("deserialize")).await);
    assert_panicked(echo.run_json(JsonCall::new("serialize")).await);
    assert_eq!(echo.run_json(JsonCall::new("neither")).await.unwrap(), "neither");
}

#[tokio::test]
async fn a_panic_while_the_init_is_made_fails_the_call() {
    let open = BidiAction::new(
        ActionType::CUSTOM,
        "open",
        |_: Grenade, _: Inputs<()>, _: Emitter<()>, _| async move { Ok(()) },
    );

    assert_panicked(open.connect_json(Some(json!("deserialize")), &Context::new()));
    assert_panicked(open.connect_json(None, &Context::new()).unwrap().output().await);
}

#[tokio::test]
async fn a_plugin_that_panics_fails_the_look_up() {
    struct Careless;

    impl Plugin for Careless {
        fn name(&self) -> &'static str {
            "careless"
        }

        fn resolve<'a>(
            &'a self,
            _: &'a ActionType,
            _: &'a str,
        ) -> BoxFuture<'a, HandlerResult<Option<Arc<dyn DynAction>>>> {
            panic!("oops")
        }
    }

    let registry = Registry::new();
    registry.install(Arc::new(Careless)).unwrap();

    assert_panicked(registry.lookup("/model/careless/x").await);
    assert!(registry.lookup("/model/careful/x").await.unwrap().is_none());
}
