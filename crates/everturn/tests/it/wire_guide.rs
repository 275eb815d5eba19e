//! The wire guide has an example of every field, and the examples match the messages of servers and clients.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use everturn::agent::{AgentInit, AgentOutput, AgentStreamChunk, UsageTotal};
use everturn::ai::JsonObject;
use everturn::core::Schema;
use everturn::prelude::*;
use everturn::serde::de::DeserializeOwned;

/// Returns the JSON examples under a heading of the guide.
fn examples(heading: &str) -> Vec<Value> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire.md");
    let guide = fs::read_to_string(guide).unwrap();
    let section = guide.split("\n## ").find(|section| section.starts_with(heading));
    let section = section.unwrap_or_else(|| panic!("the guide has no section {heading}"));
    let blocks = section.split("```json\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap())
        .map(|text| everturn::serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}")))
        .collect()
}

fn names(object: &JsonObject) -> impl Iterator<Item = String> {
    object.keys().cloned()
}

/// Checks that examples survive a round trip, and that they contain every field of the type.
fn assert_complete<T: DeserializeOwned + Serialize + JsonSchema>(heading: &str, but: &[&str]) {
    let examples = examples(heading);
    let mut shown = BTreeSet::new();
    for example in &examples {
        let read: T = everturn::serde_json::from_value(example.clone())
            .unwrap_or_else(|error| panic!("{heading}: {example}: {error}"));
        assert_eq!(
            &everturn::serde_json::to_value(read).unwrap(),
            example,
            "{heading}"
        );
        shown.extend(names(example.as_object().unwrap()));
    }
    let schema = Schema::of::<T>();
    let fields = schema.as_json()["properties"].as_object().unwrap();
    let missing: Vec<String> = names(fields)
        .filter(|field| !shown.contains(field) && !but.contains(&field.as_str()))
        .collect();
    assert!(missing.is_empty(), "{heading} has no example of {missing:?}");
}

#[test]
fn every_field_of_requests_and_answers_has_an_example() {
    assert_complete::<AgentInit>("Init", &[]);
    assert_complete::<AgentInput>("Input", &[]);
    assert_complete::<AgentStreamChunk>("Chunk", &[]);
    assert_complete::<AgentOutput>("Output", &[]);
}

#[test]
fn every_field_of_usage_has_an_example() {
    let end = examples("Chunk")
        .into_iter()
        .find_map(|chunk| chunk.get("turnEnd").cloned())
        .unwrap();
    let schema = Schema::of::<UsageTotal>();
    let fields = names(schema.as_json()["properties"].as_object().unwrap()).collect::<BTreeSet<_>>();

    assert_eq!(
        names(end["usage"].as_object().unwrap()).collect::<BTreeSet<_>>(),
        fields
    );
}

#[test]
fn a_snapshot_is_read_as_the_guide_shows_it() {
    for example in examples("Snapshot") {
        let snapshot: Snapshot = everturn::serde_json::from_value(example.clone()).unwrap();

        assert_eq!(everturn::serde_json::to_value(snapshot).unwrap(), example);
    }
}
