//! An observer gets the conversation after each round.

use std::sync::{Arc, Mutex};

use everturn_ai::{
    Generate, GenerateObserver, Messages, NoInput, Tool, ToolContext, async_trait, with_observer,
};
use everturn_core::{Context, Error, Result, Status};
use serde_json::json;

use crate::generate_support;
use crate::generate_support::{constant, message, request, says, scripted, step};

#[derive(Default)]
struct Keeper {
    kept: Mutex<Vec<usize>>,
    is_full: bool,
}

#[async_trait]
impl GenerateObserver for Keeper {
    async fn round_end(&self, messages: &Messages) -> Result<()> {
        self.kept.lock().unwrap().push(messages.len());
        if self.is_full {
            Err(Error::resource_exhausted("full"))
        } else {
            Ok(())
        }
    }
}

fn asks() -> generate_support::Step {
    step(message(json!([request("t", "1", json!({}))])))
}

#[tokio::test]
async fn the_observer_gets_the_conversation_after_each_round() {
    let (_registry, _script, generate) = scripted([asks(), asks(), step(says("x"))]);
    let keeper = Arc::new(Keeper::default());
    let observed = Arc::clone(&keeper) as Arc<dyn GenerateObserver>;

    let context = with_observer(Context::new(), observed);
    generate
        .prompt("p")
        .tool(constant("t", "o"))
        .context(context)
        .await
        .unwrap();

    assert_eq!(*keeper.kept.lock().unwrap(), [3, 5]);
}

#[tokio::test]
async fn if_the_observer_fails_the_model_does_not_see_the_answers() {
    let (_registry, script, generate) = scripted([asks(), step(says("x"))]);
    let context = with_observer(
        Context::new(),
        Arc::new(Keeper {
            is_full: true,
            ..Keeper::default()
        }),
    );

    let error = generate
        .prompt("p")
        .tool(constant("t", "o"))
        .context(context)
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::ResourceExhausted);
    assert_eq!(script.calls(), 1);
}

#[tokio::test]
async fn the_observer_is_not_told_of_generations_inside_tools() {
    let (registry, _script, generate) = scripted([asks(), asks(), step(says("inner")), step(says("x"))]);
    let keeper = Arc::new(Keeper::default());
    let observed = Arc::clone(&keeper) as Arc<dyn GenerateObserver>;
    let nested = Tool::new("t", "Generates.", move |_: NoInput, context: ToolContext| {
        let inner = Generate::new(&registry)
            .model("programmableModel")
            .prompt("within")
            .tool(constant("t", "o"))
            .context(context.context().clone());
        async move { Ok(inner.run().await?.text().into_owned()) }
    });

    generate
        .prompt("p")
        .tool(nested)
        .context(with_observer(Context::new(), observed))
        .await
        .unwrap();

    assert_eq!(*keeper.kept.lock().unwrap(), [3]);
}
