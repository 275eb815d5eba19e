//! A context that ends, by cancellation or deadline, ends what runs in it.

use std::time::Duration;

use everturn_core::{
    Action, ActionType, Connection, Context, Emitter, Error, HandlerResult, Inputs, Result, Status,
};
use tokio::time::Instant;

use crate::support::{Counter, Dropped, assert_failed, idle, within};

fn endless(context: &Context) -> Connection<u8, u8, u8> {
    Connection::open("endless", context, |_, _, _| std::future::pending())
}

fn in_a_second() -> Context {
    Context::new().with_deadline(Instant::now() + Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_connection_is_its_outcome() {
    let mut connection = endless(&Context::new());

    connection.cancel();

    assert_failed(within(connection.output()).await, Status::Cancelled, None);
    assert!(connection.is_done());
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_context_around_it_is_its_outcome() {
    let context = Context::new();
    let mut connection = endless(&context);

    context.cancel();

    assert_failed(within(connection.output()).await, Status::Cancelled, None);
}

#[tokio::test(start_paused = true)]
async fn cancelling_one_connection_leaves_its_siblings_alone() {
    let context = Context::new();
    let (one, two) = (endless(&context), endless(&context));

    one.cancel();
    within(one.done()).await;
    idle().await;

    assert!(!two.is_done());
    assert!(!context.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_connection() {
    let mut connection = endless(&in_a_second());

    assert_failed(within(connection.output()).await, Status::DeadlineExceeded, None);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_an_action_and_drops_its_work() {
    let dropped = Dropped::default();
    let watched = dropped.clone();
    let slow = Action::new(ActionType::CUSTOM, "slow", move |(): (), _| {
        let owned = watched.when_dropped();
        async move {
            let _owned = owned;
            std::future::pending::<HandlerResult<()>>().await
        }
    });

    let result = within(slow.call((), in_a_second(), Emitter::silent())).await;

    assert_failed(result, Status::DeadlineExceeded, None);
    assert!(dropped.get());
}

#[tokio::test(start_paused = true)]
async fn in_a_context_that_is_over_nothing_begins() {
    let begun = Counter::default();
    let counted = begun.clone();
    let eager = Action::new(ActionType::CUSTOM, "eager", move |(): (), _| {
        counted.add();
        async { Ok(()) }
    });
    let (cancelled, late) = (Context::new(), Context::new().with_deadline(Instant::now()));
    cancelled.cancel();

    assert_failed(
        eager.call((), cancelled.clone(), Emitter::silent()).await,
        Status::Cancelled,
        None,
    );
    assert_failed(
        eager.stream_in((), &cancelled).output().await,
        Status::Cancelled,
        None,
    );
    assert_failed(
        eager.call((), late, Emitter::silent()).await,
        Status::DeadlineExceeded,
        None,
    );
    assert_eq!(begun.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_action_that_completes_as_it_is_cancelled_has_completed() {
    let mut connection: Connection<u8, u8, u8> = Connection::open(
        "ready",
        &Context::new(),
        |mut inputs: Inputs<u8>, _, _| async move { Ok(inputs.next().await.unwrap_or_default()) },
    );
    idle().await;

    connection.send(7).await.unwrap();
    connection.cancel();

    assert_eq!(within(connection.output()).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn an_action_that_waits_to_emit_is_released() {
    let mut connection: Connection<(), (), u8> = Connection::open(
        "talks",
        &Context::new(),
        |_, emitter: Emitter<u8>, _| async move {
            loop {
                emitter.send(1).await?;
            }
        },
    );
    idle().await;

    connection.cancel();
    within(connection.done()).await;

    assert_failed(within(connection.output()).await, Status::Cancelled, None);
}

#[tokio::test(start_paused = true)]
async fn an_action_may_answer_the_cancellation_of_what_it_calls() {
    let inner = Action::new(ActionType::CUSTOM, "inner", |(): (), _| {
        std::future::pending::<HandlerResult<()>>()
    });
    let outer = Action::new(ActionType::CUSTOM, "outer", move |(): (), _| {
        let inner = inner.clone();
        async move {
            let result: Result<()> = inner.run(()).await;
            Ok(result.map_err(|error| Error::aborted(format!("gave up: {error}")))?)
        }
    });
    let mut outer = outer.stream(());
    idle().await;

    outer.cancel();

    assert_failed(within(outer.output()).await, Status::Aborted, None);
}

#[tokio::test(start_paused = true)]
async fn an_action_that_tries_again_for_ever_is_ended_all_the_same() {
    let inner = Action::new(ActionType::CUSTOM, "inner", |(): (), _| {
        std::future::pending::<HandlerResult<()>>()
    });
    let stubborn = Action::new(ActionType::CUSTOM, "stubborn", move |(): (), _| {
        let inner = inner.clone();
        async move {
            while inner.run(()).await.is_err() {}
            Ok(())
        }
    });
    let mut stubborn = stubborn.stream(());
    idle().await;

    stubborn.cancel();

    assert_failed(within(stubborn.output()).await, Status::Cancelled, None);
}
