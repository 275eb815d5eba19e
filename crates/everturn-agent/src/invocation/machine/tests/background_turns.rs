//! Work without a client: heartbeats, aborts, leases, and the final write.

use super::*;

fn stop(why: Cancellation<&'static str>) -> [Order; 3] {
    [
        Command::StopHeartbeat,
        Command::UnsubscribeStatus,
        Command::CancelWork(why),
    ]
}

#[test]
fn queued_inputs_drain_as_turns_without_snapshots_and_then_the_input_ends() {
    let mut machine = in_background();

    assert_eq!(machine.take(SUCCEEDED), [Command::SettleTurn(Ok(()))]);
    assert_eq!(machine.take(Event::NextInput), [record(&["two"])]);
    assert_eq!(
        machine.take(Event::ProgressRecorded),
        [start_in_background("two")]
    );
    assert_eq!(machine.take(FAILED), [Command::SettleTurn(Ok(()))]);
    assert_eq!(
        machine.take(Event::NextInput),
        [Command::EndInput(EndOfInput::Closed)]
    );
}

#[test]
fn a_request_that_waits_for_the_record_is_answered_when_the_run_is_stopped() {
    for (event, why, ending) in [
        (
            Event::AbortSeen,
            Cancellation::Aborted,
            Command::Finalize(Ending::Aborted(Some("cancelled"))),
        ),
        (Event::LeaseLost, Cancellation::Fenced, Command::Release),
    ] {
        let mut machine = after(in_background(), [SUCCEEDED, Event::NextInput]);

        let commands = machine.take(event);

        assert_eq!(commands[..3], stop(why));
        assert_eq!(commands[3..], [Command::EndInput(EndOfInput::Cancelled)]);
        assert_eq!(machine.take(Event::ProgressRecorded), []);
        assert_eq!(machine.take(Event::Returned(Err("cancelled"))), [ending]);
    }
}

#[test]
fn a_function_that_asks_for_no_further_turn_is_not_recorded() {
    let mut machine = after(in_background(), [FAILED]);

    assert_eq!(
        machine.take(Event::Returned(Err("boom"))),
        [
            Command::StopHeartbeat,
            Command::UnsubscribeStatus,
            Command::Finalize(Ending::Failed("boom")),
        ]
    );
}

#[test]
fn the_end_of_the_function_is_written_once() {
    let mut machine = in_background();

    assert_eq!(
        machine.take(Event::Returned(Err("boom"))),
        [
            Command::StopHeartbeat,
            Command::UnsubscribeStatus,
            Command::Finalize(Ending::Failed("boom")),
        ]
    );
    assert_eq!(machine.take(Event::FinalizeWritten), [Command::Release]);
    assert!(machine.is_released());
}

#[test]
fn a_final_write_that_fails_is_not_repeated() {
    let mut machine = after(in_background(), [RETURNED]);

    assert_eq!(
        machine.take(Event::FinalizeFailed("disk full")),
        [Command::Release]
    );
}

#[test]
fn a_heartbeat_is_renewed_when_due_until_the_function_settles() {
    let mut machine = in_background();

    assert_eq!(machine.take(Event::HeartbeatDue), [Command::Beat]);
    assert_eq!(machine.take(Event::HeartbeatDue), [Command::Beat]);

    let mut machine = after(machine, [RETURNED]);
    assert_eq!(machine.take(Event::HeartbeatDue), []);
}

#[test]
fn an_abort_cancels_the_work_and_ends_the_snapshot_as_aborted() {
    let mut machine = in_background();

    assert_eq!(machine.take(Event::AbortSeen), stop(Cancellation::Aborted));
    assert_eq!(machine.take(Event::HeartbeatDue), []);
    assert_eq!(machine.take(FAILED), [Command::SettleTurn(Ok(()))]);
    assert_eq!(
        machine.take(Event::NextInput),
        [Command::EndInput(EndOfInput::Cancelled)]
    );
    assert_eq!(
        machine.take(Event::Returned(Err("cancelled"))),
        [Command::Finalize(Ending::Aborted(Some("cancelled")))]
    );
}

#[test]
fn an_abort_wins_over_a_function_that_completes_in_spite_of_it() {
    let mut machine = after(in_background(), [Event::AbortSeen, SUCCEEDED]);

    assert_eq!(machine.take(RETURNED), [Command::Finalize(Ending::Aborted(None))]);
}

#[test]
fn an_abort_during_the_final_write_is_left_to_the_store() {
    let mut machine = after(in_background(), [RETURNED]);

    assert_eq!(machine.take(Event::AbortSeen), []);
    assert_eq!(machine.take(Event::FinalizeWritten), [Command::Release]);
}

#[test]
fn a_worker_that_lost_its_lease_stops_and_writes_nothing() {
    let mut machine = in_background();

    assert_eq!(machine.take(Event::LeaseLost), stop(Cancellation::Fenced));
    assert_eq!(machine.take(RETURNED), [Command::Release]);
}

#[test]
fn a_worker_that_lost_its_lease_after_an_abort_writes_nothing() {
    let mut machine = after(in_background(), [Event::AbortSeen]);

    assert_eq!(machine.take(Event::LeaseLost), []);
    assert_eq!(machine.take(RETURNED), [Command::Release]);
}

#[test]
fn an_abort_after_the_lease_was_lost_is_left_to_the_new_owner() {
    let mut machine = after(in_background(), [Event::LeaseLost, Event::AbortSeen]);

    assert_eq!(machine.take(RETURNED), [Command::Release]);
}

#[test]
fn a_takeover_runs_the_recorded_inputs_and_answers_no_client() {
    let (mut machine, commands) = Invocation::take_over(vec!["one", "two"]);

    assert_eq!(commands, [Command::StartHeartbeat, Command::SubscribeStatus]);
    assert_eq!(machine.take(Event::NextInput), [start_in_background("one")]);
    assert_eq!(machine.take(SUCCEEDED), [Command::SettleTurn(Ok(()))]);
    assert_eq!(machine.take(Event::NextInput), [record(&["two"])]);
    assert_eq!(
        machine.take(Event::ProgressRecorded),
        [start_in_background("two")]
    );

    let mut machine = after(machine, [SUCCEEDED]);
    assert_eq!(
        machine.take(RETURNED),
        [
            Command::StopHeartbeat,
            Command::UnsubscribeStatus,
            Command::Finalize(Ending::Completed)
        ]
    );
    assert_eq!(machine.take(Event::FinalizeWritten), [Command::Release]);
}

#[test]
fn an_input_that_was_not_taken_in_the_background_keeps_its_place() {
    let (machine, _) = Invocation::take_over(vec!["one", "two"]);
    let mut machine = after(machine, [Event::NextInput, Event::TurnRefused("one")]);

    assert_eq!(machine.take(Event::NextInput), [start_in_background("one")]);
}
