//! Closing the input and taking the output: what is queued is processed, what is unread is dropped, nothing
//! hangs.

use std::sync::Arc;

use everturn_core::{ActionType, BidiAction, Connection, Context, Emitter, Inputs, Status};
use everturn_core::{Error, Result};
use futures::FutureExt;
use tokio::sync::Notify;

use crate::support::{Counter, assert_failed, idle, within};

/// Adds up its inputs once the gate is open, repeating each as a chunk.
fn adding_behind(gate: &Arc<Notify>) -> Connection<u32, u32, u32> {
    let gate = Arc::clone(gate);
    let adds = BidiAction::new(
        ActionType::CUSTOM,
        "adds",
        move |(): (), mut inputs: Inputs<u32>, emitter: Emitter<u32>, _context| {
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                let mut sum = 0;
                while let Some(input) = inputs.next().await {
                    sum += input;
                    emitter.send(input).await?;
                }
                Ok(sum)
            }
        },
    );
    adds.connect(())
}

fn adding() -> Connection<u32, u32, u32> {
    let open = Arc::new(Notify::new());
    open.notify_one();
    adding_behind(&open)
}

#[tokio::test(start_paused = true)]
async fn inputs_sent_before_the_close_are_still_processed() {
    let gate = Arc::new(Notify::new());
    let mut connection = adding_behind(&gate);
    connection.send(7).await.unwrap();

    connection.close();
    gate.notify_one();

    assert_eq!(within(connection.receive().next()).await, Some(7));
    assert_eq!(within(connection.output()).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn inputs_waiting_for_room_at_the_close_are_still_processed() {
    let gate = Arc::new(Notify::new());
    let mut connection = adding_behind(&gate);
    connection.send(1).await.unwrap();
    let sender = connection.sender();
    let waiting = tokio::spawn(async move { sender.send(2).await });
    idle().await;
    assert!(!waiting.is_finished());

    connection.close();
    gate.notify_one();

    assert_eq!(within(connection.output()).await.unwrap(), 3);
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_twice_is_no_error() {
    let mut connection = adding();

    connection.close();
    connection.close();
    connection.sender().close();

    assert_eq!(within(connection.output()).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_output_closes_the_input() {
    let mut connection = adding();
    connection.send(3).await.unwrap();

    assert_eq!(within(connection.output()).await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_output_drains_unread_chunks() {
    let mut connection: Connection<(), &str, u32> = Connection::open(
        "talks",
        &Context::new(),
        |_inputs, emitter: Emitter<u32>, _context| async move {
            for n in 0..100 {
                emitter.send(n).await?;
            }
            Ok("complete")
        },
    );

    assert_eq!(within(connection.output()).await.unwrap(), "complete");
    assert_eq!(connection.receive().next().await, None);
}

#[tokio::test(start_paused = true)]
async fn the_output_may_be_asked_again() {
    let mut connection = adding();
    connection.send(5).await.unwrap();

    let first = within(connection.output()).await.unwrap();
    let second = within(connection.output()).await.unwrap();

    assert_eq!((first, second), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn a_failure_may_be_asked_for_again_too() {
    let mut connection: Connection<(), (), ()> =
        Connection::open("fails", &Context::new(), |_, _, _| async {
            Err(Error::aborted("no").into())
        });

    for _ in 0..2 {
        assert_failed(within(connection.output()).await, Status::Aborted, None);
    }
}

#[tokio::test(start_paused = true)]
async fn giving_up_on_the_output_does_not_lose_it() {
    let gate = Arc::new(Notify::new());
    let mut connection = adding_behind(&gate);
    connection.send(9).await.unwrap();

    assert!(connection.output().now_or_never().is_none());
    gate.notify_one();

    assert_eq!(within(connection.output()).await.unwrap(), 9);
}

#[tokio::test(start_paused = true)]
async fn an_output_that_cannot_be_cloned_is_given_once() {
    struct Unique(u8);
    let connection: Connection<(), Unique, u8> = Connection::open(
        "unique",
        &Context::new(),
        |_, emitter: Emitter<u8>, _| async move {
            emitter.send(1).await?;
            emitter.send(2).await?;
            Ok(Unique(3))
        },
    );

    assert_eq!(within(connection.into_output()).await.unwrap().0, 3);
}

#[tokio::test(start_paused = true)]
async fn an_action_that_returns_early_discards_what_it_did_not_read() {
    let read = Counter::default();
    let counted = read.clone();
    let mut connection: Connection<&str, &str, ()> = Connection::open(
        "brief",
        &Context::new(),
        |mut inputs: Inputs<&str>, _, _| async move {
            while inputs.next().await.is_some_and(|input| input != "enough") {
                counted.add();
            }
            Ok("bye")
        },
    );

    connection.send("one").await.unwrap();
    connection.send("enough").await.unwrap();
    let unread = connection.send("unread").await;

    // Whether there was still room for it is a matter of timing; that it changes nothing is not.
    drop(unread);
    assert_eq!(within(connection.output()).await.unwrap(), "bye");
    assert_eq!(read.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn done_completes_with_the_action() {
    let gate = Arc::new(Notify::new());
    let connection = adding_behind(&gate);
    connection.close();
    assert!(!connection.is_done());
    assert!(connection.done().now_or_never().is_none());

    gate.notify_one();
    within(connection.done()).await;

    assert!(connection.is_done());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_output_is_known_the_action_has_completed() -> Result<()> {
    for _ in 0..2_000 {
        let mut connection: Connection<(), (), ()> =
            Connection::open("quick", &Context::new(), |_, _, _| async { Ok(()) });

        connection.output().await?;

        assert!(connection.is_done());
    }
    Ok(())
}
