//! The turn lock: who may have the session, from when, until when.

use super::*;

/// An attached invocation whose first turn, on `"one"`, waits for the lock.
fn locking() -> Invocation {
    let mut machine = attached();
    machine.handle(Event::NextInput);
    assert_eq!(machine.handle(Event::Input("one")), [Command::TakeLock]);
    machine
}

#[test]
fn a_turn_starts_when_it_has_the_lock() {
    assert_eq!(locking().handle(Event::LockGranted), [start("one")]);
}

#[test]
fn without_a_store_there_is_nothing_to_lock() {
    let mut machine = Machine::new(StoreSupport::None);
    machine.handle(Event::NextInput);

    assert_eq!(machine.handle(Event::Input("one")), [start("one")]);
}

#[test]
fn another_invocation_may_take_the_lock_between_two_turns() {
    let mut machine = after(in_turn(), [Event::Input("two"), SUCCEEDED, Event::NextInput]);

    assert_eq!(
        machine.handle(COMMITTED),
        [
            Command::SendTurnEnd(TurnOutcome::Succeeded),
            Command::SettleTurn(Ok(())),
            Command::ReleaseLock,
            Command::TakeLock,
        ]
    );
}

#[test]
fn the_first_turn_that_is_refused_the_lock_rejects_the_invocation() {
    let mut machine = locking();

    assert_eq!(
        machine.handle(Event::LockRefused("busy")),
        [
            Command::FailTurn("busy"),
            Command::SilenceClient,
            cancel(Cause::LockRefused("busy")),
        ]
    );
    assert_eq!(
        machine.handle(Event::Returned(Err("busy"))),
        resolve(Resolution::Rejected(Cause::LockRefused("busy")))
    );
}

#[test]
fn a_later_turn_that_is_refused_the_lock_is_a_failed_turn() {
    let mut machine = after(in_turn(), [SUCCEEDED, COMMITTED, Event::Input("two")]);

    assert_eq!(machine.handle(Event::NextInput), [Command::TakeLock]);
    assert_eq!(
        machine.handle(Event::LockRefused("busy")),
        [
            Command::SendTurnEnd(TurnOutcome::Failed),
            Command::FailTurn("busy")
        ]
    );
    assert_eq!(machine.handle(RETURNED), [Command::Drain]);
}

#[test]
fn a_turn_that_did_not_begin_does_not_make_the_next_one_a_later_one() {
    let mut machine = after(in_turn(), [Event::TurnRefused("one")]);

    assert_eq!(machine.handle(Event::NextInput), [Command::TakeLock]);
    assert_eq!(
        machine.handle(Event::LockRefused("busy")).last(),
        Some(&cancel(Cause::LockRefused("busy")))
    );
}

#[test]
fn a_turn_whose_loop_is_gone_gives_the_lock_back() {
    let mut machine = in_turn();

    assert_eq!(machine.handle(Event::TurnRefused("one")), [Command::ReleaseLock]);
}

#[test]
fn a_function_that_returns_while_its_turn_waits_leaves_the_queue() {
    assert_eq!(locking().handle(RETURNED), [Command::LeaveQueue, Command::Drain]);
}

#[test]
fn a_client_that_leaves_while_its_turn_waits_takes_it_out_of_the_queue() {
    assert_eq!(
        locking().handle(Event::ClientGone("disconnected")),
        [
            Command::SilenceClient,
            Command::LeaveQueue,
            cancel(Cause::ClientGone("disconnected")),
            Command::EndInput(EndOfInput::Cancelled),
        ]
    );
}

#[test]
fn a_detach_while_a_turn_waits_takes_its_place_in_the_queue_and_runs_it_first() {
    let mut machine = locking();

    assert_eq!(
        machine.handle(Event::Detach(vec!["two"])),
        [Command::SilenceClient, Command::LetClientGo]
    );
    assert_eq!(
        machine.handle(Event::LockGranted),
        [Command::WritePending {
            inputs: vec!["one", "two"]
        }]
    );
    assert_eq!(
        machine.handle(Event::PendingWritten).last(),
        Some(&start_in_background("one"))
    );
}

#[test]
fn a_detach_between_turns_waits_for_the_lock_before_it_writes() {
    let mut machine = attached();

    assert_eq!(
        machine.handle(Event::Detach(vec!["one"])),
        [Command::SilenceClient, Command::LetClientGo, Command::TakeLock]
    );
    assert_eq!(
        machine.handle(Event::LockRefused("busy")),
        [cancel(Cause::PendingSnapshot("busy"))]
    );
}

#[test]
fn a_run_keeps_the_lock_of_the_turn_that_ended_before_its_snapshot() {
    let mut machine = after(committing(), [Event::Detach(vec!["two"])]);

    assert_eq!(
        machine.handle(COMMITTED),
        [
            Command::SettleTurn(Ok(())),
            Command::LetClientGo,
            Command::TakeLock
        ]
    );
}
