//! An emitter that outlives its action blocks neither the caller nor other senders.

use std::sync::Arc;

use everturn_core::{Connection, Context, Emitter, Status};
use tokio::sync::{Notify, oneshot};

use crate::support::{assert_failed, idle, within};

/// A connection to a completed action, and the emitter it left behind.
async fn completed() -> (Connection<(), &'static str, u8>, Emitter<u8>) {
    let (leave, left) = oneshot::channel();
    let connection = Connection::open(
        "forgetful",
        &Context::new(),
        |_, emitter: Emitter<u8>, _| async move {
            emitter.send(1).await?;
            leave.send(emitter).expect("the test waits for it");
            Ok("done")
        },
    );
    let left = within(left).await.expect("the action leaves it");
    within(connection.done()).await;
    (connection, left)
}

#[tokio::test(start_paused = true)]
async fn the_output_does_not_wait_for_a_leaked_emitter() {
    let (mut connection, _left) = completed().await;

    assert_eq!(within(connection.output()).await.unwrap(), "done");
}

#[tokio::test(start_paused = true)]
async fn chunks_of_the_action_are_received_and_then_the_stream_ends() {
    let (mut connection, _left) = completed().await;

    assert_eq!(within(connection.receive().next()).await, Some(1));
    assert_eq!(within(connection.receive().next()).await, None);
}

#[tokio::test(start_paused = true)]
async fn sending_after_the_end_fails_and_is_never_received() {
    let (mut connection, left) = completed().await;
    within(connection.output()).await.unwrap();

    assert_failed(within(left.send(2)).await, Status::Cancelled, None);
    assert_eq!(connection.receive().next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_to_send_is_released() {
    let gate = Arc::new(Notify::new());
    let opened = Arc::clone(&gate);
    let (start, started) = oneshot::channel();
    let mut connection: Connection<(), (), u8> = Connection::open(
        "delegates",
        &Context::new(),
        |_, emitter: Emitter<u8>, _| async move {
            emitter.send(1).await?;
            let waiting = tokio::spawn(async move {
                emitter.send(2).await?;
                emitter.send(3).await
            });
            start.send(waiting).unwrap();
            opened.notified().await;
            Ok(())
        },
    );
    let waiting = within(started).await.unwrap();
    idle().await;
    gate.notify_one();

    within(connection.output()).await.unwrap();

    assert_failed(within(waiting).await.unwrap(), Status::Cancelled, None);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_send_blocks_no_other_send() {
    let (mut connection, left) = completed().await;
    // Queues for the channel's only slot, which the next receive assigns to it, and is not polled again.
    let mut stalled = Box::pin(async move { left.send(2).await });
    assert!(futures::poll!(stalled.as_mut()).is_pending());

    assert_eq!(within(connection.receive().next()).await, Some(1));

    assert_eq!(within(connection.receive().next()).await, None);
    within(connection.output()).await.unwrap();
    assert_failed(within(stalled).await, Status::Cancelled, None);
}
