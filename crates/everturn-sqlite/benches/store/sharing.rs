//! The cost of branches and images that share stored content.

use std::sync::Arc;

use everturn_agent::store::{Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{Artifact, SessionId, SessionState, Snapshot, SnapshotId};
use everturn_ai::{Message, Part};
use everturn_sqlite::{Durability, SqliteStore};
use jiff::Timestamp;

use crate::conversation::Conversation;
use crate::growth::bytes_on_disk;

const FORKS: usize = 1_000;
const TURNS: usize = 400;
const SNAPSHOTS: usize = 200;
const IMAGE: usize = 10 * 1024 * 1024;

pub(crate) fn run(runtime: &tokio::runtime::Runtime) {
    println!("sharing: bytes on disk");
    let forks = runtime.block_on(forks());
    println!(
        "{FORKS} forks of a session of {TURNS} turns: {:.0} KiB, {} B each",
        kib(forks),
        forks / FORKS
    );
    let image = runtime.block_on(image());
    println!(
        "an image of {:.0} KiB in {SNAPSHOTS} snapshots: {:.0} KiB",
        kib(IMAGE),
        kib(image)
    );
}

async fn open(folder: &std::path::Path) -> SqliteStore {
    let options = SqliteStore::options(folder.join("sessions.db")).durability(Durability::Normal);
    options.open().await.expect("a store")
}

async fn save(store: &SqliteStore, row: Snapshot) {
    let id = row.snapshot_id.clone();
    let put = Mutation::new(move |_| Ok(Some(row.clone())));
    store
        .save(&Scope::default(), Some(&id), Precondition::None, put)
        .await
        .expect("a row is saved");
}

fn at(second: usize) -> Timestamp {
    let second = i64::try_from(second).expect("a small number");
    Timestamp::from_second(1_760_000_000 + second).expect("a time")
}

/// The bytes added by forks at any point of a long session. Each fork is a new session with one message.
async fn forks() -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path()).await;
    let mut conversation = Conversation::new("s", 1);
    for _ in 0..TURNS {
        conversation.save_turn(&store).await;
    }
    store.checkpoint().await.expect("a checkpoint");
    let before = bytes_on_disk(folder.path());
    for fork in 0..FORKS {
        let mut state = conversation.state.clone();
        state.messages = state.messages.truncate_to(fork % (2 * TURNS) + 1);
        state.messages.push(Message::user("And if not?"));
        let mut row = Snapshot::new(SnapshotId::generate(), SessionId::generate(), at(fork));
        row.parent_id.clone_from(&conversation.last);
        row.state = Some(state);
        save(&store, row).await;
    }
    store.checkpoint().await.expect("a checkpoint");
    bytes_on_disk(folder.path()) - before
}

/// A conversation about an image that does not compress, which is an artifact too.
async fn image() -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path()).await;
    let mut random = fastrand::Rng::with_seed(1);
    let noise: String = std::iter::repeat_with(|| random.alphanumeric())
        .take(IMAGE)
        .collect();
    let image = Part::media(format!("data:image/png;base64,{noise}"));
    let mut state = SessionState::default();
    state.messages.push(Message::user(image.clone()));
    state.artifacts = Arc::new(vec![Artifact::new("picture", image)]);
    for turn in 0..SNAPSHOTS {
        state.messages.push(Message::model("A leek."));
        let mut row = Snapshot::new(SnapshotId::generate(), "s".into(), at(turn));
        row.state = Some(state.clone());
        save(&store, row).await;
    }
    store.checkpoint().await.expect("a checkpoint");
    bytes_on_disk(folder.path())
}

#[expect(clippy::cast_precision_loss, reason = "shown without digits")]
fn kib(bytes: usize) -> f64 {
    bytes as f64 / 1024.0
}
