//! Bad input from outside: refused with a pointer and a bounded message, never a panic.

use std::collections::BTreeMap;

use everturn_core::{
    Action, ActionType, BidiAction, Context, DynAction, Emitter, Error, Inputs, JsonCall, MAX_DEPTH,
};
use everturn_core::{Reason, Result, Schema, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Counter, assert_failed};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Order {
    dish: String,
    guests: u8,
    #[serde(default)]
    sides: Vec<Side>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Side {
    name: String,
}

fn kitchen() -> Action<Order, String> {
    Action::new(ActionType::CUSTOM, "kitchen", |order: Order, _| async move {
        Ok(order.dish)
    })
}

/// The same kitchen, where only the type objects.
fn lenient_kitchen() -> Action<Order, String> {
    kitchen().with_input_schema(None)
}

/// Refuses the input, in a message of bounded size.
async fn refusal<O: everturn_core::Payload>(action: &Action<Order, O>, input: Value) -> Error {
    let error = assert_failed(
        action.run_json(JsonCall::new(input)).await,
        Status::InvalidArgument,
        Reason::INVALID_INPUT,
    );
    assert!(
        error
            .message()
            .starts_with("invalid input for '/custom/kitchen': "),
        "{error}"
    );
    assert!(
        error.message().len() < 2_500,
        "a message of {} bytes",
        error.message().len()
    );
    let details = error.details().map(Value::to_string).unwrap_or_default();
    assert!(details.len() < 3_000, "details of {} bytes", details.len());
    error
}

#[tokio::test]
async fn valid_input_is_served() {
    let order = json!({"dish": "soup", "guests": 2, "sides": [{"name": "bread"}]});

    assert_eq!(kitchen().run_json(JsonCall::new(order)).await.unwrap(), "soup");
}

#[tokio::test]
async fn a_wrong_type_is_named_by_its_pointer() {
    let order = json!({"dish": "soup", "guests": 2, "sides": [{"name": "bread"}, {"name": 7}]});

    for action in [kitchen(), lenient_kitchen()] {
        let error = refusal(&action, order.clone()).await;

        assert!(error.message().contains("at '/sides/1/name'"), "{error}");
        assert_eq!(error.details().unwrap()["errors"][0]["path"], "/sides/1/name");
    }
}

#[tokio::test]
async fn a_missing_field_is_named() {
    for action in [kitchen(), lenient_kitchen()] {
        let error = refusal(&action, json!({"dish": "soup"})).await;

        assert!(
            error.message().contains("at ''") && error.message().contains("guests"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_unknown_field_is_named() {
    for action in [kitchen(), lenient_kitchen()] {
        let error = refusal(&action, json!({"dish": "soup", "guests": 2, "wine": true})).await;

        assert!(error.message().contains("wine"), "{error}");
    }
}

#[tokio::test]
async fn a_number_out_of_range_is_refused() {
    for action in [kitchen(), lenient_kitchen()] {
        let error = refusal(&action, json!({"dish": "soup", "guests": 256})).await;

        assert!(error.message().contains("at '/guests'"), "{error}");
    }
}

#[tokio::test]
async fn no_input_at_all_is_refused_where_one_is_needed() {
    let result = kitchen().run_json(JsonCall::default()).await;

    assert_failed(result, Status::InvalidArgument, Reason::INVALID_INPUT);
}

#[tokio::test]
async fn no_input_at_all_is_fine_where_none_is_needed() {
    let greet = Action::new(ActionType::CUSTOM, "greet", |(): (), _| async {
        Ok("hello".to_owned())
    });

    assert_eq!(greet.run_json(JsonCall::default()).await.unwrap(), "hello");
}

#[tokio::test]
async fn several_mistakes_are_named_at_once() {
    let error = refusal(&kitchen(), json!({"dish": 1, "guests": "two", "sides": 3})).await;

    for pointer in ["at '/dish'", "at '/guests'", "at '/sides'"] {
        assert!(error.message().contains(pointer), "{error}");
    }
}

#[tokio::test]
async fn a_string_of_ten_megabytes_is_served_where_a_string_belongs() {
    let huge = "x".repeat(10_000_000);

    let served = kitchen()
        .run_json(JsonCall::new(json!({"dish": huge, "guests": 1})))
        .await
        .unwrap();

    assert_eq!(served.as_str().map(str::len), Some(10_000_000));
}

#[tokio::test]
async fn a_string_of_ten_megabytes_in_the_wrong_place_is_not_repeated() {
    let huge = "x".repeat(10_000_000);
    let inputs = [
        json!(huge),
        json!({"dish": "soup", "guests": huge}),
        json!({"dish": "soup", "guests": 1, "sides": huge}),
        json!({"dish": "soup", "guests": 1, huge.clone(): 1}),
        json!({"dish": "soup", "guests": 1, "sides": [{"name": {huge: 1}}]}),
    ];

    for input in inputs {
        refusal(&kitchen(), input.clone()).await;
        refusal(&lenient_kitchen(), input).await;
    }
}

#[tokio::test]
async fn a_key_of_ten_megabytes_does_not_become_a_pointer_of_ten_megabytes() {
    let prices = Action::new(
        ActionType::CUSTOM,
        "kitchen",
        |_: BTreeMap<String, u8>, _| async { Ok(()) },
    );
    let input = json!({"~/".repeat(5_000_000): "free"});

    for action in [prices.clone(), prices.with_input_schema(None)] {
        let result = action.run_json(JsonCall::new(input.clone())).await;

        let error = assert_failed(result, Status::InvalidArgument, Reason::INVALID_INPUT);
        assert!(
            error.message().len() < 2_500,
            "a message of {} bytes",
            error.message().len()
        );
        assert!(error.message().contains("at '/~0~1~0~1"), "{error}");
    }
}

#[tokio::test]
async fn a_hundred_thousand_mistakes_are_answered_with_the_first() {
    let sides = vec![json!({"name": 7}); 100_000];

    let error = refusal(&kitchen(), json!({"dish": "soup", "guests": 1, "sides": sides})).await;

    assert!(error.message().contains("at '/sides/0/name'"), "{error}");
}

#[test]
fn text_nested_ten_thousand_deep_does_not_become_a_value() {
    let text = "[".repeat(10_000) + &"]".repeat(10_000);

    assert!(serde_json::from_str::<Value>(&text).is_err());
}

/// Nested without the help of `json!`, which would copy the inner value on every level.
fn nested(levels: usize) -> Value {
    (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
}

fn within_an_order(levels: usize) -> Value {
    let sides = nested(levels);
    Value::Object(
        [("dish".to_owned(), "soup".into()), ("sides".to_owned(), sides)]
            .into_iter()
            .collect(),
    )
}

#[tokio::test]
async fn a_value_nested_too_deep_is_refused_whatever_the_schema() {
    for levels in [MAX_DEPTH + 1, 10_000, 100_000] {
        for action in [
            kitchen(),
            lenient_kitchen(),
            kitchen().with_input_schema(Schema::any()),
        ] {
            for input in [nested(levels), within_an_order(levels)] {
                let error = refusal(&action, input).await;

                assert!(
                    error.message().contains("nested deeper than 128 levels"),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_value_as_deep_as_allowed_is_served() {
    let depth = Action::new(
        ActionType::CUSTOM,
        "depth",
        |value: Value, _| async move { Ok(value) },
    );
    let input = nested(MAX_DEPTH);

    assert_eq!(depth.run_json(JsonCall::new(input.clone())).await.unwrap(), input);
}

#[tokio::test]
async fn a_conversation_refuses_deep_values_at_every_entrance() {
    let talk = BidiAction::new(
        ActionType::CUSTOM,
        "talk",
        |_: Value, mut inputs: Inputs<Value>, _: Emitter<()>, _| async move {
            while inputs.next().await.is_some() {}
            Ok(())
        },
    );

    let opened = talk.connect_json(Some(nested(100_000)), &Context::new());
    assert_failed(opened, Status::InvalidArgument, Reason::INVALID_INPUT);

    let mut connection = talk.connect_json(None, &Context::new()).unwrap();
    connection.send(nested(100_000)).await.unwrap();
    assert_failed(
        connection.output().await,
        Status::InvalidArgument,
        Reason::INVALID_INPUT,
    );
}

#[tokio::test]
async fn invalid_input_never_reaches_the_function() {
    let called = Counter::default();
    let counted = called.clone();
    let action = Action::new(ActionType::CUSTOM, "kitchen", move |_: Order, _| {
        counted.add();
        async { Ok(()) }
    });

    refusal(&action, json!({"dish": "soup"})).await;

    assert_eq!(called.get(), 0);
}

#[tokio::test]
async fn an_output_the_schema_objects_to_is_internal() {
    let short = Schema::from_json(json!({"type": "string", "maxLength": 3})).unwrap();
    let action = kitchen().with_output_schema(short);

    let result = action
        .run_json(JsonCall::new(json!({"dish": "secret soup", "guests": 1})))
        .await;

    let error = assert_failed(result, Status::Internal, Reason::INVALID_OUTPUT);
    assert!(
        error
            .message()
            .starts_with("invalid output of '/custom/kitchen': at ''"),
        "{error}"
    );
    assert!(!error.message().contains("secret"), "{error}");
}

#[tokio::test]
async fn an_output_without_a_json_form_is_internal() {
    let action = Action::new(ActionType::CUSTOM, "odd", |(): (), _| async {
        Ok(BTreeMap::from([(vec![1_u8], 1_u8)]))
    });

    let result: Result<Value> = action.run_json(JsonCall::default()).await;

    assert_failed(result, Status::Internal, Reason::INVALID_OUTPUT);
}

#[tokio::test]
async fn a_typed_call_is_not_validated() {
    let impossible = Schema::from_json(json!(false)).unwrap();
    let action = kitchen()
        .with_input_schema(impossible.clone())
        .with_output_schema(impossible);

    let dish = action
        .run(Order {
            dish: "soup".to_owned(),
            guests: 1,
            sides: Vec::new(),
        })
        .await
        .unwrap();

    assert_eq!(dish, "soup");
}

#[tokio::test]
async fn a_broken_schema_is_reported_as_such() {
    let error = Schema::from_json(json!({"type": "dish"})).unwrap_err();

    assert!(
        error.is(Reason::INVALID_SCHEMA) && error.status() == Status::InvalidArgument,
        "{error:?}"
    );
}
