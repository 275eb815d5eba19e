//! What the fuzz target and the property tests drive: a file of arbitrary bytes is imported. Nothing may panic, a file that
//! is refused leaves nothing behind, and one that is taken can be exported and taken again.

use everturn_agent::archive::{Archive, Import};
use everturn_agent::store::{MemoryStore, Scope, SessionQuery};

/// Imports a file into an empty store: whether it was taken.
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
