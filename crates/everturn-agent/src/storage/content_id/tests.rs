//! That the hash is the documented one, and costs what was added.

use everturn_ai::JsonObject;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Artifact;

/// The name by the letter of the definition: the whole text first, then its hash.
fn from_scratch(state: &SessionState) -> String {
    let canonical = |value: &Value| serde_json_canonicalizer::to_string(value).unwrap();
    let mut state = serde_json::to_value(state).unwrap();
    if let Some(last) = state["messages"].as_array_mut().and_then(|all| all.last_mut())
        && let Some(metadata) = last.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.shift_remove(SNAPSHOT_ID_ENTRY);
        if metadata.is_empty() {
            last.as_object_mut().unwrap().shift_remove("metadata");
        }
    }
    let fields: Vec<String> = ["sessionId", "messages", "custom", "artifacts", "promptInput"]
        .iter()
        .filter_map(|field| Some(format!("\"{field}\":{}", canonical(state.get(*field)?))))
        .collect();
    hex(&Sha256::digest(format!("{{{}}}", fields.join(","))))
}

fn state(messages: impl IntoIterator<Item = Message>) -> SessionState {
    SessionState {
        session_id: Some("s".into()),
        messages: messages.into_iter().collect(),
        ..SessionState::default()
    }
}

#[test]
fn the_name_of_a_small_state_is_the_hash_of_its_text() {
    let mut state = state([Message::user("hi")]);
    state.custom = Some(Arc::new(json!({"b": 1.0, "a": "é"})));

    let text = r#"{"sessionId":"s","messages":[{"content":[{"text":"hi"}],"role":"user"}],"custom":{"a":"é","b":1}}"#;

    assert_eq!(
        SnapshotId::of_state(&state).unwrap().as_str(),
        hex(&Sha256::digest(text))
    );
}

#[test]
fn numbers_are_written_as_rfc_8785_says() {
    for (number, expected) in [
        ("0", "0"),
        ("-0.0", "0"),
        ("1.0", "1"),
        ("1e21", "1e+21"),
        ("1e20", "100000000000000000000"),
        ("1e-7", "1e-7"),
        ("0.000001", "0.000001"),
        ("4.50", "4.5"),
        ("9007199254740991", "9007199254740991"),
        ("9007199254740992", "9007199254740992"),
        ("9007199254740993", "9007199254740992"),
        ("18446744073709551615", "18446744073709552000"),
        ("333333333.33333329", "333333333.3333333"),
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
    ] {
        let value: Value = serde_json::from_str(number).unwrap();

        assert_eq!(
            serde_json_canonicalizer::to_string(&value).unwrap(),
            expected,
            "{number}"
        );
    }
}

#[test]
fn keys_are_ordered_by_utf_16_and_strings_escaped_as_rfc_8785_says() {
    let value = json!({"\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": "\u{7f}\u{1f}/\""});

    let text = serde_json_canonicalizer::to_string(&value).unwrap();

    assert_eq!(
        text,
        "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":\"\u{7f}\\u001f/\\\"\",\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}"
    );
}

#[test]
fn the_name_in_the_last_message_is_not_part_of_the_name() {
    let plain = state([Message::user("a"), Message::model("b")]);
    let stamp = |message: Message| message.with_metadata_entry(SNAPSHOT_ID_ENTRY, "x");

    let last = state([Message::user("a"), stamp(Message::model("b"))]);
    let first = state([stamp(Message::user("a")), Message::model("b")]);

    let name = |state| SnapshotId::of_state(state).unwrap();
    assert_eq!(name(&plain), name(&last));
    assert_ne!(name(&plain), name(&first));
}

#[test]
fn a_snapshot_of_a_long_conversation_costs_what_the_last_turn_added() {
    let mut state = state((0..10_000).map(|number| Message::user(format!("message number {number}"))));
    let whole = hash(&state).unwrap().bytes;

    let mut turn = |number: usize| {
        state.messages.push(Message::user(format!("question {number}")));
        state.messages.push(Message::model(format!("answer {number}")));
        hash(&state).unwrap()
    };
    let costs: Vec<u64> = (0..100).map(|number| turn(number).bytes).collect();

    assert!(whole > 400_000, "{whole}");
    assert!(costs.iter().all(|bytes| *bytes < 300), "{costs:?}");
    assert_eq!(
        SnapshotId::of_state(&state).unwrap().as_str(),
        from_scratch(&state)
    );
}

#[test]
fn a_branch_continues_from_the_hash_of_what_it_shares() {
    let trunk = state((0..1_000).map(|number| Message::user(format!("message number {number}"))));
    hash(&trunk).unwrap();

    let mut branch = trunk.clone();
    branch.messages = branch.messages.truncate_to(999);
    branch.messages.push(Message::model("another way"));
    let cost = hash(&branch).unwrap().bytes;

    assert!(cost < 200, "{cost}");
}

#[test]
fn sessions_that_share_a_history_have_hashes_of_their_own() {
    let one = state([Message::user("a"), Message::model("b"), Message::user("c")]);
    hash(&one).unwrap();

    let other = SessionState {
        session_id: Some("t".into()),
        ..one.clone()
    };

    assert_eq!(
        SnapshotId::of_state(&other).unwrap().as_str(),
        from_scratch(&other)
    );
    assert_ne!(
        SnapshotId::of_state(&other).unwrap(),
        SnapshotId::of_state(&one).unwrap()
    );
}

#[test]
fn only_content_addressed_snapshots_with_their_state_can_be_checked() {
    let held = state([Message::user("a")]);
    let mut snapshot = crate::Snapshot::new(
        SnapshotId::of_state(&held).unwrap(),
        "s".into(),
        jiff::Timestamp::UNIX_EPOCH,
    );
    assert!(snapshot.verify().is_err());

    snapshot.state = Some(held);
    assert!(snapshot.verify().unwrap());

    snapshot.state = Some(state([Message::user("b")]));
    assert!(!snapshot.verify().unwrap());

    snapshot.snapshot_id = SnapshotId::generate();
    assert!(snapshot.verify().is_err());
}

/// A change of a conversation between two snapshots.
#[derive(Debug, Clone)]
enum Step {
    Say(String),
    Stamp,
    Cut(usize),
    Rewrite(usize, String),
    Custom(i64),
    Make(String),
    Input(String),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => "[a-zé\"\\\\\n]{0,8}".prop_map(Step::Say),
        2 => Just(Step::Stamp),
        1 => (0_usize..12).prop_map(Step::Cut),
        1 => ((0_usize..12), "[a-z]{0,4}").prop_map(|(index, text)| Step::Rewrite(index, text)),
        1 => any::<i64>().prop_map(Step::Custom),
        1 => "[a-c]".prop_map(Step::Make),
        1 => "[a-c]".prop_map(Step::Input),
    ];
    proptest::collection::vec(step, 1..40)
}

fn apply(state: &mut SessionState, step: Step) {
    match step {
        Step::Say(text) => state.messages.push(Message::user(text)),
        Step::Stamp => {
            if let Some(last) = state.messages.last().cloned() {
                state.messages = state.messages.truncate_to(state.messages.len() - 1);
                state
                    .messages
                    .push(last.with_metadata_entry(SNAPSHOT_ID_ENTRY, "x"));
            }
        }
        Step::Cut(length) => state.messages = state.messages.truncate_to(length),
        Step::Rewrite(index, text) => {
            let mut messages = state.messages.truncate_to(index);
            messages.push(Message::model(text));
            messages.extend(state.messages.since(index + 1).cloned());
            state.messages = messages;
        }
        Step::Custom(number) => state.custom = Some(Arc::new(json!({"number": number}))),
        Step::Input(tone) => state.prompt_input = Some(Arc::new(json!({"tone": tone}))),
        Step::Make(name) => Arc::make_mut(&mut state.artifacts).push(Artifact::text(name, "made")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_incremental_hash_is_the_hash_from_scratch(steps in steps()) {
        let mut state = state([]);
        state.extra = JsonObject::new();

        for step in steps {
            apply(&mut state, step);

            let incremental = SnapshotId::of_state(&state).unwrap().to_string();
            prop_assert_eq!(incremental, from_scratch(&state));
        }
    }
}
