//! The snapshot of an invocation's end: after the function returned, before the output.

use super::*;

#[test]
fn the_end_is_saved_before_the_last_chunks_are_awaited() {
    let mut machine = attached().keeping(true, false);

    assert_eq!(machine.take(RETURNED), [Command::CommitEnd]);
    assert_eq!(machine.take(END_COMMITTED), [Command::Drain]);
    assert_eq!(machine.take(Event::Drained), resolve(Resolution::Completed));
}

#[test]
fn the_end_of_a_function_that_failed_is_not_saved() {
    let mut machine = attached().keeping(true, false);

    assert_eq!(machine.take(Event::Returned(Err("boom"))), [Command::Drain]);
}

#[test]
fn the_end_is_saved_after_the_last_turn() {
    let mut machine = after(
        attached().keeping(true, false),
        [Event::NextInput, Event::Input("one"), SUCCEEDED, RETURNED],
    );

    assert_eq!(machine.take(COMMITTED).last(), Some(&Command::CommitEnd));
}

#[test]
fn an_end_that_cannot_be_saved_fails_the_output() {
    let mut machine = concluding();

    assert_eq!(machine.take(Event::CommitFailed("disk full")), [Command::Drain]);
    assert_eq!(
        machine.take(Event::Drained),
        resolve(Resolution::Failed(Cause::Function("disk full")))
    );
}

#[test]
fn a_client_that_leaves_while_the_end_is_saved_is_answered_after_it() {
    let mut machine = concluding();

    assert_eq!(
        machine.take(Event::ClientGone("disconnected")),
        [Command::SilenceClient]
    );
    assert_eq!(
        machine.take(END_COMMITTED),
        resolve(Resolution::Rejected(Cause::ClientGone("disconnected")))
    );
}

#[test]
fn a_detach_while_the_end_is_saved_still_leaves_a_snapshot() {
    let mut machine = concluding();

    assert_eq!(machine.take(Event::Detach(vec!["one"])), [Command::SilenceClient]);
    assert_eq!(
        machine.take(Event::CommitFailed("disk full")),
        [Command::WritePending { inputs: vec![] }]
    );
    assert_eq!(
        machine.take(Event::PendingWritten),
        [
            Command::Resolve(Resolution::Detached),
            Command::Finalize(Ending::Completed)
        ]
    );
}

#[test]
fn a_refused_detach_while_the_end_is_saved_fails_the_output() {
    let mut machine = after(
        Machine::new(StoreSupport::WithoutSubscription).keeping(true, false),
        [RETURNED, Event::Detach(vec![])],
    );

    assert_eq!(
        machine.take(END_COMMITTED),
        resolve(Resolution::Failed(Cause::DetachWithoutSubscription))
    );
}
