//! Recorded: the order of hooks.

use std::sync::{Arc, Mutex};

use everturn_ai::{
    GenerateRound, Middleware, ModelCall, ModelResponse, MultipartToolResponse, NextModel, NextRound,
    NextTool, ToolCall, async_trait,
};
use everturn_core::HandlerResult;
use serde_json::json;

use crate::generate_support::{constant, message, recording, request, says, scripted, step};

#[derive(Clone)]
struct Witness(&'static str, Arc<Mutex<Vec<String>>>);

impl Witness {
    fn note(&self, what: &str) {
        self.1.lock().unwrap().push(format!("{} {what}", self.0));
    }
}

#[async_trait]
impl Middleware for Witness {
    async fn generate(&self, round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        self.note(&format!("gen> {} {}", round.index, round.message_index));
        let response = next.run(round).await;
        self.note("gen<");
        Ok(response?)
    }

    async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        self.note("model>");
        let response = next.run(call).await;
        self.note("model<");
        Ok(response?)
    }

    async fn tool(&self, call: ToolCall, next: NextTool) -> HandlerResult<MultipartToolResponse> {
        self.note("tool>");
        let response = next.run(call).await;
        self.note("tool<");
        Ok(response?)
    }
}

#[tokio::test]
async fn the_first_is_the_outermost_and_rounds_nest() {
    let Some(recorded) = recording("middleware_order") else {
        return;
    };
    let asks = message(json!([request("t", "1", json!({}))]));
    let (_registry, _script, generate) = scripted([step(asks), step(says("x"))]);
    let notes = Arc::default();

    let generate = generate.prompt("p").tool(constant("t", "o"));
    let generate = generate
        .use_middleware(Witness("A", Arc::clone(&notes)))
        .use_middleware(Witness("B", Arc::clone(&notes)));
    generate.await.unwrap();

    assert_eq!(json!(*notes.lock().unwrap()), recorded);
}
