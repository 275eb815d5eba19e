//! Asking before a tool is run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_ai::builtin_middleware::{ToolApproval, register_builtin_middleware};
use everturn_ai::{FinishReason, Generate, IntoMiddleware, Messages, MiddlewareRef, Part, Tool, ToolContext};
use everturn_core::{Registry, Status};
use serde_json::{Value, json};

use crate::middleware_support::{Reply, Script};

/// A tool that counts how often it was run.
fn launch(runs: &Arc<AtomicUsize>) -> Tool {
    let runs = Arc::clone(runs);
    Tool::new("launch", "Launches.", move |_: Value, _: ToolContext| {
        runs.fetch_add(1, Ordering::Relaxed);
        async { Ok("launched") }
    })
}

struct Held {
    registry: Registry,
    runs: Arc<AtomicUsize>,
    messages: Messages,
    interrupted: Vec<Part>,
    finish_reason: FinishReason,
}

/// A generation in which the model asks for `launch` with this middleware in use.
async fn ask_to_launch(middleware: impl IntoMiddleware) -> Held {
    let registry = Registry::new();
    register_builtin_middleware(&registry).unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    Script::register(
        &registry,
        "m",
        [Reply::calls(&[("launch", json!({}))]), Reply::text("done")],
    );

    let answer = Generate::new(&registry)
        .model("m")
        .prompt("go")
        .tool(launch(&runs))
        .use_middleware(middleware)
        .run()
        .await
        .unwrap();

    Held {
        messages: answer.messages(),
        interrupted: answer.interrupts().cloned().collect(),
        finish_reason: answer.finish_reason(),
        registry,
        runs,
    }
}

impl Held {
    fn resume(&self) -> Generate<Value> {
        Generate::new(&self.registry)
            .model("m")
            .messages(self.messages.clone())
            .tool(launch(&self.runs))
            .use_middleware(ToolApproval::default())
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_listed_tool_runs_without_asking() {
    let held = ask_to_launch(ToolApproval::new(["launch"])).await;

    assert_eq!(held.runs(), 1);
    assert_eq!(held.finish_reason, FinishReason::Stop);
}

#[tokio::test]
async fn any_other_tool_is_held_with_a_message_that_names_it() {
    let held = ask_to_launch(ToolApproval::new(["land"])).await;

    assert_eq!(held.runs(), 0);
    assert_eq!(held.finish_reason, FinishReason::Interrupted);
    let message = held.interrupted[0].interrupt().unwrap()["message"]
        .as_str()
        .unwrap();
    assert!(message.contains("launch"), "{message}");
}

#[tokio::test]
async fn an_approved_restart_runs_the_tool() {
    let held = ask_to_launch(ToolApproval::default()).await;

    let approved = ToolApproval::approve(&held.interrupted[0]).unwrap();
    let answer = held.resume().restart(approved).run().await.unwrap();

    assert_eq!(held.runs(), 1);
    assert_eq!(answer.text(), "done");
}

#[tokio::test]
async fn a_restart_without_approval_is_held_again() {
    let held = ask_to_launch(ToolApproval::default()).await;

    for resumed in [
        json!(true),
        json!({ "toolApproved": "yes" }),
        json!({ "toolApproved": false }),
    ] {
        let restart = held.interrupted[0].restart(Some(resumed), None).unwrap();
        let error = held.resume().restart(restart).run().await.unwrap_err();

        assert_eq!(error.status(), Status::FailedPrecondition);
        assert_eq!(held.runs(), 0);
    }
}

#[tokio::test]
async fn a_refusal_is_an_answer_in_the_tool_s_place() {
    let held = ask_to_launch(ToolApproval::default()).await;

    let refusal = held.interrupted[0].respond("not today", None).unwrap();
    let answer = held.resume().respond(refusal).run().await.unwrap();

    assert_eq!(held.runs(), 0);
    assert_eq!(answer.text(), "done");
}

#[tokio::test]
async fn by_name_both_spellings_of_the_list_count() {
    for config in [
        json!({ "approved": ["launch"] }),
        json!({ "allowedTools": ["launch"] }),
        json!({ "approved": ["land"], "allowedTools": ["launch"] }),
    ] {
        let held = ask_to_launch(MiddlewareRef::new("toolApproval").with_config(config)).await;

        assert_eq!(held.runs(), 1);
    }
    assert_eq!(ask_to_launch("toolApproval").await.runs(), 0);
}
