//! The check of histories passes a correct store and detects defects.

use std::sync::Arc;

use everturn_agent::SnapshotIds;
use everturn_agent::store::MemoryStore;
use everturn_testkit::certify::defects::{Defect, DefectiveStore};
use everturn_testkit::histories::{Return, Step, check_program};

/// A program in which every kind of step has an effect.
fn program() -> Vec<Step> {
    let turn = |session, text| Step::Turn { session, text };
    vec![
        turn(0, 0),
        turn(0, 1),
        Step::Resume { snapshot: 0, text: 2 },
        Step::Overlap {
            snapshot: 1,
            beside: 2,
            text: 9,
        },
        Step::Overlap {
            snapshot: 3,
            beside: 3,
            text: 10,
        },
        Step::Label {
            snapshot: 0,
            label: 1,
            off: false,
        },
        Step::Annotate { snapshot: 1, note: 1 },
        Step::Fork { snapshot: 1 },
        turn(3, 3),
        Step::Export {
            session: 0,
            back: Return::Refused,
        },
        Step::DeleteSnapshot { snapshot: 1 },
        Step::Copy { session: 0 },
        Step::AddPending { session: 0 },
        turn(0, 4),
        Step::Export {
            session: 0,
            back: Return::Renamed,
        },
        Step::Export {
            session: 0,
            back: Return::AfterDeletion,
        },
        Step::Resume {
            snapshot: 0,
            text: 48,
        },
        Step::Export {
            session: 0,
            back: Return::Replacing,
        },
        Step::Rewind { snapshot: 0, text: 3 },
        Step::Export {
            session: 0,
            back: Return::Renamed,
        },
        Step::DeleteBranch { snapshot: 0 },
        turn(1, 5),
        turn(1, 6),
        turn(1, 7),
        Step::Retain {
            age: None,
            count: Some(2),
            even_labelled: false,
        },
        Step::Retain {
            age: Some(3),
            count: None,
            even_labelled: false,
        },
        Step::Retain {
            age: Some(0),
            count: None,
            even_labelled: true,
        },
        Step::DeleteSession { session: 1 },
    ]
}

#[tokio::test]
async fn the_store_in_memory_keeps_histories() {
    for ids in [SnapshotIds::Uuid, SnapshotIds::ContentAddressed] {
        check_program(Arc::new(MemoryStore::new()), ids, &program())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_store_that_only_reports_a_deletion_is_detected() {
    let store = Arc::new(DefectiveStore::new(Defect::IdleDeletion));

    let found = check_program(store, SnapshotIds::Uuid, &program())
        .await
        .unwrap_err();

    assert_eq!(found.step, 10, "{found}");
}

#[tokio::test]
async fn a_store_that_forgets_where_a_fork_came_from_is_caught() {
    let store = Arc::new(DefectiveStore::new(Defect::ForgetsUnknownFields));

    let found = check_program(store, SnapshotIds::Uuid, &program())
        .await
        .unwrap_err();

    assert_eq!(found.step, 7, "{found}");
}
