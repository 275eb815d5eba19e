//! A file is read only when it is new or has changed, for any number of other files.

use std::sync::Arc;

use everturn_agent::store::{
    Detail, PendingQuery, Precondition, Scope, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_agent::{SessionId, SnapshotStatus};
use everturn_file::FileStore;
use jiff::Timestamp;

use crate::support::platter::{Platter, Skipped};
use crate::support::{put, row};

const SESSIONS: i64 = 300;

/// A store with sessions, and the device it is on, which counts.
struct Fixture {
    platter: Arc<Platter>,
    store: FileStore,
}

impl Fixture {
    async fn new() -> Self {
        let platter = Arc::new(Platter::new(Skipped::Nothing, usize::MAX));
        let store = Self::opened(&platter).await;
        Self { platter, store }
    }

    async fn opened(platter: &Arc<Platter>) -> FileStore {
        let options = FileStore::options("sessions").without_polling();
        options.disk(Arc::clone(platter) as _).open().await.unwrap()
    }

    /// Begins a session in the background, as an agent does: by looking whether there is one.
    async fn begin(&self, number: i64) {
        let session = SessionId::from(format!("session-{number}"));
        let latest = self
            .store
            .latest(&Scope::default(), &session, Detail::Whole)
            .await;
        assert_eq!(latest.unwrap(), None);
        let mut run = row(number);
        run.session_id = Some(session);
        run.parent_id = None;
        run.state = None;
        run.status = SnapshotStatus::Pending;
        run.heartbeat_at = Some(Timestamp::from_second(number).unwrap());
        put(&self.store, run, Precondition::Tip(None)).await.unwrap();
    }

    async fn with_sessions() -> Self {
        let fixture = Self::new().await;
        for number in 1..=SESSIONS {
            fixture.begin(number).await;
        }
        fixture
    }

    fn rows_read(&self) -> usize {
        self.platter.reads_of("sessions/global")
    }

    async fn list_sessions(&self, store: &FileStore, limit: usize) -> usize {
        let mut query = SessionQuery::default();
        query.limit = limit;
        let page = store.sessions(&Scope::default(), &query).await;
        assert_eq!(page.unwrap().items.len(), limit);
        self.rows_read()
    }
}

#[tokio::test]
async fn a_session_that_begins_reads_no_row_and_lists_no_folder_under_the_lock() {
    let fixture = Fixture::new().await;

    for number in 1..=SESSIONS {
        fixture.begin(number).await;

        // The location of the written row, before the lock and under it.
        assert_eq!(fixture.rows_read(), 2, "session {number}");
        // To look for the session, and to write its first row.
        assert_eq!(fixture.platter.lists(), (2, 0), "session {number}");
    }
}

#[tokio::test]
async fn a_session_that_goes_on_lists_no_folder() {
    let fixture = Fixture::new().await;
    put(&fixture.store, row(1), Precondition::Tip(None))
        .await
        .unwrap();
    fixture.platter.lists();

    let condition = Precondition::unfollowed(Some("row-1".into()));
    put(&fixture.store, row(2), condition).await.unwrap();

    assert_eq!(fixture.platter.lists(), (0, 0));
}

#[tokio::test]
async fn a_list_reads_what_is_on_its_page() {
    let fixture = Fixture::with_sessions().await;
    fixture.list_sessions(&fixture.store, 10).await;

    let again = fixture.list_sessions(&fixture.store, 10).await;
    let by_a_clone = fixture.list_sessions(&fixture.store.clone(), 20).await;
    let stranger = fixture
        .list_sessions(&Fixture::opened(&fixture.platter).await, 10)
        .await;

    assert_eq!((again, by_a_clone), (10, 20));
    assert_eq!(
        stranger,
        usize::try_from(SESSIONS).unwrap() + 10,
        "who looks for the first time has to read everything"
    );
}

#[tokio::test]
async fn a_row_that_changed_is_the_only_one_that_is_read_again_and_only_for_its_session() {
    let fixture = Fixture::with_sessions().await;
    fixture.list_sessions(&fixture.store, 1).await;
    let mut over = row(7);
    over.session_id = Some("session-7".into());
    over.parent_id = None;
    put(&Fixture::opened(&fixture.platter).await, over, Precondition::None)
        .await
        .unwrap();
    fixture.rows_read();

    for (session, rows, reads) in [("nobody", 0, 0), ("session-7", 1, 2)] {
        let query = SnapshotQuery::of(session.into());
        let page = fixture.store.list(&Scope::default(), &query).await.unwrap();

        assert_eq!(page.items.len(), rows);
        // For its header and for its content.
        assert_eq!(fixture.rows_read(), reads, "{session}");
    }
}

#[tokio::test]
async fn a_search_for_lost_runs_reads_only_lost_runs() {
    let fixture = Fixture::with_sessions().await;
    let silent = PendingQuery::silent_since(Timestamp::from_second(4).unwrap());
    fixture.store.pending(&silent).await.unwrap();
    let read = || (fixture.rows_read(), fixture.platter.reads_of("sessions/.pending"));
    read();

    let lost = fixture.store.pending(&silent).await.unwrap().unwrap();

    assert_eq!(lost.items.len(), 3);
    assert_eq!(read(), (3, 0));
}

#[tokio::test]
async fn the_children_of_a_row_are_found_without_reading_the_others() {
    let fixture = Fixture::new().await;
    for number in 1..=10 {
        put(&fixture.store, row(number), Precondition::None)
            .await
            .unwrap();
    }
    let stranger = Fixture::opened(&fixture.platter).await;
    fixture.rows_read();

    let children = stranger.children(&Scope::default(), &"row-4".into()).await;

    let ids: Vec<_> = children.unwrap().into_iter().map(|row| row.snapshot_id).collect();
    assert_eq!(ids, ["row-5".into()]);
    // The first row of the session names no parent, and the child is read for its header and for its content.
    assert_eq!(fixture.rows_read(), 3);
}
