//! Entry points of the fuzz targets and the property tests: files, patches and the messages between clients
//! and agents, all of arbitrary bytes. Nothing may panic, and decoded values must decode again after
//! encoding.

#![allow(dead_code, reason = "each user drives its part of this")]

use everturn_agent::archive::{Archive, Import};
use everturn_agent::patch::JsonPatch;
use everturn_agent::store::{MemoryStore, Scope, SessionQuery};
use everturn_agent::{AgentInit, AgentInput, AgentOutput, AgentStreamChunk, Snapshot};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Imports a file into an empty store: whether it was taken. A file that is refused leaves nothing behind,
/// and one that is taken can be exported and taken again.
pub(crate) async fn import(file: &[u8]) -> bool {
    let archive = Archive::of(MemoryStore::new(), Scope::default());
    let Ok(imported) = archive.import(file, Import::default()).await else {
        let left = archive.sessions(&SessionQuery::default()).await;
        assert!(left.expect("the store can be asked").items.is_empty());
        return false;
    };
    let mut again = Vec::new();
    let session = imported.session_id.clone();
    archive
        .export(session, &mut again)
        .await
        .expect("what was taken can be written");
    let other = Archive::of(MemoryStore::new(), Scope::default());
    let taken = other.import(again.as_slice(), Import::default()).await;

    assert_eq!(taken.expect("what was written can be taken"), imported);
    true
}

/// Applies a patch to a document, and finds the patch that leads from the one document to the other.
pub(crate) fn patch(document: &[u8], other: &[u8], patch: &[u8]) {
    let Ok(document) = serde_json::from_slice::<Value>(document) else {
        return;
    };
    if let Ok(patch) = serde_json::from_slice::<JsonPatch>(patch) {
        let before = document.clone();
        // A patch may be refused; the document is as it was either way.
        let _ = patch.apply(&document);
        assert_eq!(document, before);
    }
    if let Ok(other) = serde_json::from_slice::<Value>(other) {
        let way = JsonPatch::diff(&document, &other);
        assert_eq!(way.apply(&document).expect("a patch of our own applies"), other);
    }
}

/// Reads what clients send to agents and agents to clients, and the rows of stores.
pub(crate) fn read_wire(bytes: &[u8]) {
    survives::<AgentInit>(bytes);
    survives::<AgentInput>(bytes);
    survives::<AgentOutput>(bytes);
    survives::<AgentStreamChunk>(bytes);
    survives::<Snapshot>(bytes);
}

/// Reads a value, and reads what it is written as: nothing is lost on the second way.
fn survives<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else {
        return;
    };
    let written = serde_json::to_value(&value).expect("what was read can be written");
    let again: T = serde_json::from_value(written.clone()).expect("what was written can be read");
    assert_eq!(
        serde_json::to_value(&again).expect("what was read can be written"),
        written
    );
}
