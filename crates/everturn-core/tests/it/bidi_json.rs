//! A bidirectional action as transports use it: what is validated, when, and what an invalid message does.

use everturn_core::{
    Action, ActionType, BidiAction, Context, DynAction, Emitter, Error, Exposure, HandlerResult, Inputs,
    JsonCall, Reason, Schema, Status,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Counter, Dropped, assert_failed, idle, within};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Table {
    guests: u8,
}

impl Default for Table {
    fn default() -> Self {
        Self { guests: 2 }
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Order {
    dish: String,
}

type Waiter = BidiAction<Table, Order, Vec<String>, String>;

/// Repeats each dish for each guest and returns what was ordered.
fn waiter() -> Waiter {
    BidiAction::new(
        ActionType::CUSTOM,
        "waiter",
        |table: Table, mut inputs: Inputs<Order>, emitter: Emitter<String>, _| async move {
            let mut ordered = Vec::new();
            while let Some(order) = inputs.next().await {
                emitter.send(format!("{} x {}", table.guests, order.dish)).await?;
                ordered.push(order.dish);
            }
            Ok(ordered)
        },
    )
}

fn single(init: impl Into<Option<Value>>, input: impl Into<Option<Value>>) -> JsonCall {
    let (init, input) = (init.into(), input.into());
    JsonCall {
        init,
        input,
        ..JsonCall::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation_in_json_works_like_a_typed_one() {
    let waiter = waiter();
    let mut connection = waiter
        .connect_json(Some(json!({"guests": 4})), &Context::new())
        .unwrap();

    connection.send(json!({"dish": "soup"})).await.unwrap();

    assert_eq!(within(connection.receive().next()).await, Some(json!("4 x soup")));
    assert_eq!(within(connection.output()).await.unwrap(), json!(["soup"]));
}

#[tokio::test(start_paused = true)]
async fn a_single_call_is_a_conversation_of_one_input() {
    let (chunks, mut received) = tokio::sync::mpsc::channel(8);
    let call = JsonCall {
        emitter: Some(Emitter::channel(chunks)),
        ..single(json!({"guests": 3}), json!({"dish": "stew"}))
    };

    let output = within(waiter().run_json(call)).await.unwrap();

    assert_eq!(output, json!(["stew"]));
    assert_eq!(received.recv().await.unwrap().as_str(), r#""3 x stew""#);
    assert_eq!(received.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn an_undeclared_field_of_init_is_refused() {
    let init = json!({"guests": 4, "window": true});

    let opened = waiter().connect_json(Some(init.clone()), &Context::new());
    let called = waiter().run_json(single(init, json!({"dish": "soup"}))).await;

    for error in [
        assert_failed(opened, Status::InvalidArgument, Reason::INVALID_INPUT),
        assert_failed(called, Status::InvalidArgument, Reason::INVALID_INPUT),
    ] {
        assert!(
            error.message().starts_with("invalid init for '/custom/waiter'"),
            "{error}"
        );
        assert!(error.message().contains("window"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_init_and_a_null_init_are_the_default() {
    let (chunks, mut received) = tokio::sync::mpsc::channel(8);

    for init in [None, Some(Value::Null)] {
        let call = JsonCall {
            emitter: Some(Emitter::channel(chunks.clone())),
            ..single(init.clone(), json!({"dish": "soup"}))
        };
        within(waiter().run_json(call)).await.unwrap();
        assert_eq!(received.recv().await.unwrap().as_str(), r#""2 x soup""#);

        let mut connection = waiter().connect_json(init, &Context::new()).unwrap();
        connection.send(json!({"dish": "soup"})).await.unwrap();
        assert_eq!(within(connection.receive().next()).await, Some(json!("2 x soup")));
    }
}

#[tokio::test(start_paused = true)]
async fn an_absent_init_is_not_held_against_the_schema() {
    let strict = Schema::from_json(json!({"type": "object", "required": ["guests"]})).unwrap();
    let waiter = waiter().with_init_schema(strict);

    assert!(waiter.connect_json(None, &Context::new()).is_ok());
    assert!(waiter.connect_json(Some(json!({})), &Context::new()).is_err());
}

#[tokio::test]
async fn a_single_call_with_init_and_no_input_is_advised_to_open_a_session() {
    for input in [None, Some(Value::Null)] {
        let result = waiter().run_json(single(json!({"guests": 4}), input)).await;

        let error = assert_failed(result, Status::InvalidArgument, None);
        let public = error.to_wire(Exposure::Public).message;
        assert!(
            public.contains("'/custom/waiter'") && public.contains("streaming session"),
            "{public}"
        );
    }
}

#[tokio::test]
async fn a_single_call_with_nothing_has_an_invalid_input() {
    let result = waiter().run_json(JsonCall::default()).await;

    let error = assert_failed(result, Status::InvalidArgument, Reason::INVALID_INPUT);
    assert_eq!(error.public_message(), None);
    assert!(
        error
            .message()
            .starts_with("invalid input for '/custom/waiter': at ''"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalid_input_fails_the_whole_session() {
    let mut connection = waiter().connect_json(None, &Context::new()).unwrap();
    connection.send(json!({"dish": "soup"})).await.unwrap();
    assert_eq!(within(connection.receive().next()).await, Some(json!("2 x soup")));

    connection.send(json!({"dish": 7})).await.unwrap();
    within(connection.done()).await;

    for _ in 0..2 {
        let error = assert_failed(
            within(connection.output()).await,
            Status::InvalidArgument,
            Reason::INVALID_INPUT,
        );
        assert!(error.message().contains("at '/dish'"), "{error}");
    }
    let late = connection.send(json!({"dish": "stew"})).await;
    assert_failed(late, Status::FailedPrecondition, Reason::ACTION_COMPLETED);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_input_is_the_outcome_even_of_an_action_that_is_busy_elsewhere() {
    let dropped = Dropped::default();
    let watched = dropped.clone();
    let busy = BidiAction::new(
        ActionType::CUSTOM,
        "busy",
        move |(): (), mut inputs: Inputs<u8>, _: Emitter<()>, _| {
            let owned = watched.when_dropped();
            async move {
                let _owned = owned;
                let listening = async { while inputs.next().await.is_some() {} };
                tokio::join!(listening, std::future::pending::<()>());
                Ok(())
            }
        },
    );
    let mut connection = busy.connect_json(None, &Context::new()).unwrap();

    connection.send(json!("not a number")).await.unwrap();

    assert_failed(
        within(connection.output()).await,
        Status::InvalidArgument,
        Reason::INVALID_INPUT,
    );
    assert!(dropped.get());
}

#[tokio::test(start_paused = true)]
async fn the_action_never_takes_an_invalid_input_for_the_end_of_its_inputs() {
    let ended = Counter::default();
    let counted = ended.clone();
    let commits = BidiAction::new(
        ActionType::CUSTOM,
        "commits",
        move |(): (), mut inputs: Inputs<u8>, _: Emitter<()>, _| {
            let counted = counted.clone();
            async move {
                while inputs.next().await.is_some() {}
                counted.add();
                Ok(())
            }
        },
    );
    let mut connection = commits.connect_json(None, &Context::new()).unwrap();
    connection.send(json!(1)).await.unwrap();

    connection.send(json!("two")).await.unwrap();

    assert_failed(
        within(connection.output()).await,
        Status::InvalidArgument,
        Reason::INVALID_INPUT,
    );
    assert_eq!(ended.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_reads_the_inputs_elsewhere_ends_with_the_session() {
    let (start, started) = tokio::sync::oneshot::channel();
    let start = std::sync::Mutex::new(Some(start));
    let delegates = BidiAction::new(
        ActionType::CUSTOM,
        "delegates",
        move |(): (), mut inputs: Inputs<u8>, _: Emitter<()>, _| {
            let reader = tokio::spawn(async move { while inputs.next().await.is_some() {} });
            start.lock().unwrap().take().unwrap().send(reader).unwrap();
            std::future::pending::<HandlerResult<()>>()
        },
    );
    let mut connection = delegates.connect_json(None, &Context::new()).unwrap();
    let reader = within(started).await.unwrap();

    connection.send(json!("not a number")).await.unwrap();

    assert_failed(
        within(connection.output()).await,
        Status::InvalidArgument,
        Reason::INVALID_INPUT,
    );
    within(reader).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_invalid_input_does_not_cancel_the_callers_context() {
    let context = Context::new();
    let call = JsonCall {
        context: context.clone(),
        ..single(None, json!({"dish": 7}))
    };

    assert_failed(
        within(waiter().run_json(call)).await,
        Status::InvalidArgument,
        Reason::INVALID_INPUT,
    );

    assert!(!context.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn an_output_that_does_not_match_is_our_fault() {
    let two = Schema::from_json(json!({"type": "array", "minItems": 2})).unwrap();
    let waiter = waiter().with_output_schema(two);

    let result = within(waiter.run_json(single(None, json!({"dish": "soup"})))).await;

    let error = assert_failed(result, Status::Internal, Reason::INVALID_OUTPUT);
    assert!(
        error
            .message()
            .starts_with("invalid output of '/custom/waiter': at ''"),
        "{error}"
    );
}

#[tokio::test]
async fn init_on_an_action_that_is_not_bidirectional_is_refused_in_public() {
    let plain = Action::new(ActionType::CUSTOM, "plain", |n: u8, _| async move { Ok(n) });

    let called = plain.run_json(single(json!({}), json!(1))).await;
    let opened = plain.connect_json(None, &Context::new());

    for error in [
        assert_failed(called, Status::InvalidArgument, None),
        assert_failed(opened, Status::InvalidArgument, None),
    ] {
        assert!(
            error.public_message().unwrap().contains("'/custom/plain'"),
            "{error}"
        );
    }
    assert_eq!(plain.run_json(single(Value::Null, json!(1))).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_action_itself_is_kept() {
    let fails = BidiAction::new(
        ActionType::CUSTOM,
        "fails",
        |(): (), _: Inputs<u8>, _: Emitter<()>, _| async move {
            Err::<(), _>(Error::resource_exhausted("no more leeks").with_public().into())
        },
    );
    let mut connection = fails.connect_json(None, &Context::new()).unwrap();
    idle().await;

    let error = assert_failed(within(connection.output()).await, Status::ResourceExhausted, None);

    assert_eq!(error.public_message(), Some("no more leeks"));
}
