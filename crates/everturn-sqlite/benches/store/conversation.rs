//! Conversations to measure stores with. The benches of both SQL stores include this file.

use std::time::{Duration, Instant};

use everturn_agent::store::{
    Cursor, Detail, Mutation, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_agent::{SessionId, SessionState, Snapshot, SnapshotId};
use everturn_ai::Message;
use jiff::Timestamp;
use tokio::runtime::Runtime;

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

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
pub(crate) fn kib(bytes: usize) -> f64 {
    bytes as f64 / 1024.0
}

/// The name of a table and the function that prints it.
type Table<'a> = (&'a str, &'a dyn Fn(&Runtime));

/// Runs the tables that the arguments name, or all.
pub(crate) fn run_tables(tables: &[Table<'_>]) {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    for (name, table) in tables {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            table(&runtime);
            println!();
        }
    }
}

/// Compares the time of a turn in a short conversation and in a long one.
pub(crate) async fn compare_pace(store: &dyn SessionStore) {
    let (mut short, mut long) = (Conversation::new("short", 1), Conversation::new("long", 2));
    for turn in 0..10_000 {
        long.save_turn(store).await;
        if turn % 100 == 0 {
            short.save_turn(store).await;
        }
    }
    // Taken in turns, so that both see the same machine.
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        early.push(timed(&mut short, store).await);
        late.push(timed(&mut long, store).await);
    }
    let (early, late) = (median(early), median(late));
    println!("{:>16} {:>16} {:>8}", "around turn 100", "around 10,000", "ratio");
    println!("{early:>16.1?} {late:>16.1?} {:>8.2}", ratio(late, early));
}

async fn timed(conversation: &mut Conversation, store: &dyn SessionStore) -> Duration {
    let start = Instant::now();
    conversation.save_turn(store).await;
    start.elapsed()
}

/// The calls that [`time_calls`] times.
pub(crate) const TIMED: [&str; 5] = ["latest", "sessions", "sessions, deep", "snapshots", "a turn"];

/// Times calls of a store with many sessions. The page deep in the list begins at session `deep`.
pub(crate) async fn time_calls(
    store: &dyn SessionStore,
    session: SessionId,
    deep: i64,
    round: usize,
) -> [Duration; 5] {
    let scope = Scope::default();
    let start = Instant::now();
    let found = store.latest(&scope, &session, Detail::Whole).await;
    found.expect("a read").expect("a row");
    let latest = start.elapsed();
    let mut query = SessionQuery::default();
    let start = Instant::now();
    store.sessions(&scope, &query).await.expect("a page");
    let sessions = start.elapsed();
    query.after = Some(Cursor {
        created_at: Timestamp::from_nanosecond(i128::from(deep) * 1_000_000).expect("a time"),
        snapshot_id: "x".into(),
    });
    let start = Instant::now();
    store.sessions(&scope, &query).await.expect("a page");
    let sessions_deep = start.elapsed();
    let start = Instant::now();
    let page = store.list(&scope, &SnapshotQuery::of(session)).await;
    page.expect("a page");
    let snapshots = start.elapsed();
    let mut conversation = Conversation::new(&format!("new-{round}"), 1);
    let turn = timed(&mut conversation, store).await;
    [latest, sessions, sessions_deep, snapshots, turn]
}

/// Prints the medians that `measure` returns for a hundred sessions and for a million.
pub(crate) fn print_medians(names: &[&str], measure: impl Fn(i64) -> Vec<Vec<Duration>>) {
    print!("{:>10}", "sessions");
    for name in names {
        print!(" {name:>15}");
    }
    println!();
    for sessions in [100, 1_000_000] {
        let times = measure(sessions);
        print!("{sessions:>10}");
        for time in times {
            print!(" {:>15}", format!("{:.0?}", median(time)));
        }
        println!();
    }
}
