//! Applying patches, also those that a careful server would not send.

use everturn_agent::patch::{JsonPatch, PatchError};
use serde_json::{Value, json};

fn patch(operations: Value) -> JsonPatch {
    serde_json::from_value(operations).expect("a well-formed patch")
}

#[track_caller]
fn assert_applies(document: &Value, operations: Value, result: &Value) {
    assert_eq!(patch(operations).apply(document).as_ref(), Ok(result));
}

#[track_caller]
fn assert_one(document: &Value, operation: Value, result: &Value) {
    assert_applies(document, Value::Array(vec![operation]), result);
}

#[test]
fn at_the_root_add_and_replace_set_the_document_and_remove_leaves_null() {
    assert_one(
        &json!({"a": 1}),
        json!({"op": "add", "path": "", "value": 2}),
        &json!(2),
    );
    assert_one(
        &json!({"a": 1}),
        json!({"op": "replace", "path": "", "value": [3]}),
        &json!([3]),
    );
    assert_one(
        &json!({"a": 1}),
        json!({"op": "remove", "path": ""}),
        &json!(null),
    );
}

#[test]
fn a_null_or_primitive_root_becomes_an_object() {
    assert_one(
        &json!(null),
        json!({"op": "add", "path": "/a", "value": 1}),
        &json!({"a": 1}),
    );
    assert_one(
        &json!("text"),
        json!({"op": "replace", "path": "/a/b", "value": 1}),
        &json!({"a": {"b": 1}}),
    );
}

#[test]
fn missing_containers_are_created_as_objects() {
    assert_one(
        &json!({}),
        json!({"op": "add", "path": "/a/0/b", "value": 1}),
        &json!({"a": {"0": {"b": 1}}}),
    );
    assert_one(
        &json!({"a": null}),
        json!({"op": "add", "path": "/a/b", "value": 1}),
        &json!({"a": {"b": 1}}),
    );
}

#[test]
fn primitives_in_the_way_are_replaced_by_objects() {
    assert_one(
        &json!({"a": 7}),
        json!({"op": "add", "path": "/a/b/c", "value": 1}),
        &json!({"a": {"b": {"c": 1}}}),
    );
    assert_one(
        &json!([true]),
        json!({"op": "add", "path": "/0/b", "value": 1}),
        &json!([{"b": 1}]),
    );
}

#[test]
fn add_inserts_into_arrays_and_appends_at_the_dash_and_at_the_length() {
    assert_one(
        &json!([1, 3]),
        json!({"op": "add", "path": "/1", "value": 2}),
        &json!([1, 2, 3]),
    );
    assert_one(
        &json!([1]),
        json!({"op": "add", "path": "/-", "value": 2}),
        &json!([1, 2]),
    );
    assert_one(
        &json!([1]),
        json!({"op": "add", "path": "/1", "value": 2}),
        &json!([1, 2]),
    );
}

#[test]
fn add_beyond_the_end_of_an_array_is_ignored() {
    assert_one(
        &json!([1]),
        json!({"op": "add", "path": "/2", "value": 2}),
        &json!([1]),
    );
}

#[test]
fn replace_out_of_an_arrays_range_is_ignored() {
    assert_one(
        &json!([1]),
        json!({"op": "replace", "path": "/0", "value": 2}),
        &json!([2]),
    );
    assert_one(
        &json!([1]),
        json!({"op": "replace", "path": "/1", "value": 2}),
        &json!([1]),
    );
}

#[test]
fn replace_of_a_missing_member_sets_it() {
    assert_one(
        &json!({}),
        json!({"op": "replace", "path": "/a", "value": 1}),
        &json!({"a": 1}),
    );
}

#[test]
fn a_token_that_is_no_index_is_ignored_in_an_array() {
    for token in ["x", "01", "-1", "+1", ""] {
        let path = format!("/{token}");

        assert_one(
            &json!([1]),
            json!({"op": "add", "path": path, "value": 2}),
            &json!([1]),
        );
        assert_one(
            &json!([1]),
            json!({"op": "replace", "path": path, "value": 2}),
            &json!([1]),
        );
        assert_one(&json!([1]), json!({"op": "remove", "path": path}), &json!([1]));
    }
}

#[test]
fn a_descent_through_a_bad_index_is_ignored() {
    for path in ["/5/a", "/x/a", "/-/a"] {
        assert_one(
            &json!([{}]),
            json!({"op": "add", "path": path, "value": 1}),
            &json!([{}]),
        );
    }
}

#[test]
fn remove_of_what_is_missing_does_nothing_and_creates_nothing() {
    for path in ["/b", "/b/c", "/a/b", "/list/7", "/list/-", "/list/x/y"] {
        let document = json!({"a": 1, "list": [1]});

        assert_one(&document, json!({"op": "remove", "path": path}), &document);
    }
}

#[test]
fn remove_takes_members_and_elements_and_keeps_the_order_of_the_rest() {
    let result = patch(json!([{"op": "remove", "path": "/a"}, {"op": "remove", "path": "/d/0"}]))
        .apply(&json!({"z": 1, "a": 2, "b": 3, "d": [1, 2]}))
        .unwrap();

    assert_eq!(result.to_string(), r#"{"z":1,"b":3,"d":[2]}"#);
}

#[test]
fn a_test_that_holds_changes_nothing_and_one_that_fails_fails_the_patch() {
    let document = json!({"a": {"b": [1, 2.0]}});

    assert_one(
        &document,
        json!({"op": "test", "path": "/a", "value": {"b": [1.0, 2]}}),
        &document,
    );
    assert_one(
        &document,
        json!({"op": "test", "path": "/missing", "value": null}),
        &document,
    );
    assert_eq!(
        patch(json!([{"op": "test", "path": "/a/b/0", "value": 2}])).apply(&document),
        Err(PatchError::TestFailed("/a/b/0".to_owned()))
    );
}

#[test]
fn large_integers_that_differ_are_not_equal_though_their_floats_are() {
    let document = json!(9_007_199_254_740_993_u64);

    let result =
        patch(json!([{"op": "test", "path": "", "value": 9_007_199_254_740_992_u64}])).apply(&document);

    assert_eq!(result, Err(PatchError::TestFailed(String::new())));
}

#[test]
fn move_takes_and_adds() {
    assert_one(
        &json!({"a": 1}),
        json!({"op": "move", "from": "/a", "path": "/b"}),
        &json!({"b": 1}),
    );
    assert_one(
        &json!([1, 2, 3]),
        json!({"op": "move", "from": "/0", "path": "/2"}),
        &json!([2, 3, 1]),
    );
    assert_one(
        &json!({"a": 1}),
        json!({"op": "move", "from": "", "path": "/b"}),
        &json!({"b": {"a": 1}}),
    );
    assert_one(
        &json!({"a": 1}),
        json!({"op": "move", "from": "/a", "path": "/a/b"}),
        &json!({"a": {"b": 1}}),
    );
    assert_one(
        &json!({}),
        json!({"op": "move", "from": "/a", "path": "/b"}),
        &json!({"b": null}),
    );
}

#[test]
fn copy_adds_without_taking() {
    assert_one(
        &json!({"a": [1]}),
        json!({"op": "copy", "from": "/a", "path": "/b"}),
        &json!({"a": [1], "b": [1]}),
    );
    assert_one(
        &json!({"a": [1]}),
        json!({"op": "copy", "from": "/a", "path": "/a/0"}),
        &json!({"a": [[1], 1]}),
    );
    assert_one(
        &json!({}),
        json!({"op": "copy", "from": "/a", "path": "/b"}),
        &json!({"b": null}),
    );
}

#[test]
fn names_that_are_special_elsewhere_are_ordinary_here() {
    assert_one(
        &json!({}),
        json!({"op": "add", "path": "/__proto__/x", "value": 1}),
        &json!({"__proto__": {"x": 1}}),
    );
}

#[test]
fn a_path_that_is_no_pointer_fails_the_patch() {
    for operation in [
        json!({"op": "add", "path": "a", "value": 1}),
        json!({"op": "move", "from": "a", "path": "/b"}),
        json!({"op": "test", "path": "a", "value": null}),
    ] {
        assert_eq!(
            patch(json!([operation])).apply(&json!({"a": 1})),
            Err(PatchError::InvalidPointer("a".to_owned()))
        );
    }
}

#[test]
fn an_unknown_operation_is_refused_when_the_patch_is_read() {
    let read = serde_json::from_value::<JsonPatch>(json!([{"op": "merge", "path": "/a", "value": 1}]));

    assert!(read.unwrap_err().to_string().contains("merge"));
}

#[test]
fn an_absent_operand_reads_as_null_and_a_superfluous_one_is_ignored() {
    assert_one(
        &json!({}),
        json!({"op": "add", "path": "/a"}),
        &json!({"a": null}),
    );
    assert_one(
        &json!({"a": 1}),
        json!({"op": "remove", "path": "/a", "value": null}),
        &json!({}),
    );
    assert_one(
        &json!({}),
        json!({"op": "add", "path": "/a", "from": "/b", "value": 1}),
        &json!({"a": 1}),
    );
}

#[test]
fn every_operation_survives_a_round_trip_through_its_wire_form() {
    let operations = json!([
        {"op": "add", "path": "/a", "value": null},
        {"op": "remove", "path": "/a"},
        {"op": "replace", "path": "", "value": {"b": null}},
        {"op": "move", "from": "/b", "path": "/c"},
        {"op": "copy", "from": "/c", "path": "/d"},
        {"op": "test", "path": "/d", "value": null},
    ]);

    assert_eq!(
        serde_json::to_value(patch(operations.clone())).unwrap(),
        operations
    );
}

#[test]
fn the_document_given_is_never_changed_also_when_the_patch_fails() {
    let document = json!({"a": [1]});

    let result = patch(json!([
        {"op": "remove", "path": "/a/0"},
        {"op": "test", "path": "/a", "value": "never"},
    ]))
    .apply(&document);

    assert!(result.is_err());
    assert_eq!(document, json!({"a": [1]}));
}

#[test]
fn a_document_copied_into_itself_over_and_over_is_stopped() {
    let doubling = json!({"op": "copy", "from": "", "path": "/-"});

    let result = patch(Value::Array(vec![doubling; 200])).apply(&json!(["x".repeat(1000)]));

    assert!(matches!(result, Err(PatchError::TooLarge)));
}

#[test]
fn a_path_of_a_million_tokens_is_refused() {
    let path = "/a".repeat(1_000_000);

    let result = patch(json!([{"op": "add", "path": path, "value": 1}])).apply(&json!({}));

    assert!(matches!(result, Err(PatchError::TooDeep(_))));
}

#[test]
fn moves_that_bury_the_document_ever_deeper_are_stopped() {
    let burying = json!({"op": "move", "from": "", "path": "/a/a/a/a"});

    let result = patch(Value::Array(vec![burying; 100_000])).apply(&json!(1));

    assert!(matches!(result, Err(PatchError::TooDeep(_))));
}
