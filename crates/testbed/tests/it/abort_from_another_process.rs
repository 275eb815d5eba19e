//! An abort quickly reaches a tool that runs in another process.
#![cfg(unix)]

use std::time::{Duration, SystemTime};

use everturn_testkit::eventually;
use testbed::worker::{Effect, Effects};

use crate::processes::{Process, Site};

/// The number of attempts. The median counts, because the machine may be busy during one of them.
const TRIES: usize = 9;

/// Returns when an effect happened in a session, once it did.
async fn done(effects: &Effects, session: &str, what: &str) -> Duration {
    let mut done = None;
    eventually(what, async || {
        let wanted = |effect: &Effect| effect.session == session && effect.what == what;
        done = effects.all().unwrap().into_iter().find(wanted);
        done.is_some()
    })
    .await;
    done.unwrap().at
}

#[tokio::test]
async fn an_abort_reaches_a_running_tool_within_a_fifth_of_a_second_on_sqlite() {
    let site = Site::sqlite();
    let mut orders = site.orders(Duration::from_secs(30));
    orders.tasks = (0..TRIES)
        .map(|number| (format!("s{number}"), "wait".to_owned()))
        .collect();
    let (_registry, agent) = orders.agent().await.unwrap();
    let effects = Effects::at(&orders.effects);
    let worker = Process::start(&orders);

    let mut delays = Vec::new();
    for number in 0..TRIES {
        let (id, session) = (worker.accepted(), format!("s{number}"));
        done(&effects, &session, "tool 0").await;
        let asked = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        agent.abort(id).await.unwrap().unwrap();
        delays.push(done(&effects, &session, "stopped").await.saturating_sub(asked));
    }
    worker.expect_line("idle");

    delays.sort();
    println!("from the abort to the end of the tool: {delays:?}");
    assert!(delays[TRIES / 2] <= Duration::from_millis(200), "{delays:?}");
}
