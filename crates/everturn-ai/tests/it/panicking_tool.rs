//! A panic in user code is an error of the call, not the end of the process.

use everturn_ai::{Tool, ToolContext, model_hook, reason, tool_hook};
use everturn_core::{HandlerResult, Reason, Status};
use serde_json::{Value, json};

use crate::generate_support::{constant, message, request, says, scripted, step};

fn panics_at_once() -> Tool {
    Tool::dynamic(
        "t",
        "d",
        None,
        |_input, _cx: ToolContext| -> std::future::Ready<HandlerResult<Value>> { panic!("at once") },
    )
}

fn panics_later() -> Tool {
    Tool::dynamic("t", "d", None, |_input, _cx: ToolContext| async {
        tokio::task::yield_now().await;
        panic!("later")
    })
}

#[tokio::test]
async fn a_tool_that_panics_fails_the_call() {
    for (tool, text) in [(panics_at_once(), "at once"), (panics_later(), "later")] {
        let (_registry, _script, generate) = scripted([step(message(json!([request("t", "1", json!({}))])))]);

        let error = generate.prompt("p").tool(tool).await.unwrap_err();

        assert_eq!(error.status(), Status::Internal);
        assert!(error.is(reason::TOOL_FAILED));
        assert!(error.message().contains(text), "{error}");
    }
}

#[tokio::test]
async fn a_hook_that_panics_fails_the_call() {
    let asks = || step(message(json!([request("t", "1", json!({}))])));
    let (_registry, _script, generate) = scripted([asks(), step(says("x"))]);
    let generate = generate.prompt("p").tool(constant("t", "o"));

    let around_tool = tool_hook(|_call, _next| async { panic!("hook") });
    let error = generate.clone().use_middleware(around_tool).await.unwrap_err();
    assert!(error.is(reason::TOOL_FAILED), "{error}");

    let around_model = model_hook(|_call, _next| async { panic!("hook") });
    let error = generate.use_middleware(around_model).await.unwrap_err();
    assert!(error.is(Reason::PANIC), "{error}");
}
