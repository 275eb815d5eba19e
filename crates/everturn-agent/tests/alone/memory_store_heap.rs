//! The size of a conversation in the memory store depends on its messages, not on the number of snapshots
//! that share them.

use everturn_agent::store::{Detail, MemoryStore, Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{SessionState, Snapshot, SnapshotId};
use everturn_ai::Message;
use jiff::Timestamp;
use stats_alloc::Region;

use crate::{ALLOCATOR, alone};

const TURNS: usize = 400;
const TEXT: usize = 2_048;

#[tokio::test]
async fn four_hundred_turns_of_two_kilobytes_stay_under_three_megabytes() {
    let _alone = alone();
    let region = Region::new(ALLOCATOR);

    let store = MemoryStore::new();
    let mut state = SessionState::default();
    let mut last: Option<SnapshotId> = None;
    for turn in 0..TURNS {
        state.messages.push(Message::user("?".repeat(200)));
        state.messages.push(Message::model("!".repeat(TEXT - 200)));
        let created_at = Timestamp::from_second(i64::try_from(turn).unwrap()).unwrap();
        let mut row = Snapshot::new(SnapshotId::generate(), "s".into(), created_at);
        row.updated_at = Some(created_at);
        row.parent_id.clone_from(&last);
        row.state = Some(state.clone());
        let (id, tip) = (
            row.snapshot_id.clone(),
            Precondition::Tip(last.replace(row.snapshot_id.clone())),
        );
        let put = Mutation::new(move |_| Ok(Some(row.clone())));
        store.save(&Scope::default(), Some(&id), tip, put).await.unwrap();
    }
    drop(state);

    let change = region.change();
    let held = change.bytes_allocated - change.bytes_deallocated;
    println!("{TURNS} turns of {TEXT} B, every one a snapshot: {held} B of heap");
    let row = store
        .get(&Scope::default(), &last.unwrap(), Detail::Whole)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.state.unwrap().messages.len(), 2 * TURNS);
    assert!(held > TURNS * TEXT, "{held} bytes cannot hold what was said");
    assert!(held < 3_000_000, "{held} bytes");
}
