//! Dropping a connection ends its work, and nothing is left behind.

use std::sync::Arc;

use everturn_core::{Action, ActionType, Connection, Context, Emitter, Inputs, Reason, Status};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::support::{Counter, Dropped, assert_failed, idle, within};

/// Never returns by itself; `dropped` signals when it is dropped.
fn endless(dropped: &Dropped) -> Connection<u8, (), u8> {
    let owned = dropped.when_dropped();
    Connection::open(
        "endless",
        &Context::new(),
        |inputs: Inputs<u8>, emitter: Emitter<u8>, _| async move {
            let _owned = (owned, inputs, emitter);
            std::future::pending().await
        },
    )
}

#[tokio::test]
async fn the_action_is_dropped_with_its_connection() {
    let dropped = Dropped::default();
    let connection = endless(&dropped);
    idle().await;
    assert!(!dropped.get());

    drop(connection);
    idle().await;

    assert!(dropped.get());
}

#[tokio::test]
async fn an_action_that_had_no_time_to_begin_never_does() {
    let begun = Counter::default();
    let counted = begun.clone();

    let connection: Connection<(), (), ()> =
        Connection::open("late", &Context::new(), |_, _, _| async move {
            counted.add();
            Ok(())
        });
    drop(connection);
    idle().await;

    assert_eq!(begun.get(), 0);
}

#[tokio::test]
async fn an_action_that_could_continue_is_dropped() {
    let gate = Arc::new(Notify::new());
    let (opened, gone_on) = (Arc::clone(&gate), Counter::default());
    let counted = gone_on.clone();
    let connection: Connection<(), (), ()> =
        Connection::open("waits", &Context::new(), |_, _, _| async move {
            opened.notified().await;
            counted.add();
            Ok(())
        });
    idle().await;

    gate.notify_one();
    drop(connection);
    idle().await;

    assert_eq!(gone_on.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn work_the_action_handed_to_others_is_cancelled() {
    let (hand_over, handed_over) = oneshot::channel();
    let connection: Connection<(), (), ()> = Connection::open(
        "delegates",
        &Context::new(),
        |_, _, context: Context| async move {
            let helper = tokio::spawn(async move { context.ended().await.status() });
            hand_over.send(helper).unwrap();
            std::future::pending().await
        },
    );
    let helper = within(handed_over).await.unwrap();

    drop(connection);

    assert_eq!(within(helper).await.unwrap(), Status::Cancelled);
}

#[tokio::test]
async fn dropping_a_connection_does_not_cancel_the_context_around_it() {
    let context = Context::new();
    let connection: Connection<(), (), ()> =
        Connection::open("brief", &context, |_, _, _| std::future::pending());

    drop(connection);

    assert!(!context.is_cancelled());
}

#[tokio::test]
async fn dropping_it_while_a_receiver_waits_ends_the_action() {
    let dropped = Dropped::default();
    let mut connection = endless(&dropped);
    let receiving = tokio::spawn(async move { connection.receive().next().await });
    idle().await;
    assert!(!receiving.is_finished());

    receiving.abort();
    idle().await;

    assert!(dropped.get());
}

#[tokio::test(start_paused = true)]
async fn dropping_it_fails_a_waiting_sender() {
    let dropped = Dropped::default();
    let connection = endless(&dropped);
    connection.send(1).await.unwrap();
    let sender = connection.sender();
    let sending = tokio::spawn(async move { sender.send(2).await });
    idle().await;
    assert!(!sending.is_finished());

    drop(connection);

    assert_failed(
        within(sending).await.unwrap(),
        Status::FailedPrecondition,
        Reason::ACTION_COMPLETED,
    );
    assert!(dropped.get());
}

#[tokio::test]
async fn dropping_it_while_the_action_waits_to_emit_ends_the_action() {
    let dropped = Dropped::default();
    let owned = dropped.when_dropped();
    let connection: Connection<(), (), u8> = Connection::open(
        "talks",
        &Context::new(),
        |_, emitter: Emitter<u8>, _| async move {
            let _owned = owned;
            loop {
                emitter.send(1).await?;
            }
        },
    );
    idle().await;

    drop(connection);
    idle().await;

    assert!(dropped.get());
}

#[tokio::test]
async fn dropping_a_streaming_call_ends_it() {
    let dropped = Dropped::default();
    let watched = dropped.clone();
    let stuck = Action::streaming(
        ActionType::CUSTOM,
        "stuck",
        move |(): (), _, emitter: Emitter<u8>| {
            let owned = watched.when_dropped();
            async move {
                let _owned = owned;
                emitter.send(1).await?;
                Ok(std::future::pending::<everturn_core::Result<()>>().await?)
            }
        },
    );
    let mut streaming = stuck.stream(());
    assert_eq!(streaming.next().await, Some(1));

    drop(streaming);
    idle().await;

    assert!(dropped.get());
}

/// Opens and drops many connections in every state one can be left in, and waits until their tasks are gone.
async fn open_and_drop(connections: usize) {
    let echo = |context: &Context| -> Connection<usize, usize, usize> {
        Connection::open(
            "echo",
            context,
            |mut inputs: Inputs<usize>, emitter: Emitter<usize>, _| async move {
                let mut received = 0;
                while let Some(input) = inputs.next().await {
                    received += 1;
                    emitter.send(input).await?;
                }
                Ok(received)
            },
        )
    };
    let context = Context::new();
    for n in 0..connections {
        let mut connection = echo(&context);
        match n % 5 {
            0 => {}
            1 => connection.send(n).await.expect("it listens"),
            2 => {
                connection.send(n).await.expect("it listens");
                assert_eq!(connection.receive().next().await, Some(n));
            }
            3 => {
                // The action waits to emit, and the caller to send.
                let sender = connection.sender();
                tokio::spawn(async move { while sender.send(n).await.is_ok() {} });
                tokio::task::yield_now().await;
            }
            _ => {
                connection.send(n).await.expect("it listens");
                assert_eq!(connection.output().await.expect("it succeeds"), 1);
            }
        }
    }

    let alive = || Handle::current().metrics().num_alive_tasks();
    for _ in 0..100_000 {
        if alive() == 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(alive(), 0);
    assert!(!context.is_cancelled());
}

#[tokio::test]
async fn ten_thousand_connections_leave_no_task_behind_on_one_thread() {
    open_and_drop(10_000).await;
}

#[test]
fn ten_thousand_connections_leave_no_task_behind_on_many_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();

    runtime.block_on(open_and_drop(10_000));
}
