//! Which operations a diff is made of.

use everturn_agent::patch::JsonPatch;
use serde_json::{Value, json};

#[track_caller]
fn assert_diff(old: &Value, new: &Value, operations: &Value) {
    let patch = JsonPatch::diff(old, new);

    assert_eq!(
        &serde_json::to_value(&patch).expect("a patch serialises"),
        operations
    );
}

#[test]
fn equal_documents_differ_by_nothing() {
    let document = json!({"a": [1, {"b": null}], "c": "x"});

    assert!(JsonPatch::diff(&document, &document).is_empty());
}

#[test]
fn the_order_of_members_is_no_difference() {
    assert_diff(&json!({"a": 1, "b": 2}), &json!({"b": 2, "a": 1}), &json!([]));
}

#[test]
fn members_are_added_removed_and_replaced_in_sorted_order() {
    assert_diff(
        &json!({"z": 1, "gone": 2, "m": 3}),
        &json!({"z": 9, "new": 4, "m": 3, "another": 5}),
        &json!([
            {"op": "add", "path": "/another", "value": 5},
            {"op": "remove", "path": "/gone"},
            {"op": "add", "path": "/new", "value": 4},
            {"op": "replace", "path": "/z", "value": 9},
        ]),
    );
}

#[test]
fn a_change_deep_inside_is_one_operation_at_its_own_path() {
    assert_diff(
        &json!({"a": {"b": [{"c": 1}, {"c": 2}]}}),
        &json!({"a": {"b": [{"c": 1}, {"c": 3}]}}),
        &json!([{"op": "replace", "path": "/a/b/1/c", "value": 3}]),
    );
}

#[test]
fn a_longer_array_appends_in_order() {
    assert_diff(
        &json!({"list": [1]}),
        &json!({"list": [1, 2, 3]}),
        &json!([
            {"op": "add", "path": "/list/-", "value": 2},
            {"op": "add", "path": "/list/-", "value": 3},
        ]),
    );
}

#[test]
fn a_shorter_array_loses_its_tail_backwards() {
    assert_diff(
        &json!([1, 2, 3]),
        &json!([1]),
        &json!([{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/1"}]),
    );
}

#[test]
fn an_insertion_at_the_head_rewrites_the_array_by_index() {
    assert_diff(
        &json!(["b", "c"]),
        &json!(["a", "b", "c"]),
        &json!([
            {"op": "replace", "path": "/0", "value": "a"},
            {"op": "replace", "path": "/1", "value": "b"},
            {"op": "add", "path": "/-", "value": "c"},
        ]),
    );
}

#[test]
fn another_kind_of_root_replaces_the_document() {
    assert_diff(
        &json!({"a": 1}),
        &json!([1]),
        &json!([{"op": "replace", "path": "", "value": [1]}]),
    );
    assert_diff(
        &json!(null),
        &json!({}),
        &json!([{"op": "replace", "path": "", "value": {}}]),
    );
    assert_diff(
        &json!(1),
        &json!(2),
        &json!([{"op": "replace", "path": "", "value": 2}]),
    );
}

#[test]
fn null_is_a_value_and_is_written_out() {
    assert_diff(
        &json!({}),
        &json!({"a": null}),
        &json!([{"op": "add", "path": "/a", "value": null}]),
    );
    assert_diff(
        &json!({"a": 1}),
        &json!({"a": null}),
        &json!([{"op": "replace", "path": "/a", "value": null}]),
    );
    assert_diff(
        &json!({"a": null}),
        &json!({}),
        &json!([{"op": "remove", "path": "/a"}]),
    );
}

#[test]
fn member_names_are_escaped() {
    assert_diff(
        &json!({}),
        &json!({"a/b": 1, "c~d": 2, "": 3}),
        &json!([
            {"op": "add", "path": "/", "value": 3},
            {"op": "add", "path": "/a~1b", "value": 1},
            {"op": "add", "path": "/c~0d", "value": 2},
        ]),
    );
}

#[test]
fn a_whole_document_replacement_is_one_operation_at_the_root() {
    let patch = JsonPatch::replace_document(json!(null));

    assert_eq!(
        serde_json::to_value(&patch).unwrap(),
        json!([{"op": "replace", "path": "", "value": null}])
    );
}
