//! Turns, inputs and outputs while a client listens.

use super::*;

#[test]
fn an_input_that_waits_starts_a_turn_when_the_function_asks() {
    let mut machine = after(attached(), [Event::Input("one")]);

    assert_eq!(machine.take(Event::NextInput), [start("one")]);
}

#[test]
fn a_function_that_waits_gets_the_next_input_when_it_arrives() {
    let mut machine = after(attached(), [Event::NextInput]);

    assert_eq!(machine.take(Event::Input("one")), [start("one")]);
}

#[test]
fn an_input_that_arrives_during_a_turn_waits_for_it_to_be_committed() {
    let mut machine = in_turn();

    assert_eq!(machine.take(Event::Input("two")), []);
    assert_eq!(machine.take(SUCCEEDED), [Command::CommitTurn]);
    assert_eq!(
        machine.take(COMMITTED),
        [
            Command::SendTurnEnd(TurnOutcome::Succeeded),
            Command::SettleTurn(Ok(()))
        ]
    );
    assert_eq!(machine.take(Event::NextInput), [start("two")]);
}

#[test]
fn a_turn_that_cannot_be_saved_fails_with_the_stores_error() {
    let mut machine = committing();

    assert_eq!(
        machine.take(Event::CommitFailed("disk full")),
        [
            Command::SendTurnEnd(TurnOutcome::Failed),
            Command::SettleTurn(Err("disk full"))
        ]
    );
}

#[test]
fn a_failed_turn_is_not_saved_and_its_end_is_sent() {
    let mut machine = in_turn();

    assert_eq!(
        machine.take(FAILED),
        [
            Command::SendTurnEnd(TurnOutcome::Failed),
            Command::SettleTurn(Ok(()))
        ]
    );
}

#[test]
fn a_function_may_continue_after_a_failed_turn_and_complete() {
    let mut machine = after(in_turn(), [Event::Input("two"), FAILED]);

    assert_eq!(machine.take(Event::NextInput), [start("two")]);

    let mut machine = after(machine, [SUCCEEDED, COMMITTED, RETURNED]);
    assert_eq!(machine.take(Event::Drained), resolve(Resolution::Completed));
}

#[test]
fn queued_inputs_are_run_before_the_end_of_input_is_reported() {
    let mut machine = after(attached(), [Event::Input("one"), Event::InputClosed]);

    assert_eq!(machine.take(Event::NextInput), [start("one")]);

    let mut machine = after(machine, [SUCCEEDED, COMMITTED]);
    assert_eq!(
        machine.take(Event::NextInput),
        [Command::EndInput(EndOfInput::Closed)]
    );
    assert_eq!(
        machine.take(Event::NextInput),
        [Command::EndInput(EndOfInput::Closed)]
    );
}

#[test]
fn a_waiting_function_is_woken_when_the_input_closes() {
    let mut machine = after(attached(), [Event::NextInput]);

    assert_eq!(
        machine.take(Event::InputClosed),
        [Command::EndInput(EndOfInput::Closed)]
    );
}

#[test]
fn an_invocation_without_turns_completes() {
    let mut machine = attached();

    assert_eq!(machine.take(RETURNED), [Command::Drain]);
    assert_eq!(machine.take(Event::Drained), resolve(Resolution::Completed));
    assert!(machine.is_released());
}

#[test]
fn an_error_of_the_function_is_a_failed_output_after_its_last_chunks() {
    let mut machine = after(in_turn(), [FAILED]);

    assert_eq!(machine.take(Event::Returned(Err("boom"))), [Command::Drain]);
    assert_eq!(
        machine.take(Event::Drained),
        resolve(Resolution::Failed(Cause::Function("boom")))
    );
}

#[test]
fn inputs_left_when_the_function_returns_are_discarded() {
    let mut machine = after(attached(), [Event::Input("one"), Event::Input("two")]);

    assert_eq!(machine.take(RETURNED), [Command::Drain]);
    assert_eq!(machine.take(Event::Input("three")), []);
    assert_eq!(machine.take(Event::Drained), resolve(Resolution::Completed));
}

#[test]
fn a_panic_inside_a_turn_ends_the_turn_for_the_client() {
    let mut machine = in_turn();

    assert_eq!(
        machine.take(Event::Returned(Err("panicked"))),
        [Command::SendTurnEnd(TurnOutcome::Failed), Command::Drain]
    );
}

#[test]
fn a_function_that_returns_during_a_commit_waits_for_it() {
    let mut machine = committing();

    assert_eq!(machine.take(RETURNED), []);
    assert_eq!(
        machine.take(COMMITTED),
        [
            Command::SendTurnEnd(TurnOutcome::Succeeded),
            Command::SettleTurn(Ok(())),
            Command::Drain
        ]
    );
}

#[test]
fn a_function_that_asks_during_a_commit_is_answered_after_it() {
    let mut machine = after(committing(), [Event::Input("two")]);

    assert_eq!(machine.take(Event::NextInput), []);
    assert_eq!(
        machine.take(COMMITTED),
        [
            Command::SendTurnEnd(TurnOutcome::Succeeded),
            Command::SettleTurn(Ok(())),
            start("two")
        ]
    );
}

#[test]
fn an_input_that_was_not_taken_keeps_its_place() {
    let mut machine = after(in_turn(), [Event::Input("two"), Event::TurnRefused("one")]);

    assert_eq!(machine.take(Event::NextInput), [start("one")]);
}

#[test]
fn asking_twice_is_asking_once() {
    let mut machine = after(attached(), [Event::NextInput, Event::NextInput]);

    assert_eq!(machine.take(Event::Input("one")), [start("one")]);
    assert_eq!(machine.take(Event::Input("two")), []);
}
