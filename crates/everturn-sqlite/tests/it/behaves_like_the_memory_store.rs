//! Random programs of saves, forks, rewrites, deletions and reopenings give the same rows as a store in
//! memory.

use std::sync::Arc;

use everturn_agent::store::{
    Deletion, Detail, MemoryStore, Order, Precondition, SessionQuery, SessionStore, SnapshotQuery,
};
use everturn_agent::{Artifact, SessionState, Snapshot, SnapshotId, SnapshotStatus};
use everturn_ai::{Message, Part};
use everturn_sqlite::{Durability, SqliteStore};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{at, path, row, scope, set};

#[derive(Debug, Clone)]
enum Step {
    /// A turn that continues some row, in that row's session or another.
    Turn {
        from: usize,
        session: usize,
        second: i64,
        keep: usize,
        add: usize,
        change: Change,
        via: Via,
        tip: bool,
    },
    /// A row that is written again.
    Rewrite {
        of: usize,
        status: SnapshotStatus,
        add: usize,
        drop_state: bool,
    },
    Delete {
        rows: Vec<usize>,
    },
    DeleteSession {
        session: usize,
    },
    Reopen,
    Vacuum,
}

#[derive(Debug, Clone)]
enum Change {
    Nothing,
    Custom(u8),
    Artifact(u8),
    Everything,
}

/// Where a turn gets the state that it continues.
#[derive(Debug, Clone, Copy)]
enum Via {
    Store,
    Memory,
    Wire,
}

fn step() -> impl Strategy<Value = Step> {
    let change = prop_oneof![
        Just(Change::Nothing),
        any::<u8>().prop_map(Change::Custom),
        (0_u8..4).prop_map(Change::Artifact),
        Just(Change::Everything),
    ];
    let via = prop_oneof![3 => Just(Via::Store), 1 => Just(Via::Memory), 1 => Just(Via::Wire)];
    let turn = (
        any::<usize>(),
        0_usize..4,
        0_i64..30,
        0_usize..12,
        0_usize..4,
        change,
        via,
        any::<bool>(),
    )
        .prop_map(
            |(from, session, second, keep, add, change, via, tip)| Step::Turn {
                from,
                session,
                second,
                keep,
                add,
                change,
                via,
                tip,
            },
        );
    let status = prop::sample::select(vec![
        SnapshotStatus::Pending,
        SnapshotStatus::Completed,
        SnapshotStatus::Failed,
    ]);
    prop_oneof![
        12 => turn,
        3 => (any::<usize>(), status, 0_usize..3, any::<bool>())
            .prop_map(|(of, status, add, drop_state)| Step::Rewrite { of, status, add, drop_state }),
        3 => prop::collection::vec(any::<usize>(), 1..4).prop_map(|rows| Step::Delete { rows }),
        1 => (0_usize..4).prop_map(|session| Step::DeleteSession { session }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Vacuum),
    ]
}

struct Program {
    folder: tempfile::TempDir,
    store: SqliteStore,
    model: MemoryStore,
    /// Every id there ever was.
    ids: Vec<SnapshotId>,
    message_count: usize,
}

async fn open(folder: &std::path::Path) -> SqliteStore {
    let options = SqliteStore::options(path(folder)).durability(Durability::Normal);
    options
        .encoding(everturn_sqlite::Encoding::default().blob_threshold(300))
        .cache_bytes(20_000)
        .open()
        .await
        .unwrap()
}

impl Program {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        Self {
            folder,
            store,
            model: MemoryStore::new(),
            ids: Vec::new(),
            message_count: 0,
        }
    }

    fn id(&self, pick: usize) -> Option<&SnapshotId> {
        (!self.ids.is_empty()).then(|| &self.ids[pick % self.ids.len()])
    }

    async fn state_of(&self, id: &SnapshotId, via: Via) -> Option<SessionState> {
        let from: &dyn SessionStore = match via {
            Via::Store => &self.store,
            Via::Memory | Via::Wire => &self.model,
        };
        let state = from.get(&scope(), id, Detail::Whole).await.unwrap()?.state?;
        Some(match via {
            Via::Wire => serde_json::from_value(serde_json::to_value(state).unwrap()).unwrap(),
            Via::Store | Via::Memory => state,
        })
    }

    fn say(&mut self, state: &mut SessionState, count: usize) {
        for _ in 0..count {
            self.message_count += 1;
            let long = if self.message_count.is_multiple_of(3) {
                "leek ".repeat(80)
            } else {
                String::new()
            };
            state.messages.push(Message::user(Part::text(format!(
                "{} {long}",
                self.message_count
            ))));
        }
    }

    async fn save(&self, id: &SnapshotId, precondition: Precondition, row: Snapshot) {
        let stored = self
            .store
            .save(&scope(), Some(id), precondition.clone(), set(row.clone()))
            .await;
        let modelled = self.model.save(&scope(), Some(id), precondition, set(row)).await;
        match (stored, modelled) {
            (Ok(stored), Ok(modelled)) => assert_eq!(stored, modelled),
            (Err(stored), Err(modelled)) => assert_eq!(stored.status(), modelled.status()),
            (stored, modelled) => panic!("{stored:?} where the model has {modelled:?}"),
        }
    }

    async fn run(&mut self, step: &Step) {
        match step {
            Step::Turn {
                from,
                session,
                second,
                keep,
                add,
                change,
                via,
                tip,
            } => {
                let parent = self.id(*from).cloned();
                let mut state = match &parent {
                    Some(parent) => self.state_of(parent, *via).await.unwrap_or_default(),
                    None => SessionState::default(),
                };
                state.messages = state.messages.truncate_to(*keep);
                self.say(&mut state, *add);
                alter(&mut state, change);
                let id = SnapshotId::from(format!("row-{}", self.ids.len()));
                let mut row = row(id.as_str(), &format!("s{session}"), *second);
                row.parent_id = parent.clone();
                row.orphaned = second % 5 == 0;
                row.status = if second % 2 == 0 {
                    SnapshotStatus::Pending
                } else {
                    SnapshotStatus::Completed
                };
                row.state = Some(state);
                self.ids.push(id.clone());
                self.save(
                    &id,
                    if *tip {
                        Precondition::Tip(parent)
                    } else {
                        Precondition::None
                    },
                    row,
                )
                .await;
            }
            Step::Rewrite {
                of,
                status,
                add,
                drop_state,
            } => {
                let Some(id) = self.id(*of).cloned() else { return };
                let Some(mut row) = self.store.get(&scope(), &id, Detail::Whole).await.unwrap() else {
                    return;
                };
                row.status = *status;
                row.updated_at = Some(at(100));
                match &mut row.state {
                    Some(_) if *drop_state => row.state = None,
                    Some(state) => self.say(state, *add),
                    None => {}
                }
                self.save(&id, Precondition::None, row).await;
            }
            Step::Delete { rows } => {
                let ids = rows.iter().filter_map(|row| self.id(*row).cloned()).collect();
                self.delete(&Deletion::Snapshots(ids)).await;
            }
            Step::DeleteSession { session } => {
                self.delete(&Deletion::Session(format!("s{session}").into()))
                    .await;
            }
            Step::Reopen => self.store = open(self.folder.path()).await,
            Step::Vacuum => self.store.vacuum().await.unwrap(),
        }
    }

    async fn delete(&self, deletion: &Deletion) {
        let stored = self.store.delete(&scope(), deletion).await.unwrap();
        assert_eq!(stored, self.model.delete(&scope(), deletion).await.unwrap());
    }

    async fn compare(&self) {
        let (store, model) = (&self.store, &self.model);
        for id in &self.ids {
            for detail in [Detail::Whole, Detail::Metadata] {
                let stored = store.get(&scope(), id, detail).await.unwrap();
                assert_eq!(stored, model.get(&scope(), id, detail).await.unwrap());
            }
            assert_eq!(
                store.children(&scope(), id).await.unwrap(),
                model.children(&scope(), id).await.unwrap()
            );
        }
        for session in 0..4 {
            let mut query = SnapshotQuery::of(format!("s{session}").into());
            let latest = store
                .latest(&scope(), &query.session, Detail::Whole)
                .await
                .unwrap();
            assert_eq!(
                latest,
                model
                    .latest(&scope(), &query.session, Detail::Whole)
                    .await
                    .unwrap()
            );
            for (order, orphaned) in [(Order::Newest, false), (Order::Oldest, true)] {
                (query.order, query.orphaned, query.limit) = (order, orphaned, 3);
                let page = store.list(&scope(), &query).await.unwrap();
                assert_eq!(page, model.list(&scope(), &query).await.unwrap());
                query.after = page.next;
                assert_eq!(
                    store.list(&scope(), &query).await.unwrap(),
                    model.list(&scope(), &query).await.unwrap()
                );
                query.after = None;
            }
        }
        let sessions = SessionQuery::default();
        assert_eq!(
            store.sessions(&scope(), &sessions).await.unwrap(),
            model.sessions(&scope(), &sessions).await.unwrap()
        );
        let found = store.verify().await.unwrap();
        assert!(found.is_clean(), "{:#?}", found.problems);
    }
}

fn alter(state: &mut SessionState, change: &Change) {
    match change {
        Change::Nothing => {}
        Change::Custom(count) => {
            let old = state
                .custom
                .take()
                .map_or_else(|| json!({}), |old| (*old).clone());
            let mut new = if old.is_object() { old } else { json!({}) };
            new[format!("shelf {}", count % 7)] =
                json!({"jars": count, "label": "pickled leeks ".repeat(20)});
            state.custom = Some(Arc::new(new));
        }
        Change::Artifact(name) => {
            let text = format!("{name} {}", "carrot ".repeat(usize::from(*name) * 30));
            Arc::make_mut(&mut state.artifacts).push(Artifact::text(format!("a{name}"), text));
        }
        Change::Everything => {
            state.custom = None;
            state.artifacts = Arc::default();
            state.prompt_input = Some(Arc::new(json!({"tone": "kind"})));
            state.session_id = Some("s1".into());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_step_leaves_both_stores_equal(steps in prop::collection::vec(step(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut program = Program::new().await;
            for step in &steps {
                program.run(step).await;
                program.compare().await;
            }
        });
    }
}
