use std::collections::BTreeSet;

use everturn_ai::Message;
use everturn_core::Status;
use serde_json::{Value, json};

use super::*;
use crate::storage::snapshot::{BackgroundRun, MAX_LABELS};
use crate::{SnapshotEvent, SnapshotId};

/// The table of the module's text.
const TABLE: &str = include_str!("../transitions.md");

const STATUSES: [&str; 7] = [
    "no snapshot",
    "pending",
    "aborting",
    "aborted",
    "aborted, over",
    "completed",
    "failed",
];

const LEASES: [&str; 4] = ["ours", "another's", "none", "unreadable"];

/// The name of a transition in the table, and the snapshot to which it is applied.
type Case = (&'static str, fn(&mut Snapshot), Transition);

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

const CREATED: i64 = 1_000;
const BEAT: i64 = 2_000;
const NOW: i64 = 3_000;

fn ours() -> Lease {
    Lease::first()
}

fn state(text: &str) -> SessionState {
    SessionState {
        messages: [Message::user(text)].into_iter().collect(),
        ..SessionState::default()
    }
}

fn background_run(lease: Lease) -> BackgroundRun {
    BackgroundRun {
        agent: "chef".into(),
        lease,
        attempts: 2,
        turns: 1,
        inputs: vec!["soup".into()],
        turn: None,
        context: serde_json::Map::new(),
        tenant: None,
        principal: None,
        of_client: false,
        by_program: false,
        used_before: None,
        used_in_turn: None,
        extra: serde_json::Map::new(),
    }
}

fn rewind(keep: &str) -> Rewind {
    Rewind::new(keep.into(), None)
}

/// The snapshot with a note that this version cannot read.
fn with_unreadable(snapshot: &mut Snapshot, key: &str) {
    let mut stored = serde_json::to_value(&*snapshot).unwrap();
    stored[key] = json!({"format": 2});
    *snapshot = serde_json::from_value(stored).unwrap();
}

fn snapshot(status: &str, lease: &str) -> Option<Snapshot> {
    let (status, finish_reason) = match status {
        "no snapshot" => return None,
        "pending" => (SnapshotStatus::Pending, None),
        "aborting" => (SnapshotStatus::Aborting, None),
        "aborted" => (SnapshotStatus::Aborted, None),
        "aborted, over" => (SnapshotStatus::Aborted, Some(AgentFinishReason::Aborted)),
        "completed" => (SnapshotStatus::Completed, None),
        "failed" => (SnapshotStatus::Failed, None),
        other => panic!("'{other}' is no status"),
    };
    let mut snapshot = Snapshot {
        status,
        finish_reason,
        heartbeat_at: Some(second(BEAT)),
        event: Some(SnapshotEvent::InvocationEnd),
        state: Some(state("before")),
        ..Snapshot::new("it".into(), "s".into(), second(CREATED))
    };
    match lease {
        "ours" => snapshot.set_background_run(background_run(ours())),
        "another's" => snapshot.set_background_run(background_run(ours().next())),
        "none" => {}
        "unreadable" => with_unreadable(&mut snapshot, "backgroundRun"),
        other => panic!("'{other}' is no lease"),
    }
    Some(snapshot)
}

fn created(id: &str, text: &str) -> Box<Snapshot> {
    Box::new(Snapshot {
        state: Some(state(text)),
        ..Snapshot::new(id.into(), "s".into(), second(NOW))
    })
}

fn finish_as(status: SnapshotStatus) -> Transition {
    Transition::Finish {
        lease: ours(),
        end: Box::new(RunEnd {
            output: None,
            usage: None,
            turn: None,
            status,
            finish_reason: Some(AgentFinishReason::Stop),
            error: None,
            state: state("after"),
        }),
        now: second(NOW),
    }
}

fn take_over_after(silent_since: i64, attempts: u32) -> Transition {
    Transition::TakeOver {
        lapsed: ours(),
        silent_since: second(silent_since),
        attempts,
        begun_at: Some(Box::new(state("beginning"))),
        now: second(NOW),
    }
}

fn annotate(annotation: Annotation) -> Transition {
    Transition::Annotate {
        annotation,
        now: second(NOW),
    }
}

fn as_it_is(_: &mut Snapshot) {}

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let now = second(NOW);
    let create = |text, named_by_content| Transition::Create { snapshot: created("it", text), named_by_content };
    let label = || Annotation::Label("x".into());
    vec![
        ("create", as_it_is, create("before", false)),
        ("create, named by content, the same state", as_it_is, create("before", true)),
        ("create, named by content, another state", as_it_is, create("other", true)),
        ("import", as_it_is, Transition::Import { snapshot: created("it", "before") }),
        ("heartbeat", as_it_is, Transition::Heartbeat { lease: ours(), now }),
        ("advance", as_it_is, advance_by("bread")),
        ("finish as completed", as_it_is, finish_as(SnapshotStatus::Completed)),
        ("finish as failed", as_it_is, finish_as(SnapshotStatus::Failed)),
        ("finish as aborted", as_it_is, finish_as(SnapshotStatus::Aborted)),
        ("abort", as_it_is, Transition::Abort { now }),
        ("take over", as_it_is, take_over_after(BEAT + 1, 3)),
        ("take over, begun too often", as_it_is, take_over_after(BEAT + 1, 2)),
        ("take over, a heartbeat since", as_it_is, take_over_after(BEAT, 3)),
        ("take over, never a heartbeat", |it| it.heartbeat_at = None, take_over_after(BEAT + 1, 3)),
        ("give up", as_it_is, Transition::GiveUp { lease: ours(), error: Error::data_loss("gone"), now }),
        ("decide a rewind", as_it_is, Transition::DecideRewind { rewind: rewind("a"), recovers: false }),
        ("decide a rewind that recovers", |it| it.orphaned = true, Transition::DecideRewind { rewind: rewind("a"), recovers: true }),
        ("orphan", as_it_is, Transition::Orphan { orphaned: true }),
        ("orphan, orphaned before", |it| it.orphaned = true, Transition::Orphan { orphaned: true }),
        ("orphan, orphaned before, a rewind unfinished", |it| { it.orphaned = true; with_unreadable(it, "unfinishedRewind"); }, Transition::Orphan { orphaned: true }),
        ("recover", |it| it.orphaned = true, Transition::Orphan { orphaned: false }),
        ("recover, not orphaned", as_it_is, Transition::Orphan { orphaned: false }),
        ("finish a rewind", |it| it.set_unfinished_rewind(rewind("a")), Transition::FinishRewind { rewind: rewind("a"), orphaned: false }),
        ("finish a rewind, none unfinished", as_it_is, Transition::FinishRewind { rewind: rewind("a"), orphaned: true }),
        ("finish a rewind, another unfinished", |it| it.set_unfinished_rewind(rewind("b")), Transition::FinishRewind { rewind: rewind("a"), orphaned: true }),
        ("finish a rewind, unreadable", |it| with_unreadable(it, "unfinishedRewind"), Transition::FinishRewind { rewind: rewind("a"), orphaned: true }),
        ("label", as_it_is, annotate(label())),
        ("label, there before", |it| it.labels.push("x".into()), annotate(label())),
        ("label, one too many", |it| it.labels = vec!["y".into(); MAX_LABELS], annotate(label())),
        ("unlabel", |it| it.labels.push("x".into()), annotate(Annotation::Unlabel("x".into()))),
        ("unlabel, no such label", |it| it.labels.push("y".into()), annotate(Annotation::Unlabel("x".into()))),
        ("note", as_it_is, annotate(Annotation::Note(Some("x".into())))),
        ("note, the same", |it| it.note = Some("x".into()), annotate(Annotation::Note(Some("x".into())))),
    ]
}

fn advance_by(input: &str) -> Transition {
    Transition::Advance {
        lease: ours(),
        progress: Box::new(Progress {
            turns: 2,
            inputs: vec![input.into()],
            state: state("after"),
            usage: None,
        }),
        now: second(NOW),
    }
}

/// The word for an outcome in the table.
fn word(outcome: &Result<Option<Snapshot>>) -> String {
    match outcome {
        Ok(None) => "–".to_owned(),
        Ok(Some(written)) => match serde_json::to_value(written.status).unwrap() {
            Value::String(status) => status,
            other => panic!("{other}"),
        },
        Err(error) => match serde_json::to_value(error.status()).unwrap() {
            Value::String(status) => status,
            other => panic!("{other}"),
        },
    }
}

/// The cells of the table: transition, lease, status, outcome.
fn cells() -> Vec<[String; 4]> {
    let mut rows = TABLE
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split(" | ").map(str::to_owned).collect::<Vec<_>>());
    let header = rows.next().unwrap();
    let mut cells = Vec::new();
    for row in rows {
        assert_eq!(row.len(), header.len(), "{row:?}");
        let leases = match row[1].as_str() {
            "any" => LEASES.to_vec(),
            some => some.split(", ").collect(),
        };
        for lease in leases {
            for (status, outcome) in header.iter().zip(&row).skip(2) {
                cells.push([row[0].clone(), lease.to_owned(), status.clone(), outcome.clone()]);
            }
        }
    }
    cells
}

#[test]
fn every_cell_of_the_table_is_what_the_code_does() {
    let cases = cases();
    let mut wrong = Vec::new();

    for [transition, lease, status, expected] in cells() {
        let case = cases.iter().find(|(name, ..)| *name == transition);
        let (_, prepare, transition) = case.unwrap_or_else(|| panic!("no case is called '{transition}'"));
        let mut current = snapshot(&status, &lease);
        if let Some(current) = &mut current {
            prepare(current);
        }
        let outcome = word(&transition.apply(current.as_ref()));
        if outcome != expected {
            wrong.push(format!(
                "{transition:?} × {lease} × {status}: {outcome}, not {expected}"
            ));
        }
    }

    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_table_has_every_cell_once() {
    let mut expected = BTreeSet::new();
    for (name, ..) in cases() {
        for lease in LEASES {
            for status in STATUSES {
                expected.insert([name, lease, status].map(str::to_owned));
            }
        }
    }

    let cells = cells();
    let found: BTreeSet<_> = cells
        .iter()
        .map(|[name, lease, status, _]| [name.clone(), lease.clone(), status.clone()])
        .collect();

    assert_eq!(found.len(), cells.len(), "a cell is there twice");
    assert_eq!(found, expected);
}

fn run() -> Snapshot {
    snapshot("pending", "ours").unwrap()
}

fn applied(transition: &Transition, current: &Snapshot) -> Snapshot {
    transition.apply(Some(current)).unwrap().unwrap()
}

#[test]
fn a_heartbeat_changes_nothing_but_its_time() {
    let beat = Transition::Heartbeat {
        lease: ours(),
        now: second(NOW),
    };

    let beaten = applied(&beat, &run());

    let heartbeat_at = Some(second(NOW));
    assert_eq!(
        beaten,
        Snapshot {
            heartbeat_at,
            ..run()
        }
    );
}

#[test]
fn an_advance_records_what_is_left_and_gives_it_all_attempts() {
    let advanced = applied(&advance_by("bread"), &run());

    let mut expected = Snapshot {
        heartbeat_at: Some(second(NOW)),
        state: Some(state("after")),
        ..run()
    };
    expected.set_background_run(BackgroundRun {
        attempts: 1,
        turns: 2,
        inputs: vec!["bread".into()],
        ..background_run(ours())
    });
    assert_eq!(advanced, expected);
}

#[test]
fn an_advance_forgets_the_turn_that_was_in_progress() {
    let mut begun = run();
    begun.set_background_run(BackgroundRun {
        turn: Some(crate::storage::snapshot::OpenTurn::new("j", 1)),
        ..background_run(ours())
    });

    let advanced = applied(&advance_by("bread"), &begun);

    assert_eq!(advanced.background_run().unwrap().unwrap().turn, None);
}

#[test]
fn a_finished_run_holds_its_state_and_nothing_for_workers() {
    let error = Error::internal("burnt").for_operator();
    let finish = Transition::Finish {
        lease: ours(),
        end: Box::new(RunEnd {
            output: None,
            usage: None,
            turn: None,
            status: SnapshotStatus::Failed,
            finish_reason: Some(AgentFinishReason::Failed),
            error: Some(error.clone()),
            state: state("after"),
        }),
        now: second(NOW),
    };

    let finished = applied(&finish, &run());

    let expected = Snapshot {
        status: SnapshotStatus::Failed,
        finish_reason: Some(AgentFinishReason::Failed),
        error: Some(error),
        updated_at: Some(second(NOW)),
        heartbeat_at: None,
        state: Some(state("after")),
        ..snapshot("pending", "none").unwrap()
    };
    assert_eq!(finished, expected);
}

#[test]
fn an_aborted_run_stays_aborted_and_holds_the_state_it_came_to() {
    let aborted = applied(&Transition::Abort { now: second(BEAT) }, &run());

    let finished = applied(&finish_as(SnapshotStatus::Completed), &aborted);

    let status = SnapshotStatus::Aborted;
    let updated_at = Some(second(BEAT));
    assert_eq!(
        aborted,
        Snapshot {
            updated_at,
            status,
            ..run()
        }
    );
    let expected = Snapshot {
        status,
        finish_reason: Some(AgentFinishReason::Aborted),
        updated_at: Some(second(NOW)),
        heartbeat_at: None,
        state: Some(state("after")),
        ..snapshot("pending", "none").unwrap()
    };
    assert_eq!(finished, expected);
}

#[test]
fn a_takeover_fences_the_worker_before_it_even_in_one_process() {
    let taken = applied(&take_over_after(BEAT + 1, 3), &run());

    let mut expected = Snapshot {
        heartbeat_at: Some(second(NOW)),
        ..run()
    };
    expected.set_background_run(BackgroundRun {
        attempts: 3,
        ..background_run(ours().next())
    });
    assert_eq!(taken, expected);
    assert_ne!(taken.lease().unwrap(), Some(ours()));
}

#[test]
fn a_run_that_was_begun_too_often_and_came_nowhere_holds_the_state_at_which_it_began() {
    let begun = Snapshot { state: None, ..run() };

    let given_up = applied(&take_over_after(BEAT + 1, 2), &begun);
    let taken = applied(&take_over_after(BEAT + 1, 3), &begun);

    assert_eq!(given_up.status, SnapshotStatus::Failed);
    assert_eq!(given_up.state, Some(state("beginning")));
    assert_eq!((taken.status, taken.state), (SnapshotStatus::Pending, None));
}

#[test]
fn a_run_that_is_given_up_keeps_the_state_it_came_to() {
    for (transition, message) in [
        (take_over_after(BEAT + 1, 2), "started 2 times"),
        (
            Transition::GiveUp {
                lease: ours(),
                error: Error::data_loss("gone"),
                now: second(NOW),
            },
            "gone",
        ),
    ] {
        let given_up = applied(&transition, &run());

        let error = given_up.error.clone().unwrap();
        assert!(error.message.contains(message), "{error:?}");
        let expected = Snapshot {
            status: SnapshotStatus::Failed,
            finish_reason: Some(AgentFinishReason::Failed),
            error: Some(error),
            updated_at: Some(second(NOW)),
            heartbeat_at: None,
            ..snapshot("pending", "none").unwrap()
        };
        assert_eq!(given_up, expected);
    }
}

#[test]
fn an_unreadable_lease_is_an_error_that_names_the_snapshot_and_the_session() {
    let unreadable = snapshot("pending", "unreadable").unwrap();
    let beat = Transition::Heartbeat {
        lease: ours(),
        now: second(NOW),
    };

    let error = beat.apply(Some(&unreadable)).unwrap_err();

    assert_eq!(error.status(), Status::DataLoss);
    assert!(
        error.message().contains("snapshot 'it' of session 's'"),
        "{error}"
    );
}

#[test]
fn a_rewind_is_decided_in_one_snapshot_and_forgotten_when_it_is_finished() {
    let tip = snapshot("completed", "none").unwrap();
    let decide = |recovers| Transition::DecideRewind {
        rewind: rewind("a"),
        recovers,
    };

    let decided = applied(&decide(false), &tip);
    let orphaned = Snapshot {
        orphaned: true,
        ..tip.clone()
    };
    let recovered = applied(&decide(true), &orphaned);
    let still_orphaned = applied(&decide(false), &orphaned);
    let left = applied(
        &Transition::FinishRewind {
            rewind: rewind("a"),
            orphaned: true,
        },
        &decided,
    );
    let marked = applied(&Transition::Orphan { orphaned: true }, &decided);

    assert_eq!(decided.unfinished_rewind().unwrap(), Some(&rewind("a")));
    assert_eq!(recovered, decided);
    assert!(still_orphaned.orphaned);
    assert_eq!(left, orphaned);
    assert_eq!(marked, orphaned);
}

#[test]
fn an_annotation_never_moves_the_time_of_the_last_change_back() {
    let completed = snapshot("completed", "none").unwrap();
    let later = Snapshot {
        updated_at: Some(second(NOW + 1)),
        ..completed.clone()
    };
    let early = Transition::Annotate {
        annotation: Annotation::Label("x".into()),
        now: second(CREATED - 1),
    };
    let label = annotate(Annotation::Label("x".into()));

    let updated_at = |transition, snapshot| applied(transition, snapshot).updated_at;

    assert_eq!(updated_at(&label, &completed), Some(second(NOW)));
    assert_eq!(updated_at(&label, &later), Some(second(NOW + 1)));
    assert_eq!(updated_at(&early, &completed), Some(second(CREATED)));
}

#[test]
fn creations_and_imports_write_the_given_snapshot() {
    let snapshot = created("it", "before");

    for transition in [
        Transition::Create {
            snapshot: snapshot.clone(),
            named_by_content: true,
        },
        Transition::Import {
            snapshot: snapshot.clone(),
        },
    ] {
        assert_eq!(transition.apply(None).unwrap(), Some(*snapshot.clone()));
    }
    assert_eq!(SnapshotId::from("it"), snapshot.snapshot_id);
}
