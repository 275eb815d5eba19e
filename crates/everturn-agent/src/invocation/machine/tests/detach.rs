//! The way into the background.

use super::*;

#[test]
fn a_detach_silences_the_client_stream_before_its_input_can_run() {
    let mut machine = after(attached(), [Event::NextInput]);

    assert_eq!(
        machine.take(Event::Detach(vec!["one"])),
        [
            Command::SilenceClient,
            Command::WritePending { inputs: vec!["one"] }
        ]
    );
    assert_eq!(
        machine.take(Event::PendingWritten),
        [
            Command::StartHeartbeat,
            Command::SubscribeStatus,
            Command::Resolve(Resolution::Detached),
            start_in_background("one"),
        ]
    );
}

#[test]
fn the_pending_snapshot_records_every_input_that_is_not_committed() {
    let mut machine = after(in_turn(), [Event::Input("two")]);

    assert_eq!(
        machine.take(Event::Detach(vec!["three"])),
        [
            Command::SilenceClient,
            Command::WritePending {
                inputs: vec!["one", "two", "three"]
            },
        ]
    );
}

#[test]
fn a_detach_alone_starts_no_turn() {
    let mut machine = after(attached(), [Event::NextInput, Event::Detach(vec![])]);

    assert_eq!(
        machine.take(Event::PendingWritten),
        [
            Command::StartHeartbeat,
            Command::SubscribeStatus,
            Command::Resolve(Resolution::Detached),
            Command::EndInput(EndOfInput::Closed),
        ]
    );
}

#[test]
fn a_turn_end_write_in_flight_lands_before_the_pending_snapshot_is_written() {
    let mut machine = committing();

    assert_eq!(machine.take(Event::Detach(vec!["two"])), [Command::SilenceClient]);
    assert_eq!(
        machine.take(COMMITTED),
        [
            Command::SettleTurn(Ok(())),
            Command::WritePending { inputs: vec!["two"] }
        ]
    );
}

#[test]
fn a_turn_end_write_that_fails_under_a_detach_fails_the_turn_only() {
    let mut machine = after(committing(), [Event::Detach(vec!["two"])]);

    assert_eq!(
        machine.take(Event::CommitFailed("disk full")),
        [
            Command::SettleTurn(Err("disk full")),
            Command::WritePending { inputs: vec!["two"] },
        ]
    );
}

#[test]
fn a_turn_that_ends_while_the_pending_snapshot_is_written_gets_no_snapshot_and_no_turn_end() {
    let mut machine = after(in_turn(), [Event::Detach(vec!["two"])]);

    assert_eq!(machine.take(SUCCEEDED), [Command::SettleTurn(Ok(()))]);
    assert_eq!(machine.take(Event::NextInput), []);
    assert_eq!(
        machine.take(Event::PendingWritten).last(),
        Some(&record(&["two"])),
        "the snapshot still counts it among those to be run"
    );
    assert_eq!(
        machine.take(Event::ProgressRecorded),
        [start_in_background("two")]
    );
}

#[test]
fn a_turn_that_did_not_begin_before_a_detach_runs_in_the_background() {
    let mut machine = after(
        in_turn(),
        [
            Event::Detach(vec!["two"]),
            Event::TurnRefused("one"),
            Event::NextInput,
        ],
    );

    assert_eq!(
        machine.take(Event::PendingWritten).last(),
        Some(&start_in_background("one"))
    );
}

#[test]
fn asking_again_for_a_turn_that_is_on_its_way_is_asking_once() {
    let mut machine = after(
        in_turn(),
        [Event::NextInput, Event::Detach(vec!["two"]), Event::NextInput],
    );

    assert_eq!(
        machine.take(Event::PendingWritten),
        [
            Command::StartHeartbeat,
            Command::SubscribeStatus,
            Command::Resolve(Resolution::Detached)
        ]
    );
    assert_eq!(machine.take(Event::NextInput), []);
}

#[test]
fn a_detach_read_before_the_function_finished_wins() {
    let mut machine = after(in_turn(), [Event::Detach(vec![]), SUCCEEDED, RETURNED]);

    assert_eq!(
        machine.take(Event::PendingWritten),
        [
            Command::Resolve(Resolution::Detached),
            Command::Finalize(Ending::Completed)
        ]
    );
    assert_eq!(machine.take(Event::FinalizeWritten), [Command::Release]);
}

#[test]
fn a_detach_read_before_the_output_is_out_still_leaves_a_snapshot() {
    let mut machine = after(attached(), [Event::Returned(Err("boom"))]);

    assert_eq!(
        machine.take(Event::Detach(vec!["one"])),
        [Command::SilenceClient, Command::WritePending { inputs: vec![] }]
    );
    assert_eq!(
        machine.take(Event::PendingWritten),
        [
            Command::Resolve(Resolution::Detached),
            Command::Finalize(Ending::Failed("boom"))
        ]
    );
}

#[test]
fn a_detach_after_a_return_waits_for_the_last_commit() {
    let mut machine = after(committing(), [RETURNED, Event::Detach(vec!["two"])]);

    assert_eq!(
        machine.take(COMMITTED),
        [
            Command::SettleTurn(Ok(())),
            Command::WritePending { inputs: vec![] }
        ]
    );
}

#[test]
fn a_client_that_leaves_after_its_detach_was_read_does_not_cancel_the_work() {
    let mut machine = after(in_turn(), [Event::Detach(vec![])]);

    assert_eq!(machine.take(Event::ClientGone("disconnected")), []);
    assert_eq!(
        machine.take(Event::PendingWritten).last(),
        Some(&Command::Resolve(Resolution::Detached))
    );
}

#[test]
fn a_transform_that_fails_after_a_detach_fails_nothing() {
    let mut machine = after(in_turn(), [Event::Detach(vec![])]);

    assert_eq!(machine.take(Event::TransformFailed("leak")), []);
    assert_eq!(
        machine.take(Event::PendingWritten).last(),
        Some(&Command::Resolve(Resolution::Detached))
    );
}

#[test]
fn no_input_is_read_after_a_detach() {
    let mut machine = in_background();

    assert_eq!(machine.take(Event::Input("three")), []);
    assert_eq!(machine.take(Event::Detach(vec!["four"])), []);
    assert_eq!(machine, in_background());
}

#[test]
fn a_detach_without_a_store_cancels_the_work_and_fails_the_output() {
    let mut machine = after(
        Machine::new(StoreSupport::None),
        [Event::NextInput, Event::Input("one")],
    );

    assert_eq!(
        machine.take(Event::Detach(vec![])),
        [Command::SilenceClient, cancel(Cause::DetachWithoutStore)]
    );
    assert_eq!(
        machine.take(Event::Returned(Err("cancelled"))),
        resolve(Resolution::Failed(Cause::DetachWithoutStore))
    );
}

#[test]
fn a_detach_on_a_store_that_cannot_push_fails_the_output() {
    let mut machine = after(
        Machine::new(StoreSupport::WithoutSubscription),
        [Event::Detach(vec!["one"])],
    );

    assert_eq!(
        machine.take(RETURNED),
        resolve(Resolution::Failed(Cause::DetachWithoutSubscription))
    );
}

#[test]
fn a_refused_detach_after_the_function_succeeded_still_fails_the_output() {
    let mut machine = after(Machine::new(StoreSupport::None), [RETURNED]);

    assert_eq!(
        machine.take(Event::Detach(vec![])),
        silently_resolve(Resolution::Failed(Cause::DetachWithoutStore))
    );
}

#[test]
fn a_pending_snapshot_that_cannot_be_written_cancels_the_work_and_fails_the_output() {
    let mut machine = after(in_turn(), [Event::Detach(vec!["two"])]);

    assert_eq!(
        machine.take(Event::PendingFailed("disk full")),
        [cancel(Cause::PendingSnapshot("disk full"))]
    );
    assert_eq!(machine.take(SUCCEEDED), [Command::SettleTurn(Ok(()))]);
    assert_eq!(
        machine.take(Event::NextInput),
        [Command::EndInput(EndOfInput::Cancelled)]
    );
    assert_eq!(
        machine.take(RETURNED),
        resolve(Resolution::Failed(Cause::PendingSnapshot("disk full")))
    );
}

#[test]
fn a_pending_snapshot_that_fails_for_a_client_that_left_is_an_error() {
    let mut machine = after(
        in_turn(),
        [
            Event::Detach(vec![]),
            Event::ClientGone("disconnected"),
            Event::PendingFailed("disk full"),
        ],
    );

    assert_eq!(
        machine.take(RETURNED),
        resolve(Resolution::Rejected(Cause::PendingSnapshot("disk full")))
    );
}
