//! Sending without a receiver: completion and close are distinguished, and completion takes precedence.

use everturn_core::{Connection, Context, Inputs, Reason, Status};

use crate::support::{assert_failed, idle, within};

/// Reads until the caller closes.
fn listening() -> Connection<u8, (), ()> {
    Connection::open(
        "listens",
        &Context::new(),
        |mut inputs: Inputs<u8>, _, _| async move {
            while inputs.next().await.is_some() {}
            Ok(())
        },
    )
}

/// Returns after the first input.
fn brief() -> Connection<u8, (), ()> {
    Connection::open(
        "brief",
        &Context::new(),
        |mut inputs: Inputs<u8>, _, _| async move {
            inputs.next().await;
            Ok(())
        },
    )
}

/// Reads nothing and never returns.
fn deaf() -> Connection<u8, (), ()> {
    Connection::open("deaf", &Context::new(), |inputs: Inputs<u8>, _, _| async move {
        std::future::pending::<()>().await;
        drop(inputs);
        Ok(())
    })
}

#[tokio::test(start_paused = true)]
async fn after_completion_the_action_has_completed() {
    let connection = brief();
    connection.send(1).await.unwrap();
    within(connection.done()).await;

    let late = connection.send(2).await;

    assert_failed(late, Status::FailedPrecondition, Reason::ACTION_COMPLETED);
}

#[tokio::test(start_paused = true)]
async fn after_the_close_the_connection_is_closed() {
    let connection = deaf();
    connection.close();

    let late = connection.send(1).await;

    assert_failed(late, Status::FailedPrecondition, Reason::CONNECTION_CLOSED);
}

#[tokio::test(start_paused = true)]
async fn after_both_the_action_has_completed() {
    let connection = listening();
    connection.close();
    within(connection.done()).await;

    let late = connection.send(1).await;

    assert_failed(late, Status::FailedPrecondition, Reason::ACTION_COMPLETED);
}

#[tokio::test(start_paused = true)]
async fn after_a_cancellation_took_effect_the_action_has_completed() {
    let connection = deaf();
    connection.cancel();
    within(connection.done()).await;

    let late = connection.send(1).await;

    assert_failed(late, Status::FailedPrecondition, Reason::ACTION_COMPLETED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_output_the_action_has_completed_without_exception() {
    for _ in 0..2_000 {
        let mut connection = listening();
        connection.output().await.unwrap();

        let late = connection.send(1).await;

        assert_failed(late, Status::FailedPrecondition, Reason::ACTION_COMPLETED);
    }
}

#[tokio::test(start_paused = true)]
async fn every_sender_of_a_connection_learns_the_same() {
    let connection = deaf();
    let (one, two) = (connection.sender(), connection.sender());

    one.close();

    for result in [one.send(1).await, two.send(1).await, connection.send(1).await] {
        assert_failed(result, Status::FailedPrecondition, Reason::CONNECTION_CLOSED);
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_waits_learns_of_the_completion() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let opened = std::sync::Arc::clone(&gate);
    let connection: Connection<u8, (), ()> =
        Connection::open("leaves", &Context::new(), |inputs: Inputs<u8>, _, _| async move {
            opened.notified().await;
            drop(inputs);
            Ok(())
        });
    connection.send(1).await.unwrap();
    let sender = connection.sender();
    let waiting = tokio::spawn(async move { sender.send(2).await });
    idle().await;
    assert!(!waiting.is_finished());

    gate.notify_one();

    assert_failed(
        within(waiting).await.unwrap(),
        Status::FailedPrecondition,
        Reason::ACTION_COMPLETED,
    );
}

#[tokio::test(start_paused = true)]
async fn inputs_the_action_passed_on_do_not_hide_its_completion() {
    let (pass_on, passed_on) = tokio::sync::oneshot::channel();
    let connection: Connection<u8, (), ()> = Connection::open(
        "passes on",
        &Context::new(),
        |inputs: Inputs<u8>, _, _| async move {
            pass_on.send(inputs).unwrap();
            Ok(())
        },
    );
    let _kept = within(passed_on).await.unwrap();
    within(connection.done()).await;

    let late = connection.send(1).await;

    assert_failed(late, Status::FailedPrecondition, Reason::ACTION_COMPLETED);
}

#[tokio::test(start_paused = true)]
async fn an_action_that_dropped_its_inputs_takes_no_more() {
    let connection: Connection<u8, (), ()> = Connection::open(
        "hangs up",
        &Context::new(),
        |inputs: Inputs<u8>, _, _| async move {
            drop(inputs);
            std::future::pending().await
        },
    );
    idle().await;

    let unheard = within(connection.send(1)).await;

    assert_failed(unheard, Status::FailedPrecondition, Reason::ACTION_COMPLETED);
    assert!(!connection.is_done());
}
