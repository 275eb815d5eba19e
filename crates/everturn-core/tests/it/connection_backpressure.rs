//! Each way has room for one element; who is faster waits.

use std::sync::Arc;

use everturn_core::{Connection, Context, Emitter, Inputs};
use futures::FutureExt;
use tokio::sync::Notify;

use crate::support::{Counter, idle, within};

#[tokio::test]
async fn a_caller_is_at_most_one_input_ahead() {
    let next = Arc::new(Notify::new());
    let may_read = Arc::clone(&next);
    let connection: Connection<u8, (), ()> = Connection::open(
        "slow",
        &Context::new(),
        |mut inputs: Inputs<u8>, _, _| async move {
            loop {
                may_read.notified().await;
                inputs.next().await;
            }
        },
    );

    assert!(
        connection.send(1).now_or_never().is_some(),
        "there is room for one"
    );
    idle().await;
    assert!(connection.send(2).now_or_never().is_none(), "and for no other");

    next.notify_one();
    idle().await;
    assert!(
        connection.send(2).now_or_never().is_some(),
        "until the action takes it"
    );
    idle().await;
    assert!(
        connection.send(3).now_or_never().is_none(),
        "which makes room for one again"
    );
}

#[tokio::test]
async fn an_action_is_at_most_one_chunk_ahead() {
    let sent = Counter::default();
    let counted = sent.clone();
    let mut connection: Connection<(), (), usize> = Connection::open(
        "fast",
        &Context::new(),
        |_, emitter: Emitter<usize>, _| async move {
            loop {
                emitter.send(counted.get()).await?;
                counted.add();
            }
        },
    );
    let mut ahead = Vec::new();

    for received in 0..5 {
        idle().await;
        ahead.push(sent.get() - received);
        within(connection.receive().next()).await;
    }

    assert_eq!(ahead, [1; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_sends_and_receives_by_turns_never_deadlocks() {
    let mut connection: Connection<u32, u32, u32> = Connection::open(
        "echo",
        &Context::new(),
        |mut inputs: Inputs<u32>, emitter: Emitter<u32>, _| async move {
            let mut received = 0;
            while let Some(input) = inputs.next().await {
                emitter.send(input).await?;
                received += 1;
            }
            Ok(received)
        },
    );

    for n in 0..1_000 {
        within(connection.send(n)).await.unwrap();
        assert_eq!(within(connection.receive().next()).await, Some(n));
    }

    assert_eq!(within(connection.output()).await.unwrap(), 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_task_may_send_while_another_receives() {
    let mut connection: Connection<u32, (), u32> = Connection::open(
        "echo",
        &Context::new(),
        |mut inputs: Inputs<u32>, emitter: Emitter<u32>, _| async move {
            while let Some(input) = inputs.next().await {
                emitter.send(input).await?;
            }
            Ok(())
        },
    );
    let sender = connection.sender();
    let sending = tokio::spawn(async move {
        for n in 0..10_000 {
            sender.send(n).await?;
        }
        sender.close();
        Ok::<_, everturn_core::Error>(())
    });

    let mut expected = 0;
    while let Some(n) = connection.receive().next().await {
        assert_eq!(n, expected);
        expected += 1;
    }

    assert_eq!(expected, 10_000);
    sending.await.unwrap().unwrap();
}
