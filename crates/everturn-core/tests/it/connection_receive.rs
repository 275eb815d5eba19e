//! Receiving chunks: a stream that may be left and taken up again, and that ends once.

use everturn_core::{Action, ActionType, Connection, Context, Emitter};
use futures::{FutureExt, StreamExt};

use crate::support::{idle, within};

/// Sends 0 to 9.
fn counting() -> Connection<(), &'static str, u32> {
    Connection::open(
        "counts",
        &Context::new(),
        |_, emitter: Emitter<u32>, _| async move {
            for n in 0..10 {
                emitter.send(n).await?;
            }
            Ok("counted")
        },
    )
}

#[tokio::test(start_paused = true)]
async fn leaving_the_stream_cancels_nothing_and_loses_nothing() {
    let mut connection = counting();

    let first: Vec<_> = within(connection.receive().take(3).collect()).await;
    idle().await;
    assert!(!connection.is_done());
    let rest: Vec<_> = within(connection.receive().collect()).await;

    assert_eq!(first, [0, 1, 2]);
    assert_eq!(rest, [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(within(connection.output()).await.unwrap(), "counted");
}

#[tokio::test(start_paused = true)]
async fn giving_up_on_a_chunk_does_not_lose_it() {
    let mut connection = counting();

    assert!(connection.receive().next().now_or_never().is_none());

    assert_eq!(within(connection.receive().next()).await, Some(0));
}

#[tokio::test(start_paused = true)]
async fn the_end_stays_the_end() {
    let mut connection = counting();
    while within(connection.receive().next()).await.is_some() {}

    assert_eq!(connection.receive().next().await, None);
    assert_eq!(connection.receive().next().await, None);
}

#[tokio::test(start_paused = true)]
async fn the_stream_ends_with_the_emitter_even_if_the_action_goes_on() {
    let mut connection: Connection<(), (), u8> = Connection::open(
        "quiet",
        &Context::new(),
        |_, emitter: Emitter<u8>, _| async move {
            emitter.send(1).await?;
            drop(emitter);
            std::future::pending().await
        },
    );

    let chunks: Vec<_> = within(connection.receive().collect()).await;

    assert_eq!(chunks, [1]);
    assert!(!connection.is_done());
}

#[tokio::test(start_paused = true)]
async fn chunks_sent_before_a_failure_are_received_before_it() {
    let mut connection: Connection<(), (), u8> = Connection::open(
        "fails",
        &Context::new(),
        |_, emitter: Emitter<u8>, _| async move {
            emitter.send(1).await?;
            Err(everturn_core::Error::aborted("no more").into())
        },
    );
    within(connection.done()).await;

    assert_eq!(connection.receive().next().await, Some(1));
    assert_eq!(connection.receive().next().await, None);
    assert!(connection.output().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_streaming_call_is_a_stream_of_its_chunks() {
    let count = Action::streaming(
        ActionType::CUSTOM,
        "count",
        |to: u8, _, emitter: Emitter<u8>| async move {
            for n in 0..to {
                emitter.send(n).await?;
            }
            Ok(to)
        },
    );
    let mut counting = count.stream(3);

    let chunks: Vec<_> = within(counting.by_ref().collect()).await;

    assert_eq!(chunks, [0, 1, 2]);
    assert_eq!(within(counting.output()).await.unwrap(), 3);
}
