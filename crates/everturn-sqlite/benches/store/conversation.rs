//! Conversations to measure stores with. The benches of both SQL stores include this file.

use std::time::Duration;

use everturn_agent::store::{Mutation, Precondition, Scope, SessionStore};
use everturn_agent::{SessionState, Snapshot, SnapshotId};
use everturn_ai::Message;
use jiff::Timestamp;

/// How much text a turn has.
pub(crate) const TURN: usize = 2_048;

/// Natural text, of which every turn takes a piece.
const TEXT: &str = include_str!("../../../../LICENSE");

/// One session that is talked in.
pub(crate) struct Conversation {
    pub(crate) state: SessionState,
    pub(crate) last: Option<SnapshotId>,
    pub(crate) session: String,
    turns: i64,
    random: fastrand::Rng,
}

impl Conversation {
    pub(crate) fn new(session: &str, seed: u64) -> Self {
        let state = SessionState {
            session_id: Some(session.into()),
            ..SessionState::default()
        };
        Self {
            state,
            last: None,
            session: session.to_owned(),
            turns: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The row of the next turn: a question of 200 bytes and an answer that makes it 2 KiB.
    pub(crate) fn turn(&mut self) -> Snapshot {
        let start = self.random.usize(..TEXT.len() - TURN);
        let text = &TEXT[start..start + TURN];
        self.state.messages.push(Message::user(&text[..200]));
        self.state.messages.push(Message::model(&text[200..]));
        let mut row = Snapshot::new(
            SnapshotId::generate(),
            self.session.as_str().into(),
            Timestamp::from_millisecond(1_750_000_000_000 + self.turns * 1_000).expect("a time"),
        );
        row.updated_at = Some(row.created_at);
        row.turn_index = Some(self.turns.unsigned_abs());
        row.parent_id = self.last.replace(row.snapshot_id.clone());
        row.state = Some(self.state.clone());
        self.turns += 1;
        row
    }

    pub(crate) async fn save_turn(&mut self, store: &dyn SessionStore) {
        let condition = Precondition::unfollowed(self.last.clone());
        let row = self.turn();
        self.save(store, row, condition).await;
    }

    pub(crate) async fn save(&self, store: &dyn SessionStore, row: Snapshot, condition: Precondition) {
        let id = row.snapshot_id.clone();
        let mutation = Mutation::new(move |_| Ok(Some(row.clone())));
        store
            .save(&Scope::default(), Some(&id), condition, mutation)
            .await
            .expect("a turn is saved");
    }
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

pub(crate) fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
