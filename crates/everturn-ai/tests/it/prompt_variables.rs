//! The variables of a template: input, defaults, context and state.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_ai::Messages;
use everturn_ai::prompt::{PromptDefinition, define_helper, define_partial, with_prompt_state};
use everturn_core::{Context, Registry, Status};
use serde_json::{Value, json};

async fn text_of(definition: PromptDefinition, input: Value, context: Context) -> String {
    let prompt = definition.define(&Registry::new()).unwrap();
    let rendered = prompt
        .render_around(&input, Messages::new(), context)
        .await
        .unwrap();
    rendered.messages().last().unwrap().text().into_owned()
}

#[tokio::test]
async fn defaults_fill_in_what_the_input_leaves_out() {
    let definition = || {
        PromptDefinition::new("p")
            .prompt("{{dish}} for {{guests}}")
            .input_default(json!({"dish": "soup", "guests": 2}))
    };

    assert_eq!(
        text_of(definition(), Value::Null, Context::new()).await,
        "soup for 2"
    );
    assert_eq!(
        text_of(definition(), json!({"guests": 4}), Context::new()).await,
        "soup for 4"
    );
}

#[tokio::test]
async fn the_context_is_there_under_its_names() {
    let context = Context::new().with_value("auth", json!({"email": "a@example.com"}));

    let text = text_of(
        PromptDefinition::new("p").prompt("for {{@auth.email}}"),
        Value::Null,
        context,
    )
    .await;

    assert_eq!(text, "for a@example.com");
}

#[tokio::test]
async fn state_is_read_only_when_a_template_looks() {
    let reads = Arc::new(AtomicUsize::new(0));
    let context = || {
        let reads = Arc::clone(&reads);
        with_prompt_state(Context::new(), move || {
            reads.fetch_add(1, Ordering::Relaxed);
            Arc::new(json!({"mood": "proud"}))
        })
    };

    let looks = text_of(
        PromptDefinition::new("p").prompt("I am {{@state.mood}}"),
        Value::Null,
        context(),
    )
    .await;
    let does_not = text_of(PromptDefinition::new("p").prompt("I am"), Value::Null, context()).await;

    assert_eq!((looks.as_str(), does_not.as_str()), ("I am proud", "I am"));
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_custom_state_has_its_own_name_and_that_of_genkit() {
    let state = |context| with_prompt_state(context, || Arc::new(json!({"mood": "proud"})));
    let definition = || PromptDefinition::new("p").prompt("{{@custom.mood}} and {{@state.mood}}");

    let in_a_session = text_of(definition(), Value::Null, state(Context::new())).await;
    let callers = Context::new().with_value("custom", json!({"mood": "the caller's"}));
    let with_a_value = text_of(definition(), Value::Null, state(callers)).await;

    assert_eq!(in_a_session, "proud and proud");
    assert_eq!(with_a_value, "the caller's and proud");
}

#[tokio::test]
async fn partials_and_helpers_of_the_registry_are_known() {
    let registry = Registry::new();
    define_partial(&registry, "sign", "-- {{name}}");
    define_helper(&registry, "loud", |call| {
        Ok(call.text(0).ok_or("it needs a text")?.to_uppercase().into())
    });

    let prompt = PromptDefinition::new("p")
        .prompt("{{loud word}} {{> sign name=by}}")
        .define(&registry)
        .unwrap();
    let input = json!({"word": "hi", "by": "Ada"});
    let rendered = prompt
        .render_around(&input, Messages::new(), Context::new())
        .await
        .unwrap();

    assert_eq!(rendered.messages().last().unwrap().text(), "HI -- Ada");
}

#[test]
fn a_broken_template_is_refused_when_it_is_defined_with_its_place() {
    let error = PromptDefinition::new("p")
        .prompt("line one\n{{#if x}}never closed")
        .define(&Registry::new())
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(
        error.message().contains("p:2:") || error.message().contains("p:3:"),
        "{error}"
    );
}
