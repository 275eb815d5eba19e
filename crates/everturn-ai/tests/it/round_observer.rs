//! An observer gets the conversation after each round, and the error of a generation what it had finished.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use everturn_ai::{
    FinishReason, Generate, GenerateObserver, Messages, NoInput, Tool, ToolContext, async_trait,
    partial_generation, with_observer,
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
async fn the_observer_does_not_see_generations_inside_tools() {
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

#[tokio::test]
async fn the_error_of_a_generation_carries_its_finished_rounds_and_going_on_repeats_no_tool() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let tool = Tool::new("t", "Counts.", move |_: NoInput, _: ToolContext| {
        let call = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if call == 2 {
                Err(Error::unavailable("busy").into())
            } else {
                Ok(call)
            }
        }
    });
    let steps = [asks(), asks(), asks(), step(says("done"))];
    let (registry, _script, generate) = scripted(steps);

    let error = generate.prompt("p").tool(tool.clone()).run().await.unwrap_err();
    let partial = partial_generation(&error).unwrap().clone();
    let again = Generate::new(&registry)
        .model("programmableModel")
        .messages(partial.messages.clone());
    let reply = again.tool(tool).run().await.unwrap();

    // The question and two rounds; not the request whose tool failed.
    assert_eq!(partial.messages.len(), 5);
    assert_eq!(
        (partial.finish_reason, partial.usage.model_calls),
        (FinishReason::Failed, 3)
    );
    assert_eq!(reply.text(), "done");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert!(error.claim_report() && !error.claim_report());
}

#[tokio::test]
async fn a_stopped_generation_is_reported_and_one_that_never_began_carries_nothing() {
    let (registry, _script, generate) = scripted([asks(), asks()]);

    let stopped = generate
        .prompt("p")
        .tool(constant("t", "o"))
        .max_rounds(1)
        .run()
        .await;
    let never = Generate::new(&registry).model("none").prompt("p").run().await;

    let stopped = stopped.unwrap_err();
    let partial = partial_generation(&stopped).unwrap();
    assert_eq!(
        (partial.finish_reason, partial.messages.len()),
        (FinishReason::Aborted, 3)
    );
    assert!(partial_generation(&never.unwrap_err()).is_none());
}
