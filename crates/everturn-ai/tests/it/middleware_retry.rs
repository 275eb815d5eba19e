//! Retrying model calls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_ai::builtin_middleware::Retry;
use everturn_ai::{Generate, ModelResponseChunk, interrupt, model_hook};
use everturn_core::{Context, Emitter, Error, Registry, Status};
use serde_json::json;
use tokio::time::Instant;

use crate::middleware_support::{Reply, Script};

fn unavailable() -> Reply {
    Reply::error(Error::unavailable("busy"))
}

#[tokio::test(start_paused = true)]
async fn failures_that_may_pass_are_retried_after_growing_pauses() {
    let registry = Registry::new();
    let script = Script::register(
        &registry,
        "m",
        [
            unavailable(),
            unavailable(),
            unavailable(),
            Reply::text("at last"),
        ],
    );
    let started = Instant::now();

    let answer = Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .use_middleware(Retry::default().no_jitter())
        .run()
        .await
        .unwrap();

    assert_eq!(answer.text(), "at last");
    assert_eq!(script.calls(), 4);
    assert_eq!(started.elapsed(), Duration::from_secs(1 + 2 + 4));
}

#[tokio::test(start_paused = true)]
async fn jitter_from_the_given_source_is_added_to_each_pause() {
    let registry = Registry::new();
    Script::register(
        &registry,
        "m",
        [unavailable(), unavailable(), Reply::text("at last")],
    );
    let started = Instant::now();

    Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .use_middleware(Retry::default().random(|| 0.5))
        .run()
        .await
        .unwrap();

    assert_eq!(started.elapsed(), Duration::from_millis(1000 + 500 + 2000 + 1000));
}

#[tokio::test(start_paused = true)]
async fn the_pause_is_no_shorter_than_the_provider_asks_for() {
    let registry = Registry::new();
    let limited = Error::resource_exhausted("quota").with_details(json!({ "retryAfterMs": 90_000 }));
    Script::register(&registry, "m", [Reply::error(limited), Reply::text("at last")]);
    let started = Instant::now();

    Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .use_middleware(Retry::default().no_jitter())
        .run()
        .await
        .unwrap();

    assert_eq!(started.elapsed(), Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn the_last_error_is_returned_when_retries_run_out() {
    let registry = Registry::new();
    let failures = ["first", "second", "third"].map(|message| Reply::error(Error::unavailable(message)));
    let script = Script::register(&registry, "m", failures);

    let error = Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .use_middleware(Retry::default().max_retries(2))
        .run()
        .await
        .unwrap_err();

    assert_eq!(script.calls(), 3);
    assert_eq!(error.status(), Status::Unavailable);
    assert!(error.message().contains("third"), "{error}");
}

/// How often a model that keeps failing this way is called with one retry allowed.
async fn calls_after(error: Error, retry: Retry) -> usize {
    let registry = Registry::new();
    let failures = [error.clone(), error].map(Reply::error);
    let script = Script::register(&registry, "m", failures);

    Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .use_middleware(retry.max_retries(1))
        .run()
        .await
        .unwrap_err();

    script.calls()
}

#[tokio::test(start_paused = true)]
async fn only_listed_statuses_are_retried() {
    assert_eq!(
        calls_after(Error::invalid_argument("no"), Retry::default()).await,
        1
    );
    assert_eq!(calls_after(Error::internal("oops"), Retry::default()).await, 2);

    let only_not_found = Retry::default().statuses([Status::NotFound]);
    assert_eq!(
        calls_after(Error::not_found("gone"), only_not_found.clone()).await,
        2
    );
    assert_eq!(calls_after(Error::internal("oops"), only_not_found).await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_unclassified_error_is_always_retried() {
    let foreign = Error::foreign("seven".parse::<u8>().unwrap_err());

    assert_eq!(calls_after(foreign, Retry::default().statuses([])).await, 2);
}

#[tokio::test(start_paused = true)]
async fn cancellation_and_interrupts_are_never_retried() {
    let everything = Retry::default().statuses(Status::all());

    assert_eq!(
        calls_after(Error::cancelled("enough"), everything.clone()).await,
        1
    );
    assert_eq!(calls_after(interrupt("may I?"), everything).await, 1);
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the clock is paused")]
async fn cancelling_during_a_pause_ends_it_at_once_with_the_last_error() {
    let registry = Registry::new();
    let script = Script::register(&registry, "m", [unavailable(), Reply::text("too late")]);
    let context = Context::new();
    let seen = Arc::new(Mutex::new(None));
    let witness = {
        let seen = Arc::clone(&seen);
        model_hook(move |call, next| {
            let seen = Arc::clone(&seen);
            async move {
                let result = next.run(call).await;
                *seen.lock().unwrap() = result.as_ref().err().map(Error::status);
                Ok(result?)
            }
        })
    };
    let started = Instant::now();

    let generating = Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .context(context.clone())
        .use_middleware(witness)
        .use_middleware(Retry::default())
        .run();
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        context.cancel();
    };
    let (result, ()) = tokio::join!(generating, cancelling);

    result.unwrap_err();
    assert_eq!(*seen.lock().unwrap(), Some(Status::Unavailable));
    assert_eq!(started.elapsed(), Duration::from_millis(300));
    assert_eq!(script.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_outlasts_the_deadline_is_not_begun() {
    let registry = Registry::new();
    let script = Script::register(&registry, "m", [unavailable(), Reply::text("too late")]);
    let started = Instant::now();
    let context = Context::new().with_deadline(started + Duration::from_secs(1));

    let error = Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .context(context)
        .use_middleware(Retry::default().initial_delay(Duration::from_secs(5)))
        .run()
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::Unavailable);
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(script.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn chunks_of_a_failed_attempt_stay_in_the_stream_and_not_in_the_response() {
    let registry = Registry::new();
    let broken = Reply::error(Error::unavailable("cut off")).after_chunks(["Once upon"]);
    Script::register(
        &registry,
        "m",
        [
            broken,
            Reply::text("Once again.").after_chunks(["Once", " again."]),
        ],
    );
    let streamed = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&streamed);

    let answer = Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .use_middleware(Retry::default())
        .emitter(Emitter::new(move |chunk: ModelResponseChunk| {
            sink.lock()
                .unwrap()
                .push((chunk.index, chunk.text().into_owned()));
            async { Ok(()) }
        }))
        .run()
        .await
        .unwrap();

    let expected = ["Once upon", "Once", " again."].map(|text| (Some(0), text.to_owned()));
    assert_eq!(*streamed.lock().unwrap(), expected);
    assert_eq!(answer.text(), "Once again.");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_not_asked_to_stream_still_sees_no_receiver() {
    let registry = Registry::new();
    let streaming = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&streaming);
    let witness = model_hook(move |call, next| {
        *seen.lock().unwrap() = Some(call.emitter.is_streaming());
        async move { Ok(next.run(call).await?) }
    });
    Script::register(&registry, "m", [Reply::text("hello")]);

    Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .use_middleware(Retry::default())
        .use_middleware(witness)
        .run()
        .await
        .unwrap();

    assert_eq!(*streaming.lock().unwrap(), Some(false));
}
