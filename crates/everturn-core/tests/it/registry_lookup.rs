//! Finding actions by key, in a registry and the ones it falls back on.

use std::sync::Arc;

use everturn_core::{Action, ActionType, DynAction, JsonCall, Reason, Registry, Schema, Status, downcast};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::support::assert_failed;

/// An action that returns the place of its registration.
fn says(name: &str, what: &'static str) -> Arc<dyn DynAction> {
    Arc::new(Action::new(
        ActionType::CUSTOM,
        name,
        move |(): (), _| async move { Ok(what.to_owned()) },
    ))
}

async fn call(registry: &Registry, key: &str) -> Value {
    let action = registry.resolve(key).await.expect("it is registered");
    action.run_json(JsonCall::default()).await.expect("it succeeds")
}

#[tokio::test]
async fn an_action_is_found_under_its_key() {
    let registry = Registry::new();
    registry.register(says("a", "here")).unwrap();

    assert_eq!(call(&registry, "/custom/a").await, "here");
    assert!(registry.get("/custom/a").is_some());
    assert!(registry.get("/flow/a").is_none());
}

#[tokio::test]
async fn a_missing_action_is_no_error_to_look_up_and_one_to_resolve() {
    let registry = Registry::new();

    assert!(registry.lookup("/custom/none").await.unwrap().is_none());
    let error = assert_failed(
        registry.resolve("/custom/none").await,
        Status::NotFound,
        Reason::ACTION_NOT_FOUND,
    );
    assert!(error.message().contains("'/custom/none'"), "{error}");
}

#[tokio::test]
async fn a_key_is_taken_once() {
    let registry = Registry::new();
    registry.register(says("a", "first")).unwrap();

    let second = registry.register(says("a", "second"));

    let error = assert_failed(second, Status::AlreadyExists, None);
    assert!(error.message().contains("'/custom/a'"), "{error}");
    assert_eq!(call(&registry, "/custom/a").await, "first");
}

#[tokio::test]
async fn of_many_who_register_a_key_at_once_one_succeeds() {
    let registry = Registry::new();
    let attempts = (0..50).map(|_| {
        let registry = registry.clone();
        tokio::task::spawn_blocking(move || registry.register(says("a", "one")).is_ok())
    });

    let successes = futures::future::join_all(attempts)
        .await
        .into_iter()
        .filter(|won| *won.as_ref().unwrap());

    assert_eq!(successes.count(), 1);
}

#[test]
fn a_malformed_key_is_refused() {
    let registry = Registry::new();

    for key in ["", "/", "/custom", "/custom/", "//a", "custom/a"] {
        assert_failed(
            registry.register_under(key, says("a", "?")),
            Status::InvalidArgument,
            None,
        );
    }
}

#[tokio::test]
async fn an_action_may_answer_to_a_second_key() {
    let registry = Registry::new();
    registry.register(says("a", "both")).unwrap();
    registry.register_under("/tool/a", says("a", "both")).unwrap();

    let listed = registry.list().await.unwrap();

    assert_eq!(call(&registry, "/tool/a").await, "both");
    assert_eq!(listed["/tool/a"].key, "/tool/a");
    assert_eq!(listed["/tool/a"].action_type, ActionType::TOOL);
    assert_eq!(listed["/custom/a"].action_type, ActionType::CUSTOM);
}

#[tokio::test]
async fn a_child_falls_back_on_its_parent_and_hides_what_it_has_itself() {
    let parent = Registry::new();
    parent.register(says("shared", "parent")).unwrap();
    parent.register(says("own", "parent")).unwrap();
    let child = parent.child();
    child.register(says("own", "child")).unwrap();

    assert_eq!(call(&child, "/custom/shared").await, "parent");
    assert_eq!(call(&child, "/custom/own").await, "child");
    assert_eq!(call(&parent, "/custom/own").await, "parent");
    assert!(child.is_child() && !parent.is_child());
}

#[tokio::test]
async fn actions_of_a_child_are_not_seen_by_its_parent_or_its_siblings() {
    let parent = Registry::new();
    let (one, two) = (parent.child(), parent.child());

    one.register(says("a", "one")).unwrap();

    assert!(parent.get("/custom/a").is_none());
    assert!(two.get("/custom/a").is_none());
}

#[tokio::test]
async fn a_child_sees_what_its_parent_learns_later() {
    let parent = Registry::new();
    let grandchild = parent.child().child();

    parent.register(says("late", "parent")).unwrap();

    assert_eq!(call(&grandchild, "/custom/late").await, "parent");
}

#[tokio::test]
async fn a_listing_merges_parent_and_child_by_key() {
    let described = |name: &str, text: &str| {
        let action = Action::new(ActionType::CUSTOM, name, |(): (), _| async { Ok(()) });
        Arc::new(action.with_description(text))
    };
    let parent = Registry::new();
    parent.register(described("a", "parent")).unwrap();
    parent.register(described("b", "parent")).unwrap();
    let child = parent.child();
    child.register(described("b", "child")).unwrap();
    child.register(described("c", "child")).unwrap();

    let listed = child.list().await.unwrap();

    let descriptions: Vec<_> = listed
        .iter()
        .map(|(key, listed)| (key.as_str(), listed.description.as_deref().unwrap()))
        .collect();
    assert_eq!(
        descriptions,
        [
            ("/custom/a", "parent"),
            ("/custom/b", "child"),
            ("/custom/c", "child")
        ]
    );
}

#[test]
fn actions_of_a_type_are_found_by_name() {
    let parent = Registry::new();
    parent.register(says("a", "?")).unwrap();
    parent.register_under("/tool/t", says("a", "?")).unwrap();
    let child = parent.child();
    child.register(says("plugin/b", "?")).unwrap();

    let custom = child.of_type(&ActionType::CUSTOM);

    assert_eq!(custom.into_keys().collect::<Vec<_>>(), ["a", "plugin/b"]);
}

#[tokio::test]
async fn an_erased_action_can_be_had_back_as_what_it_is() {
    let registry = Registry::new();
    let double = Action::new(ActionType::CUSTOM, "double", |n: i64, _| async move { Ok(n * 2) });
    registry.register(Arc::new(double)).unwrap();

    let right = downcast::<Action<i64, i64>>(registry.get("/custom/double").unwrap());
    let wrong = downcast::<Action<u8, u8>>(registry.get("/custom/double").unwrap());

    assert_eq!(right.unwrap().run(4).await.unwrap(), 8);
    assert!(wrong.is_none());
}

#[test]
fn values_are_found_by_key_and_type_with_the_parents_as_a_fallback() {
    let parent = Registry::new();
    parent.set_value("genkit/defaultModel", "echo".to_owned());
    parent.set_value("genkit/promptDir", "prompts".to_owned());
    let child = parent.child();
    child.set_value("genkit/defaultModel", "other".to_owned());

    assert_eq!(*child.value::<String>("genkit/defaultModel").unwrap(), "other");
    assert_eq!(*child.value::<String>("genkit/promptDir").unwrap(), "prompts");
    assert_eq!(*parent.value::<String>("genkit/defaultModel").unwrap(), "echo");
    assert!(child.value::<u8>("genkit/promptDir").is_none());
    assert_eq!(
        child.value_keys("genkit/"),
        ["genkit/defaultModel", "genkit/promptDir"]
    );
    assert!(child.value_keys("format/").is_empty());
}

#[test]
fn a_value_set_again_is_replaced() {
    let registry = Registry::new();
    registry.set_value("n", 1);

    registry.set_value("n", 2);

    assert_eq!(*registry.value::<i32>("n").unwrap(), 2);
}

#[test]
fn schemas_are_named_once_and_found_in_parents() {
    let text = Schema::from_json(json!({"type": "string"})).unwrap();
    let number = Schema::from_json(json!({"type": "number"})).unwrap();
    let parent = Registry::new();
    parent.register_schema("Dish", text.clone()).unwrap();
    let child = parent.child();

    assert_eq!(child.schema("Dish").unwrap(), text);
    assert!(child.schema("Drink").is_none());
    assert_failed(
        parent.register_schema("Dish", number.clone()),
        Status::AlreadyExists,
        None,
    );
    child.register_schema("Dish", number.clone()).unwrap();
    assert_eq!(child.schema("Dish").unwrap(), number);
}

#[tokio::test]
async fn changes_of_a_registry_and_its_parents_are_reported() {
    let parent = Registry::new();
    let registry = parent.child();
    let mut changes = registry.changes();

    parent.register(says("a", "above")).unwrap();
    changes.changed().await;
    registry.register(says("b", "here")).unwrap();
    changes.changed().await;
    registry.remove("/custom/b");
    changes.changed().await;

    // Neither a lookup nor the removal of an action that does not exist is a change.
    registry.get("/custom/a");
    registry.remove("/custom/b");
    assert!(changes.changed().now_or_never().is_none());
}
