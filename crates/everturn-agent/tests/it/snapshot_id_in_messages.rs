//! Messages that name the snapshots they ended.

use everturn_agent::{AgentInit, SnapshotId, SnapshotIds, SnapshotPolicy, agent};
use everturn_ai::{History, NoInput, Tool, ToolContext};
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::prompt_support::{invoke, registry, said};
use crate::support::{FaultyStore, all_chunks, replying, snapshots};

/// The snapshots that messages name, where they name one.
fn names(history: &History) -> Vec<Option<SnapshotId>> {
    let name = |value: &Value| SnapshotId::from(value.as_str().unwrap());
    history
        .iter()
        .map(|message| message.metadata_entry("snapshotId").map(name))
        .collect()
}

#[tokio::test]
async fn the_last_message_of_each_snapshot_names_it_and_earlier_ones_keep_their_names() {
    for ids in [SnapshotIds::Uuid, SnapshotIds::ContentAddressed] {
        let store = FaultyStore::default();
        let agent = replying("parrot")
            .store(store.clone())
            .snapshot_ids(ids)
            .snapshot_id_in_messages()
            .define()
            .unwrap();

        let mut connection = agent.connect(AgentInit::session("s"));
        connection.send("one").await.unwrap();
        connection.send("two").await.unwrap();
        all_chunks(&mut connection).await;
        connection.output().await.unwrap();
        let (_, output) = invoke(agent.connect(AgentInit::session("s")), "three").await;

        let snapshots = snapshots(&store, &"s".into()).await;
        let ids_of_snapshots: Vec<_> = snapshots
            .iter()
            .map(|snapshot| Some(snapshot.snapshot_id.clone()))
            .collect();
        let [one, two, three] = &ids_of_snapshots[..] else {
            panic!("{ids_of_snapshots:?}");
        };
        for (snapshot, expected) in snapshots.iter().zip([
            vec![None, one.clone()],
            vec![None, one.clone(), None, two.clone()],
            vec![None, one.clone(), None, two.clone(), None, three.clone()],
        ]) {
            assert_eq!(names(&snapshot.state.as_ref().unwrap().messages), expected);
            assert!(ids == SnapshotIds::Uuid || snapshot.verify().unwrap());
        }
        let answer = output.message.unwrap();
        assert_eq!(
            answer.metadata_entry("snapshotId"),
            three.as_ref().map(|id| json!(id)).as_ref()
        );
    }
}

#[tokio::test]
async fn answers_of_tools_keep_the_names_of_the_snapshots_inside_their_turn() {
    let store = FaultyStore::default();
    let model = ScriptedModel::new().replies([
        Reply::tool("oven", json!({})),
        Reply::tool("oven", json!({})),
        "Done.".into(),
    ]);
    let oven = Tool::new("oven", "Heats.", |_: NoInput, _: ToolContext| async { Ok(1) });
    let chef = agent(&registry(&model), "chef")
        .tool(oven)
        .store(store.clone())
        .snapshots(SnapshotPolicy::always())
        .snapshot_ids(SnapshotIds::ContentAddressed)
        .snapshot_id_in_messages()
        .define()
        .unwrap();

    chef.chat().resume("s").run("bake").await.unwrap();

    let snapshots = snapshots(&store, &"s".into()).await;
    let [first, second, turn] = &snapshots[..] else {
        panic!("{} rows", snapshots.len());
    };
    let id = |snapshot: &everturn_agent::Snapshot| Some(snapshot.snapshot_id.clone());
    let messages = &turn.state.as_ref().unwrap().messages;
    assert_eq!(
        said(messages),
        [
            "user: bake",
            "model: ask(oven)",
            "tool: answer(1)",
            "model: ask(oven)",
            "tool: answer(1)",
            "model: Done."
        ]
    );
    assert_eq!(
        names(messages),
        [None, None, id(first), None, id(second), id(turn)]
    );
    for snapshot in &snapshots {
        assert!(snapshot.verify().unwrap());
    }
    let middle = &second.state.as_ref().unwrap().messages;
    assert_eq!(messages.shared_prefix(middle), 5);
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_written_leaves_no_name() {
    let store = FaultyStore::default();
    let agent = replying("parrot")
        .store(store.clone())
        .snapshot_id_in_messages()
        .define()
        .unwrap();
    store.fail_saves(true);

    let (_, output) = invoke(agent.connect(AgentInit::session("s")), "one").await;

    assert!(output.error.is_some());
    assert_eq!(output.message, None);
}

#[tokio::test]
async fn messages_name_nothing_unless_it_is_asked_for() {
    let store = FaultyStore::default();
    let agent = replying("parrot").store(store.clone()).define().unwrap();

    agent.chat().resume("s").run("one").await.unwrap();

    let snapshots = snapshots(&store, &"s".into()).await;
    assert_eq!(
        names(&snapshots[0].state.as_ref().unwrap().messages),
        [None, None]
    );
}
