//! Laws of diff and apply, over generated documents and patches.

use everturn_agent::patch::{JsonPatch, PatchOperation};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Value;

/// Few distinct names and values, so that documents share structure and paths hit something.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("a"), Just("b"), Just("c/d"), Just("~"), Just(""), Just("0")].prop_map(str::to_owned)
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3).prop_map(Value::from),
        Just(Value::from(1.5)),
        name().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(name(), inner, 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        8 => prop_oneof![Just("a"), Just("b"), Just("c~1d"), Just("~0"), Just("0"), Just("1"), Just("2"), Just("-")]
            .prop_map(str::to_owned),
        1 => "[a-z0-9~/-]{0,3}",
    ];
    prop_oneof![
        9 => vec(token, 0..4).prop_map(|tokens| tokens.iter().flat_map(|token| ["/", token]).collect()),
        1 => any::<String>(),
    ]
}

fn operation() -> impl Strategy<Value = PatchOperation> {
    prop_oneof![
        (path(), document()).prop_map(|(path, value)| PatchOperation::Add { path, value }),
        path().prop_map(|path| PatchOperation::Remove { path }),
        (path(), document()).prop_map(|(path, value)| PatchOperation::Replace {
            path,
            value: value.into(),
        }),
        (path(), path()).prop_map(|(from, path)| PatchOperation::Move { from, path }),
        (path(), path()).prop_map(|(from, path)| PatchOperation::Copy { from, path }),
        (path(), document()).prop_map(|(path, value)| PatchOperation::Test { path, value }),
    ]
}

/// The result of the patch by an implementation of the RFC, if it accepts the patch.
fn strictly(patch: &JsonPatch, document: &Value) -> Option<Value> {
    let wire = serde_json::to_value(patch).expect("a patch serialises");
    let strict: json_patch::Patch = serde_json::from_value(wire).ok()?;
    let mut document = document.clone();
    // The variant that does not roll back: rolling back panics on some patches that fail.
    json_patch::patch_unsafe(&mut document, &strict).ok()?;
    Some(document)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_diff_applied_to_its_source_yields_its_target(old in document(), new in document()) {
        let patch = JsonPatch::diff(&old, &new);

        prop_assert_eq!(patch.apply(&old), Ok(new));
    }

    #[test]
    fn a_strict_implementation_applies_our_diff_to_the_same_end(old in document(), new in document()) {
        let patch = JsonPatch::diff(&old, &new);

        prop_assert_eq!(strictly(&patch, &old), Some(new));
    }

    #[test]
    fn a_diff_is_empty_exactly_when_the_documents_are_equal(old in document(), new in document()) {
        prop_assert_eq!(JsonPatch::diff(&old, &new).is_empty(), old == new);
        prop_assert!(JsonPatch::diff(&old, &old).is_empty());
    }

    #[test]
    fn whatever_a_strict_implementation_accepts_we_apply_to_the_same_end(
        source in document(),
        operations in vec(operation(), 1..6),
    ) {
        let patch = JsonPatch(operations);

        if let Some(strict) = strictly(&patch, &source) {
            prop_assert_eq!(patch.apply(&source), Ok(strict));
        }
    }

    #[test]
    fn applying_any_patch_neither_panics_nor_changes_its_source(
        source in document(),
        operations in vec(operation(), 0..12),
    ) {
        let before = source.clone();

        let _ = JsonPatch(operations).apply(&source);

        prop_assert_eq!(source, before);
    }

    #[test]
    fn a_patch_survives_a_round_trip_through_its_wire_form(operations in vec(operation(), 0..6)) {
        let patch = JsonPatch(operations);

        let wire = serde_json::to_string(&patch).unwrap();

        prop_assert_eq!(serde_json::from_str::<JsonPatch>(&wire).unwrap(), patch);
    }
}
