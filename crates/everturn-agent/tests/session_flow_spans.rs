//! The trace of a session flow has the names that its design gives.
//!
//! In a file of its own: a test that runs beside others which trace nothing may find its spans switched off by them.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

#[path = "../../everturn-core/tests/traces/mod.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod traces;

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentInit, AgentSession, SnapshotPolicy, session_flow};
use everturn_core::Registry;
use traces::Traces;

#[tokio::test]
async fn its_turns_and_its_snapshots_are_named_as_those_of_a_session_flow() {
    let traces = Traces::listen();
    let registry = Registry::new();
    let cook = session_flow(&registry, "cook", |session: AgentSession| async move {
        session.run(|_| async { Ok(()) }).await?;
        session.set_custom("closed".into());
        Ok(session.result())
    })
    .snapshots(SnapshotPolicy::always())
    .store(MemoryStore::new())
    .define()
    .unwrap();

    let mut connection = cook.connect(AgentInit::default());
    connection.send("soup").await.unwrap();
    connection.send("stew").await.unwrap();
    let output = connection.output().await.unwrap();

    let snapshots = output.snapshot_ids.unwrap();
    let root = traces.span("cook");
    assert_eq!(root.get("metadata:subtype"), Some("agent"));
    for (turn, snapshot) in ["sessionFlow/turn/0", "sessionFlow/turn/1"]
        .into_iter()
        .zip(&snapshots)
    {
        let turn = traces.span(turn);
        assert_eq!(turn.parent, root.id);
        assert_eq!(turn.get("type"), Some("flowStep"));
        assert_eq!(turn.get("metadata:sessionFlow"), Some("cook"));
        assert_eq!(turn.get("metadata:snapshotId"), Some(snapshot.as_str()));
        assert_eq!(turn.get("metadata:agent:snapshotId"), Some(snapshot.as_str()));
    }
    assert_eq!(root.get("metadata:sessionFlow"), Some("cook"));
    assert_eq!(root.get("metadata:snapshotId"), Some(snapshots[2].as_str()));
    assert!(registry.get("/session-flow/cook").is_some());
    assert!(registry.get("/snapshot-store/cook/getSnapshot").is_some());
}
