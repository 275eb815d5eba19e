//! The published cases of the generate action.

use everturn_ai::{ModelInfo, ModelSupports, Tool, ToolContext, register_generate};
use everturn_core::stream_log::JsonText;
use everturn_core::{Emitter, JsonCall, Registry};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

use crate::generate_support::{Script, Step, comparable, published};

#[tokio::test]
async fn the_generate_action_passes_the_published_cases() {
    let Some(text) = published("generate.yaml") else {
        return;
    };
    let cases: Value = yaml_serde::from_str(&text).expect("the cases are YAML");

    for case in cases["tests"].as_array().expect("a list of cases") {
        passes(case).await;
    }
}

async fn passes(case: &Value) {
    let registry = harness(case);
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let call = JsonCall {
        emitter: emitter(case, &chunks),
        ..JsonCall::new(case["input"].clone())
    };

    let response = registry
        .resolve("/util/generate")
        .await
        .unwrap()
        .run_json(call)
        .await
        .unwrap();

    assert_eq!(
        as_compared(response),
        as_compared(case["expectResponse"].clone()),
        "{}",
        case["name"]
    );
    if let Some(expected) = case.get("expectChunks") {
        assert_eq!(
            Value::from(chunks.lock().unwrap().clone()),
            *expected,
            "{}",
            case["name"]
        );
    }
}

fn harness(case: &Value) -> Registry {
    let registry = Registry::new();
    register_generate(&registry).unwrap();
    let supports = ModelSupports {
        tools: Some(true),
        multiturn: Some(true),
        ..ModelSupports::default()
    };
    let info = ModelInfo {
        supports: Some(supports),
        ..ModelInfo::default()
    };
    let responses = case["modelResponses"].as_array().expect("model responses");
    let steps = responses.iter().enumerate().map(|(call, response)| Step {
        chunks: case["streamChunks"][call].as_array().cloned().unwrap_or_default(),
        response: response.clone(),
    });
    Script::define(&registry, info, steps);
    Tool::dynamic(
        "testTool",
        "description",
        None,
        |_input, _cx: ToolContext| async { Ok(json!("tool called")) },
    )
    .register(&registry)
    .unwrap();
    registry
}

fn emitter(case: &Value, chunks: &Arc<Mutex<Vec<Value>>>) -> Option<Emitter<JsonText>> {
    let chunks = Arc::clone(chunks);
    (case["stream"] == true).then(|| {
        Emitter::new(move |chunk: JsonText| {
            chunks.lock().unwrap().push(chunk.read().unwrap());
            async { Ok(()) }
        })
    })
}

/// The harness compares neither measurements nor the keys and metadata of tools.
fn as_compared(response: Value) -> Value {
    let mut response = comparable(response);
    let tools = response
        .pointer_mut("/request/tools")
        .and_then(Value::as_array_mut);
    for tool in tools.into_iter().flatten().filter_map(Value::as_object_mut) {
        tool.remove("key");
        tool.remove("metadata");
    }
    response
}
