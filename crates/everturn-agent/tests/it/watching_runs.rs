//! A background run can be watched by any number of clients at any time.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::{Agent, AgentBuilder, AgentFinishReason, AgentStreamChunk, Artifact, RunWatch, Turn};
use everturn_ai::Message;
use everturn_core::stream_log::{MemoryStreamLog, StreamLog};
use everturn_core::{Error, Status};
use everturn_testkit::elapse;
use tokio::sync::Semaphore;

use crate::support::{Counter, FaultyStore, handling};
use crate::takeover_support::clock;

/// Streams a word, a change of the custom state and an artifact, waits at the gate, and streams another word.
fn cook(gate: &Arc<Semaphore>) -> AgentBuilder<Counter> {
    let gate = Arc::clone(gate);
    handling("chef", move |turn: Turn<Counter>| {
        let gate = Arc::clone(&gate);
        async move {
            turn.send_chunk("leek ").await?;
            turn.update_custom(|state| state.counter += 1);
            turn.send_artifact(Artifact::text("menu", "soup")).await?;
            tokio::select! {
                permit = gate.acquire() => permit?.forget(),
                error = turn.context().ended() => return Err(error.into()),
            }
            turn.send_chunk("soup").await?;
            turn.update_custom(|state| state.counter += 1);
            turn.add_message(Message::model("leek soup"));
            Ok(AgentFinishReason::Stop)
        }
    })
}

/// The chunks that a watcher receives, in a word each.
async fn all(watch: &mut RunWatch<Counter>) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(chunk) = watch.next().await {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                seen.push(format!("error {}", error.status()));
                continue;
            }
        };
        seen.push(if let Some(artifact) = chunk.artifact() {
            format!("artifact {}", artifact.name.as_deref().unwrap_or_default())
        } else if let Some(end) = chunk.turn_end() {
            format!(
                "end {:?} of '{}'",
                end.finish_reason.unwrap(),
                chunk.accumulated_text()
            )
        } else if chunk.is_taken_over() {
            "taken over".to_owned()
        } else if chunk.raw().custom_patch.is_some() {
            format!("counter {}", chunk.custom().unwrap().unwrap().counter)
        } else {
            format!("text {}", chunk.text())
        });
    }
    seen
}

const WHOLE: [&str; 6] = [
    "text leek ",
    "counter 1",
    "artifact menu",
    "text soup",
    "counter 2",
    "end Stop of 'leek soup'",
];

#[tokio::test(start_paused = true)]
async fn everybody_who_watches_sees_the_run_from_its_beginning_to_its_end() {
    let gate = Arc::new(Semaphore::new(0));
    let agent = cook(&gate).store(FaultyStore::default()).define().unwrap();
    let task = agent.chat().open().await.unwrap().detach("soup").await.unwrap();

    let mut early = task.attach().unwrap();
    let mut first = Vec::new();
    for _ in 0..3 {
        first.push(early.next().await.unwrap().unwrap());
    }
    gate.add_permits(1);
    let rest = all(&mut early).await;
    agent.idle().await;
    let late = all(&mut task.attach().unwrap()).await;

    assert_eq!(first[0].text(), "leek ");
    assert_eq!(rest, WHOLE[3..]);
    assert_eq!(late, WHOLE, "a run that is over can still be looked at");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_shows_nothing_is_watched_to_its_end_all_the_same() {
    let gate = Arc::new(Semaphore::new(0));
    let agent = {
        let gate = Arc::clone(&gate);
        handling("mute", move |_: Turn<Counter>| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await?.forget();
                Err::<(), _>(Error::unavailable("the oven is cold").into())
            }
        })
    };
    let agent = agent.store(FaultyStore::default()).define().unwrap();
    let task = agent.chat().open().await.unwrap().detach("go").await.unwrap();
    let mut watch = task.attach().unwrap();

    let (seen, ()) = tokio::join!(all(&mut watch), async { gate.add_permits(1) });

    assert_eq!(seen, ["end Failed of ''"]);
    assert_eq!(task.wait().await.unwrap_err().status(), Status::Unavailable);
}

/// Two processes with one store and one log.
fn two_workers(gate: &Arc<Semaphore>, store: &FaultyStore) -> [Agent<Counter>; 2] {
    let clock = clock();
    let log: Arc<dyn StreamLog> = Arc::new(MemoryStreamLog::new());
    [store.clone(), store.elsewhere()].map(|store| {
        let agent = cook(gate).clock(clock.clone()).run_log(Arc::clone(&log));
        agent.store(store).define().unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn a_run_is_watched_on_while_another_worker_takes_it_over() {
    let (gate, store) = (Arc::new(Semaphore::new(0)), FaultyStore::default());
    let [first, second] = two_workers(&gate, &store);
    let task = first.chat().open().await.unwrap().detach("soup").await.unwrap();
    let mut watch = task.attach().unwrap();

    let (seen, ()) = tokio::join!(all(&mut watch), async {
        elapse(Duration::from_secs(1)).await;
        store.fail_saves(true);
        elapse(Duration::from_secs(61)).await;
        let recovery = second.recover().await;
        assert_eq!(recovery.taken_over.len(), 1);
        store.fail_saves(false);
        // The first worker finds out with its next sign of life.
        elapse(Duration::from_secs(31)).await;
        gate.add_permits(1);
    });

    let mut expected = WHOLE[..3].to_vec();
    expected.push("taken over");
    expected.extend(WHOLE);
    assert_eq!(seen, expected);
    let late = all(&mut second.task(task.snapshot_id().clone()).attach().unwrap()).await;
    assert_eq!(late, expected, "a late watcher is shown the same chunks");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_write_the_end_of_its_run_does_not_end_the_watching() {
    let (gate, store) = (Arc::new(Semaphore::new(0)), FaultyStore::default());
    let [first, second] = two_workers(&gate, &store);
    let task = first.chat().open().await.unwrap().detach("soup").await.unwrap();
    let mut watch = task.attach().unwrap();

    let (seen, ()) = tokio::join!(all(&mut watch), async {
        store.fail_saves(true);
        gate.add_permits(1);
        elapse(Duration::from_secs(61)).await;
        assert_eq!(second.recover().await.taken_over.len(), 1);
        gate.add_permits(1);
    });

    assert_eq!(seen, [WHOLE, WHOLE].concat());
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_run_is_not_watched_for_ever() {
    let (gate, clock) = (Arc::new(Semaphore::new(0)), clock());
    let store = FaultyStore::default();
    let worker = |store: FaultyStore| cook(&gate).clock(clock.clone()).store(store).define().unwrap();
    let (first, elsewhere) = (worker(store.clone()), worker(store.elsewhere()));
    let task = first.chat().open().await.unwrap().detach("soup").await.unwrap();
    store.fail_saves(true);

    let seen = all(&mut elsewhere.task(task.snapshot_id().clone()).attach().unwrap()).await;

    assert_eq!(seen, ["error UNAVAILABLE"]);
}

#[tokio::test(start_paused = true)]
async fn watchers_see_what_clients_would_and_nothing_after_a_transform_failed() {
    let gate = Arc::new(Semaphore::new(9));
    let agent = cook(&gate)
        .stream_transform(|chunk: AgentStreamChunk, _| {
            let text = chunk.model_chunk.as_ref().map(|chunk| chunk.text().into_owned());
            match text.as_deref() {
                Some("soup") => Err(Error::internal("not for their ears").into()),
                Some(_) => Ok(None),
                None => Ok(Some(chunk)),
            }
        })
        .store(FaultyStore::default())
        .define()
        .unwrap();
    let task = agent.chat().open().await.unwrap().detach("soup").await.unwrap();

    let seen = all(&mut task.attach().unwrap()).await;

    assert_eq!(seen, ["counter 1", "artifact menu", "end Aborted of ''"]);
    assert_eq!(
        task.wait().await.unwrap().text(),
        "leek soup",
        "the run is none the worse"
    );
}
