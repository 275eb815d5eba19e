//! Of several workers on one turn one acts, and identical turns that may run side by side do not meet.

use std::sync::Arc;

use everturn_agent::{Concurrency, agent};
use everturn_ai::{ModelResponse, Replay, Tool, ToolContext};
use everturn_core::Status;
use everturn_testkit::Gate;
use serde_json::json;

use crate::journal_support::{Setting, asks, done, journals, once, registry, tool, turn};
use crate::support::Fuse;

#[tokio::test]
async fn a_worker_that_was_only_asleep_is_stopped_before_it_acts() {
    let setting = Setting::new();
    let (fuse, gate) = (Fuse::never(), Gate::new());
    let (asleep, at) = (gate.clone(), Arc::clone(&setting.world));
    let slow = Tool::dynamic("look", "Looks.", None, move |_, _: ToolContext| {
        let (asleep, at) = (asleep.clone(), Arc::clone(&at));
        async move {
            at.count("look");
            asleep.pass().await;
            Ok(json!("seen"))
        }
    })
    .with_replay(Replay::Idempotent);
    let script = |rounds| match rounds {
        0 => asks(&["look"]),
        1 => asks(&["pay"]),
        _ => ModelResponse::text_of("Done."),
    };
    let sleeper = setting.agent(&fuse, script, [slow, done("pay", &setting.world)]);
    let quick = done("look", &setting.world).with_replay(Replay::Idempotent);
    let worker = setting.agent(&fuse, script, [quick, done("pay", &setting.world)]);

    let (first, second) = tokio::join!(turn(&sleeper, "go"), async {
        gate.reached().await;
        let output = turn(&worker, "go").await.unwrap();
        gate.open();
        output
    });

    assert_eq!(second.message.unwrap().text(), "Done.");
    assert_eq!(first.unwrap_err().status(), Status::Aborted);
    assert_eq!(setting.world.counted("pay"), 1);
}

#[tokio::test]
async fn a_worker_that_lost_the_turn_to_one_still_running_is_stopped_too() {
    let setting = Setting::new();
    let (fuse, first_gate, second_gate) = (Fuse::never(), Gate::new(), Gate::new());
    let gated = |gate: &Gate| {
        let gate = gate.clone();
        tool("look", &setting.world, move |_| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok(json!("seen"))
            }
        })
        .with_replay(Replay::Idempotent)
    };
    let sleeper = setting.agent(&fuse, once(&["look"]), [gated(&first_gate)]);
    let worker = setting.agent(&fuse, once(&["look"]), [gated(&second_gate)]);

    let (first, second) = tokio::join!(
        async {
            let error = turn(&sleeper, "go").await.unwrap_err();
            second_gate.open();
            error
        },
        async {
            first_gate.reached().await;
            let (output, ()) = tokio::join!(turn(&worker, "go"), async {
                second_gate.reached().await;
                first_gate.open();
            });
            output.unwrap()
        }
    );

    assert_eq!(first.status(), Status::Aborted);
    assert_eq!(second.message.unwrap().text(), "Done.");
    assert_eq!(setting.world.counted("model"), 2);
}

#[tokio::test]
async fn identical_turns_of_a_forking_agent_do_not_meet() {
    let setting = Setting::new();
    let (fuse, gate) = (Fuse::never(), Gate::new());
    let waiting = gate.clone();
    let look = tool("look", &setting.world, move |run| {
        let waiting = waiting.clone();
        async move {
            if run == 1 {
                waiting.pass().await;
            }
            Ok(json!("seen"))
        }
    });
    let agent = agent(&registry(&fuse, &setting.world, once(&["look"])), "cook")
        .tools([look])
        .concurrency(Concurrency::Fork)
        .store(setting.shared(&fuse))
        .define()
        .unwrap();

    let (first, second) = tokio::join!(turn(&agent, "go"), async {
        gate.reached().await;
        let output = turn(&agent, "go").await;
        gate.open();
        output
    });

    for output in [first.unwrap(), second.unwrap()] {
        assert_eq!(output.message.unwrap().text(), "Done.");
    }
    assert_eq!(setting.world.counted("look"), 2);
    assert_eq!(journals(&setting.store), 0);
}
