//! Snapshots in the middle of a turn: after the tools have answered, before the model sees the answers.

use super::*;

const SAVED: Order = Command::SettleRound(Ok(()));

fn write_pending(inputs: Vec<&'static str>) -> Order {
    Command::WritePending { inputs }
}

#[test]
fn a_generation_continues_when_its_snapshot_is_durable() {
    let mut machine = in_turn();

    assert_eq!(machine.take(Event::RoundEnded), [Command::CommitRound]);
    assert_eq!(machine.take(ROUND_COMMITTED), [SAVED]);
    assert_eq!(machine, in_turn());
}

#[test]
fn a_snapshot_that_cannot_be_written_fails_its_generation() {
    let mut machine = saving();

    assert_eq!(
        machine.take(Event::CommitFailed("disk full")),
        [Command::SettleRound(Err("disk full"))]
    );
    assert_eq!(
        machine.take(FAILED),
        [
            Command::SendTurnEnd(TurnOutcome::Failed),
            Command::SettleTurn(Ok(()))
        ]
    );
}

#[test]
fn generations_side_by_side_have_their_snapshots_one_after_the_other() {
    let mut machine = saving();

    assert_eq!(machine.take(Event::RoundEnded), []);
    assert_eq!(machine.take(ROUND_COMMITTED), [SAVED, Command::CommitRound]);
    assert_eq!(machine.take(ROUND_COMMITTED), [SAVED]);
}

#[test]
fn a_turn_that_ends_while_a_snapshot_inside_it_is_written_is_saved_after_it() {
    let mut machine = after(saving(), [Event::RoundEnded]);

    assert_eq!(machine.take(SUCCEEDED), []);
    assert_eq!(machine.take(ROUND_COMMITTED), [SAVED, SAVED, Command::CommitTurn]);
}

#[test]
fn a_turn_that_fails_while_a_snapshot_inside_it_is_written_ends_after_it() {
    let mut machine = after(saving(), [FAILED, Event::NextInput]);

    assert_eq!(machine.take(Event::Input("two")), []);
    assert_eq!(
        machine.take(ROUND_COMMITTED),
        [
            SAVED,
            Command::SendTurnEnd(TurnOutcome::Failed),
            Command::SettleTurn(Ok(())),
            start("two"),
        ]
    );
}

#[test]
fn a_function_that_returns_while_a_snapshot_inside_its_turn_is_written_waits_for_it() {
    let mut machine = saving();

    assert_eq!(machine.take(RETURNED), []);
    assert_eq!(
        machine.take(Event::CommitFailed("disk full")),
        [
            Command::SettleRound(Err("disk full")),
            Command::SendTurnEnd(TurnOutcome::Failed),
            Command::Drain,
        ]
    );
}

#[test]
fn the_pending_snapshot_continues_from_the_snapshot_inside_the_turn() {
    let mut machine = saving();

    assert_eq!(machine.take(Event::Detach(vec!["two"])), [Command::SilenceClient]);
    assert_eq!(
        machine.take(ROUND_COMMITTED),
        [SAVED, write_pending(vec!["one", "two"])]
    );
    assert_eq!(machine.take(Event::RoundEnded), [SAVED]);
}

#[test]
fn a_turn_that_ends_before_the_pending_snapshot_is_begun_has_a_snapshot_of_its_own() {
    let mut machine = after(saving(), [Event::Detach(vec!["two"]), SUCCEEDED]);

    assert_eq!(machine.take(ROUND_COMMITTED), [SAVED, Command::CommitTurn]);
    assert_eq!(
        machine.take(COMMITTED),
        [Command::SettleTurn(Ok(())), write_pending(vec!["two"])]
    );
}

#[test]
fn a_detach_is_carried_out_also_if_the_snapshot_inside_the_turn_fails() {
    let mut machine = after(saving(), [Event::Detach(vec![]), FAILED]);

    assert_eq!(
        machine.take(Event::CommitFailed("disk full")),
        [
            Command::SettleRound(Err("disk full")),
            Command::SettleTurn(Ok(())),
            write_pending(vec![]),
        ]
    );
}

#[test]
fn a_snapshot_inside_a_turn_lands_although_the_client_left() {
    let mut machine = saving();

    assert_eq!(
        machine.take(Event::ClientGone("disconnected")),
        [Command::SilenceClient, cancel(Cause::ClientGone("disconnected"))]
    );
    assert_eq!(machine.take(Event::Returned(Err("cancelled"))), []);
    assert_eq!(
        machine.take(ROUND_COMMITTED),
        [
            SAVED,
            Command::Resolve(Resolution::Rejected(Cause::Function("cancelled"))),
            Command::Release,
        ]
    );
}

#[test]
fn a_turn_that_succeeds_though_its_client_left_is_saved_after_the_snapshot_inside_it() {
    let mut machine = after(saving(), [Event::ClientGone("disconnected"), SUCCEEDED]);

    assert_eq!(machine.take(ROUND_COMMITTED), [SAVED, Command::CommitTurn]);
}

#[test]
fn no_snapshot_is_written_inside_a_turn_of_the_background() {
    let mut machine = in_background();

    assert_eq!(machine.take(Event::RoundEnded), [SAVED]);
}

#[test]
fn no_snapshot_is_written_inside_a_turn_that_was_cancelled() {
    let mut machine = after(in_turn(), [Event::ClientGone("disconnected")]);

    assert_eq!(machine.take(Event::RoundEnded), [SAVED]);
}

#[test]
fn no_snapshot_is_written_for_a_generation_that_outlives_its_turn() {
    let mut machine = after(in_turn(), [SUCCEEDED]);

    assert_eq!(machine.take(Event::RoundEnded), [SAVED]);
}
