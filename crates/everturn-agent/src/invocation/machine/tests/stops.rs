//! Clients that leave, and transforms that fail.

use super::*;

#[test]
fn a_client_that_leaves_cancels_the_turn_and_gets_no_output() {
    let mut machine = in_turn();

    assert_eq!(
        machine.take(Event::ClientGone("disconnected")),
        [Command::SilenceClient, cancel(Cause::ClientGone("disconnected"))]
    );
    assert_eq!(machine.take(FAILED), [Command::SettleTurn(Ok(()))]);
    assert_eq!(
        machine.take(RETURNED),
        resolve(Resolution::Rejected(Cause::ClientGone("disconnected")))
    );
}

#[test]
fn an_error_of_a_function_whose_client_left_is_rejected_with_that_error() {
    let mut machine = after(in_turn(), [Event::ClientGone("disconnected")]);

    assert_eq!(
        machine.take(Event::Returned(Err("cancelled"))),
        resolve(Resolution::Rejected(Cause::Function("cancelled")))
    );
}

#[test]
fn a_turn_that_succeeds_though_its_client_left_is_still_saved() {
    let mut machine = after(in_turn(), [Event::ClientGone("disconnected")]);

    assert_eq!(machine.take(SUCCEEDED), [Command::CommitTurn]);
    assert_eq!(machine.take(RETURNED), []);
    assert_eq!(
        machine.take(COMMITTED),
        [
            Command::SettleTurn(Ok(())),
            Command::Resolve(Resolution::Rejected(Cause::ClientGone("disconnected"))),
            Command::Release,
        ]
    );
}

#[test]
fn a_commit_in_flight_when_the_client_leaves_still_lands() {
    let mut machine = after(committing(), [Event::ClientGone("disconnected"), RETURNED]);

    assert_eq!(
        machine.take(Event::CommitFailed("disk full")),
        [
            Command::SettleTurn(Err("disk full")),
            Command::Resolve(Resolution::Rejected(Cause::ClientGone("disconnected"))),
            Command::Release,
        ]
    );
}

#[test]
fn a_function_that_waits_when_the_client_leaves_is_released() {
    let mut machine = after(attached(), [Event::NextInput]);

    assert_eq!(
        machine.take(Event::ClientGone("disconnected")),
        [
            Command::SilenceClient,
            cancel(Cause::ClientGone("disconnected")),
            Command::EndInput(EndOfInput::Cancelled)
        ]
    );
    assert_eq!(
        machine.take(Event::NextInput),
        [Command::EndInput(EndOfInput::Cancelled)]
    );
}

#[test]
fn a_client_that_leaves_with_chunks_unread_is_rejected() {
    let mut machine = draining();

    assert_eq!(
        machine.take(Event::ClientGone("disconnected")),
        silently_resolve(Resolution::Rejected(Cause::ClientGone("disconnected")))
    );
}

#[test]
fn a_detach_after_the_client_left_is_not_accepted() {
    let mut machine = after(in_turn(), [Event::ClientGone("disconnected")]);

    assert_eq!(machine.take(Event::Detach(vec!["two"])), []);
}

#[test]
fn a_failing_transform_silences_the_client_stream_cancels_the_work_and_fails_the_output() {
    let mut machine = in_turn();

    assert_eq!(
        machine.take(Event::TransformFailed("leak")),
        [Command::SilenceClient, cancel(Cause::Transform("leak"))]
    );
    assert_eq!(machine.take(FAILED), [Command::SettleTurn(Ok(()))]);
    assert_eq!(
        machine.take(Event::Returned(Err("cancelled"))),
        resolve(Resolution::Failed(Cause::Transform("leak")))
    );
}

#[test]
fn the_first_transform_error_wins() {
    let mut machine = after(
        in_turn(),
        [Event::TransformFailed("first"), Event::TransformFailed("second")],
    );

    assert_eq!(
        machine.take(RETURNED),
        resolve(Resolution::Failed(Cause::Transform("first")))
    );
}

#[test]
fn a_transform_failure_without_a_client_is_an_error() {
    let mut machine = after(
        in_turn(),
        [Event::TransformFailed("leak"), Event::ClientGone("disconnected")],
    );

    assert_eq!(
        machine.take(RETURNED),
        resolve(Resolution::Rejected(Cause::Transform("leak")))
    );
}

#[test]
fn a_transform_that_fails_on_the_last_chunks_fails_a_successful_function() {
    let mut machine = draining();

    assert_eq!(
        machine.take(Event::TransformFailed("leak")),
        silently_resolve(Resolution::Failed(Cause::Transform("leak")))
    );
}

#[test]
fn a_transform_that_fails_on_the_last_chunks_does_not_hide_the_functions_error() {
    let mut machine = after(attached(), [Event::Returned(Err("boom"))]);

    assert_eq!(
        machine.take(Event::TransformFailed("leak")),
        silently_resolve(Resolution::Failed(Cause::Function("boom")))
    );
}

#[test]
fn an_error_returned_during_a_commit_stays_the_cause_when_a_transform_fails_too() {
    let mut machine = after(
        committing(),
        [Event::Returned(Err("boom")), Event::TransformFailed("leak")],
    );

    assert_eq!(
        machine.take(COMMITTED),
        [
            Command::SettleTurn(Ok(())),
            Command::Resolve(Resolution::Failed(Cause::Function("boom"))),
            Command::Release,
        ]
    );
}
