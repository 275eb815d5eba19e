//! Every saved field, known or not, is read back in this process and after reopening.

use everturn_agent::{Snapshot, SnapshotStatus};
use everturn_sqlite::{Durability, SqliteStore};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support;
use crate::support::{get, path, put};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => ".{0,12}", 1 => "[a-z \"\\\\\u{0}]{100,600}"]
}

fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has finite numbers", |number| number.is_finite())
            .prop_map(Value::from),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        text().prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// Fields of a version to come.
fn novelties() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec(
        (
            "x-[a-z]{1,6}",
            value().prop_filter("null is absent", |value| !value.is_null()),
        ),
        0..3,
    )
    .prop_map(|fields| fields.into_iter().collect())
}

fn part() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![
        text().prop_map(|text| json!({"text": text})),
        text().prop_map(|text| json!({"reasoning": text})),
        text()
            .prop_map(|text| json!({"media": {"url": format!("data:,{text}"), "contentType": "text/plain"}})),
        value().prop_map(|value| json!({"toolRequest": {"name": "look", "ref": "1", "input": {"v": value}}})),
        value()
            .prop_map(|value| json!({"toolResponse": {"name": "look", "ref": "1", "output": {"v": value}}})),
        value().prop_map(|value| json!({"data": {"v": value}})),
        value().prop_map(|value| json!({"hologram": {"depth": value}})),
    ];
    (kind, novelties(), novelties()).prop_map(|(mut part, metadata, extra)| {
        let fields = part.as_object_mut().unwrap();
        if !metadata.is_empty() {
            fields.insert("metadata".to_owned(), metadata.into());
        }
        fields.extend(extra);
        part
    })
}

fn message() -> impl Strategy<Value = Value> {
    let role = prop_oneof![Just("user"), Just("model"), Just("system"), Just("tool")];
    (role, prop::collection::vec(part(), 0..4), novelties()).prop_map(|(role, content, extra)| {
        let mut message = json!({"role": role, "content": content});
        message.as_object_mut().unwrap().extend(extra);
        message
    })
}

fn state() -> impl Strategy<Value = Value> {
    let artifact =
        (prop::option::of(text()), prop::collection::vec(part(), 0..3)).prop_map(|(name, parts)| {
            name.map_or_else(
                || json!({"parts": parts}),
                |name| json!({"name": name, "parts": parts}),
            )
        });
    (
        prop::option::of(prop_oneof![Just("s".to_owned()), text()]),
        prop::collection::vec(message(), 0..6),
        prop::option::of(value()),
        prop::collection::vec(artifact, 0..3),
        prop::option::of(value()),
        novelties(),
    )
        .prop_map(|(session, messages, custom, artifacts, input, extra)| {
            let mut state = json!({"messages": messages, "artifacts": artifacts});
            let fields = state.as_object_mut().unwrap();
            for (name, value) in [
                ("sessionId", session.map(Value::from)),
                ("custom", custom),
                ("promptInput", input),
            ] {
                fields.extend(value.map(|value| (name.to_owned(), value)));
            }
            fields.extend(extra);
            state
        })
}

fn time() -> impl Strategy<Value = Timestamp> {
    any::<i64>().prop_map(|nanos| Timestamp::from_nanosecond(nanos.into()).unwrap())
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    use SnapshotStatus::{Aborted, Completed, Failed, Pending};
    let word = |words: &'static [&'static str]| prop::option::of(prop::sample::select(words));
    let identity = (
        "[^\u{0}]{1,20}",
        prop::option::of("[a-z]{1,9}"),
        prop::sample::select(vec![Pending, Completed, Aborted, Failed]),
    );
    let times = (time(), prop::option::of(time()), prop::option::of(time()));
    let kind = (
        word(&["stop", "interrupted", "failed"]),
        word(&["turnEnd", "toolIterationEnd"]),
        any::<Option<u64>>(),
        any::<Option<u64>>(),
    );
    let notes = (
        any::<bool>(),
        prop::collection::vec(text(), 0..3),
        prop::option::of(text()),
        any::<bool>(),
        value(),
    );
    (
        identity,
        times,
        kind,
        notes,
        prop::option::of(state()),
        novelties(),
    )
        .prop_map(
            |(
                (id, parent, status),
                (created, updated, beat),
                (reason, event, index, turn),
                notes,
                state,
                extra,
            )| {
                let (orphaned, labels, note, failed, details) = notes;
                let mut row = support::row(&id, "s", 0);
                (row.parent_id, row.status) = (parent.map(Into::into), status);
                (row.created_at, row.updated_at, row.heartbeat_at) = (created, updated, beat);
                row.finish_reason = reason.map(|reason| serde_json::from_value(json!(reason)).unwrap());
                row.event = event.map(|event| serde_json::from_value(json!(event)).unwrap());
                (row.index, row.turn_index, row.orphaned, row.labels, row.note) =
                    (index, turn, orphaned, labels, note);
                if failed {
                    let error = json!({"status": "ABORTED", "message": "no", "details": details});
                    row.error = Some(serde_json::from_value(error).unwrap());
                }
                row.state = state.map(|state| serde_json::from_value(state).unwrap());
                row.extra = extra;
                row
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_is_saved_is_read_back(row in snapshot(), threshold in prop_oneof![Just(8_usize), Just(200), Just(16_384)]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let options = SqliteStore::options(path(folder.path())).durability(Durability::Normal).encoding(everturn_sqlite::Encoding::default().blob_threshold(threshold));
            let store = options.clone().open().await.unwrap();

            prop_assert_eq!(&put(&store, row.clone()).await.unwrap(), &row);
            let warm = get(&store, row.snapshot_id.as_str()).await.unwrap();
            drop(store);
            let store = options.open().await.unwrap();
            let cold = get(&store, row.snapshot_id.as_str()).await.unwrap();

            prop_assert_eq!(&warm, &row);
            prop_assert_eq!(&cold, &row);
            // Equality of objects does not look at the order of their fields; a store keeps that too.
            prop_assert_eq!(serde_json::to_string(&cold).unwrap(), serde_json::to_string(&row).unwrap());
            let found = store.verify().await.unwrap();
            prop_assert!(found.is_clean(), "{:?}", found.problems);
            Ok(())
        })?;
    }
}
