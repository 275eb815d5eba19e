//! Which runs count as lost, who takes one, and when it is given up.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{Deletion, Detail, Scope, SessionStore};
use everturn_agent::{AgentBuilder, Heartbeat, SnapshotStatus, Turn, WorkerLoss};
use everturn_core::{Context, Error, Registry, Status};
use everturn_testkit::elapse;
use serde_json::{Value, json};

use crate::support;
use crate::support::{FaultyStore, handling, reply};
use crate::takeover_support::{A_WHILE, Worker, clock};

#[tokio::test(start_paused = true)]
async fn a_run_that_loses_every_worker_fails_and_reports_it() {
    let clock = clock();
    let store = FaultyStore::default();
    let mut workers = vec![Worker::new(store.clone(), &clock)];
    let task = workers[0].detach("poison").await;
    workers[0].lose();

    for _ in 0..2 {
        elapse(A_WHILE).await;
        let next = Worker::new(store.elsewhere(), &clock);
        assert_eq!(next.agent.recover().await.taken_over.len(), 1);
        next.lose();
        workers.push(next);
    }
    elapse(A_WHILE).await;
    let last = Worker::new(store.elsewhere(), &clock);
    let recovery = last.agent.recover().await;
    let again = last.agent.recover().await;

    assert!(recovery.taken_over.is_empty());
    assert_eq!(recovery.given_up.len(), 1);
    assert_eq!(recovery.given_up[0].attempt, 3);
    assert!(again.given_up.is_empty() && again.taken_over.is_empty());
    let error = last.agent.chat().resume("s").run("more").await.unwrap_err();
    assert!(error.message().contains("started 3 times"), "{error}");
    let snapshot = last.agent.get_snapshot(task.snapshot_id().clone()).await.unwrap();
    assert_eq!(snapshot.status, SnapshotStatus::Failed);
    assert_eq!(snapshot.error.unwrap().status, Some(Status::Unavailable));
    assert!(last.turns().is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_two_workers_that_poll_at_once_one_takes_the_run_over() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let task = first.detach("plan").await;
    first.lose();
    elapse(A_WHILE).await;
    let heirs: Vec<Worker> = (0..8)
        .map(|_| Worker::new(first.store.elsewhere(), &clock))
        .collect();

    let looks = heirs.iter().map(|heir| heir.agent.recover());
    let recoveries = futures::future::join_all(looks).await;
    for heir in &heirs {
        heir.gate.add_permits(1);
    }
    task.wait().await.unwrap();

    let taken: usize = recoveries.iter().map(|recovery| recovery.taken_over.len()).sum();
    assert_eq!(taken, 1);
    let turns: Vec<String> = heirs.iter().flat_map(Worker::turns).collect();
    assert_eq!(turns, ["plan"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_aborted_with_its_worker_gone_is_left_alone() {
    let (first, second) = Worker::two();
    let task = first.detach("plan").await;
    first.lose();
    elapse(A_WHILE).await;

    second.agent.abort(task.snapshot_id().clone()).await.unwrap();
    let recovery = second.agent.recover().await;

    assert!(recovery.taken_over.is_empty() && recovery.given_up.is_empty());
    let shown = second
        .agent
        .get_snapshot(task.snapshot_id().clone())
        .await
        .unwrap();
    assert!(shown.state.is_none() && shown.bookkeeping.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_let_lost_runs_expire() {
    let clock = clock();
    let expire = |store| Worker::with(store, &clock, |agent| agent.on_worker_loss(WorkerLoss::Expire));
    let first = expire(FaultyStore::default());
    let second = expire(first.store.elsewhere());
    let task = first.detach("plan").await;
    first.lose();

    elapse(A_WHILE).await;
    let recovery = second.agent.recover().await;

    assert!(recovery.taken_over.is_empty());
    assert_eq!(task.status().await.unwrap(), SnapshotStatus::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_worker_does_not_take_its_own_run_from_itself() {
    let clock = clock();
    let worker = Worker::new(FaultyStore::default(), &clock);
    let task = worker.detach("plan").await;
    worker.lose();
    elapse(A_WHILE).await;
    worker.wake();

    let recovery = worker.agent.recover().await;
    worker.gate.add_permits(1);
    worker.agent.idle().await;

    assert!(recovery.taken_over.is_empty(), "{recovery:?}");
    assert_eq!(worker.turns(), ["plan"]);
    assert_eq!(task.status().await.unwrap(), SnapshotStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_tenants_run_is_taken_over_only_with_the_context_that_identifies_the_tenant() {
    let clock = clock();
    let tenants = |agent: AgentBuilder<Value>| {
        agent.scope(|context: &Context| {
            let tenant = context.auth().and_then(|auth| auth["tenant"].as_str());
            tenant.map_or_else(Scope::default, Scope::new)
        })
    };
    let first = Worker::with(FaultyStore::default(), &clock, |agent| {
        tenants(agent).record_context(["auth"])
    });
    let second = Worker::with(first.store.elsewhere(), &clock, tenants);
    let context = Context::new()
        .with_value("auth", json!({"tenant": "acme"}))
        .with_value("token", "secret");
    let id = first.detach_in(&context, "plan").await;
    first.lose();
    elapse(A_WHILE).await;

    let recovery = second.agent.recover().await;
    second.gate.add_permits(1);
    second.agent.idle().await;

    assert_eq!(recovery.taken_over.len(), 1, "{recovery:?}");
    let snapshot = second.store.get(&Scope::new("acme"), &id, Detail::Whole).await;
    assert_eq!(snapshot.unwrap().unwrap().status, SnapshotStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn actions_called_by_a_run_see_the_tenant_of_the_original_call() {
    let clock = clock();
    let first = Worker::with(FaultyStore::default(), &clock, |agent| {
        agent.scope(|_| Scope::new("everybody"))
    });
    let (heard, hearing) = std::sync::mpsc::channel();
    let second = handling("worker", move |turn: Turn| {
        let heard = heard.clone();
        async move {
            heard.send(turn.context().extension::<Scope>()).unwrap();
            reply(turn).await
        }
    });
    let second = second
        .clock(clock.clone())
        .store(first.store.elsewhere())
        .scope(|_| Scope::new("everybody"))
        .define()
        .unwrap();
    let context = Context::new().with_extension(Arc::new(Scope::new("acme")));
    first.detach_in(&context, "plan").await;
    first.lose();
    elapse(A_WHILE).await;

    let recovery = second.recover().await;
    second.idle().await;

    assert_eq!(recovery.taken_over.len(), 1, "{recovery:?}");
    assert_eq!(hearing.recv().unwrap().as_deref(), Some(&Scope::new("acme")));
}

#[tokio::test(start_paused = true)]
async fn a_tenants_run_that_recorded_nothing_is_not_run_as_another_tenants() {
    let clock = clock();
    let tenants = |agent: AgentBuilder<Value>| {
        agent.scope(|context: &Context| context.auth().map_or_else(Scope::default, |_| Scope::new("acme")))
    };
    let first = Worker::with(FaultyStore::default(), &clock, tenants);
    let second = Worker::with(first.store.elsewhere(), &clock, tenants);
    let context = Context::new().with_value("auth", "ann");
    first.detach_in(&context, "plan").await;
    first.lose();
    elapse(A_WHILE).await;

    let recovery = second.agent.recover().await;

    assert!(recovery.taken_over.is_empty());
    assert_eq!(recovery.failures.len(), 1);
    assert!(recovery.failures[0].message().contains("record_context"));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_beginning_is_gone_fails_and_reports_it() {
    let (first, second) = Worker::two();
    first.gate.add_permits(1);
    let start = first.agent.chat().resume("s").run("one").await.unwrap();
    let task = first.detach("two").await;
    first.lose();
    let beginning = Deletion::Snapshots(vec![start.snapshot_id().unwrap().clone()]);
    second.store.delete(&Scope::default(), &beginning).await.unwrap();
    elapse(A_WHILE).await;

    let recovery = second.agent.recover().await;

    assert_eq!(recovery.given_up.len(), 1, "{recovery:?}");
    let snapshot = second.snapshot(task.snapshot_id()).await;
    assert_eq!(snapshot.status, SnapshotStatus::Failed);
    assert_eq!(snapshot.error.unwrap().status, Some(Status::DataLoss));
}

#[tokio::test(start_paused = true)]
async fn all_agents_of_a_registry_are_recovered_at_intervals_until_that_is_stopped() {
    let clock = clock();
    let first = Worker::new(FaultyStore::default(), &clock);
    let registry = Registry::new();
    let second = Worker::new(first.store.elsewhere(), &clock);
    second.agent.register(&registry).unwrap();
    second.gate.add_permits(9);
    let recovering = everturn_agent::recover_every(&registry, Duration::from_secs(10));

    let task = first.detach("plan").await;
    first.lose();
    elapse(A_WHILE + Duration::from_secs(10)).await;
    second.agent.idle().await;
    let reply = task.wait().await.unwrap();
    recovering.stop().await;

    first.wake();
    let lost = first
        .agent
        .chat()
        .resume("t")
        .open()
        .await
        .unwrap()
        .detach("more")
        .await
        .unwrap();
    first.lose();
    elapse(A_WHILE * 2).await;

    assert_eq!(reply.text(), "re: plan");
    assert_eq!(lost.status().await.unwrap(), SnapshotStatus::Expired);
}

#[test]
fn a_heartbeat_that_takes_every_run_for_dead_is_refused() {
    for (interval, expiry) in [(0, 1), (2, 2), (3, 2)] {
        let heartbeat = Heartbeat {
            interval: Duration::from_secs(interval),
            expiry: Duration::from_secs(expiry),
        };

        let error = support::replying("worker")
            .heartbeat(heartbeat)
            .build()
            .unwrap_err();

        assert_eq!(error.status(), Status::InvalidArgument);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_read_is_reported_and_hides_nothing_for_good() {
    let (first, second) = Worker::two();
    first.detach("plan").await;
    first.lose();
    elapse(A_WHILE).await;
    second.store.fail_reads(true);

    let failed = second.agent.recover().await;
    second.store.fail_reads(false);
    let recovery = second.agent.recover().await;

    let told: Vec<Status> = failed.failures.iter().map(Error::status).collect();
    assert_eq!(told, [Status::Unavailable]);
    assert_eq!(recovery.taken_over.len(), 1);
}
