//! Links to resources: those of clients, and those of the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, agent};
use everturn_ai::prompt::ContentSlot;
use everturn_ai::{Message, Part, Resource, define_resource};
use everturn_core::{Context, DynAction, Error, JsonCall, Principal, Registry, Result, Status};
use everturn_testkit::ScriptedModel;
use serde_json::{Value, json};

use crate::prompt_support::{asked, registry};

/// A registry with public recipes, which Eve may not read, and a secret of the house.
fn kitchen() -> (Registry, ScriptedModel) {
    let model = ScriptedModel::new().otherwise(|_| "fine");
    let registry = registry(&model);
    let recipes = Resource::template("recipe://{dish}", |input| async move {
        if Principal::of(&Context::current()).is_some_and(|caller| caller.id() == "eve") {
            return Err(Error::permission_denied("not for Eve").with_public().into());
        }
        Ok(format!("How to cook {}.", input.variables["dish"]))
    });
    define_resource(&registry, &recipes.unwrap()).unwrap();
    let secret = Resource::new("house://secret", |_| async {
        Ok("The safe is behind the stove.")
    });
    define_resource(&registry, &secret).unwrap();
    // Matches what the recipes match, too.
    let private = Resource::new("recipe://sauce", |_| async { Ok("The secret sauce.") });
    define_resource(&registry, &private).unwrap();
    (registry, model)
}

fn link(uri: &str) -> Value {
    json!({"resource": {"uri": uri}})
}

async fn sent(agent: &Agent, init: Value, part: Value, context: Context) -> Result<Value> {
    let call = JsonCall {
        input: Some(json!({"message": {"role": "user", "content": [part]}})),
        init: Some(init),
        context,
        ..JsonCall::default()
    };
    agent.action().run_json(call).await
}

#[tokio::test]
async fn a_client_reads_no_resource_that_the_agent_does_not_list() {
    let (registry, model) = kitchen();
    let plain = agent(&registry, "plain")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    let chef = agent(&registry, "chef")
        .resources(["recipe://{dish}"])
        .define()
        .unwrap();

    for agent in [&plain, &chef] {
        let refused = sent(agent, json!({}), link("house://secret"), Context::new())
            .await
            .unwrap_err();

        assert_eq!(refused.status(), Status::InvalidArgument, "{refused}");
        let told = refused.public_message().unwrap();
        assert!(
            told.contains("'house://secret'") && told.contains("AgentBuilder::resources"),
            "{told}"
        );
    }
    // Not in a conversation that it kept, either.
    let state = json!({"state": {"messages": [{"role": "model", "content": [link("house://secret")]}]}});
    let refused = sent(&chef, state, json!({"text": "hi"}), Context::new())
        .await
        .unwrap_err();
    assert!(
        refused.public_message().unwrap().contains("'house://secret'"),
        "{refused}"
    );
    model.assert_calls(0);
}

#[tokio::test]
async fn a_listed_resource_is_read_by_itself_for_callers_who_may() {
    let (registry, model) = kitchen();
    let chef = agent(&registry, "chef")
        .resources(["recipe://{dish}"])
        .define()
        .unwrap();

    sent(&chef, json!({}), link("recipe://soup"), Context::new())
        .await
        .unwrap();
    assert_eq!(asked(&model.last_request().unwrap()), ["user: How to cook soup."]);
    // The listed resource, and not another one of the same URI.
    sent(&chef, json!({}), link("recipe://sauce"), Context::new())
        .await
        .unwrap();
    assert_eq!(
        asked(&model.last_request().unwrap()),
        ["user: How to cook sauce."]
    );

    let eve = Principal::new("eve").context();
    let output = sent(&chef, json!({}), link("recipe://soup"), eve).await.unwrap();
    assert_eq!(output["error"]["status"], "PERMISSION_DENIED", "{output}");
    model.assert_calls(2);
}

#[tokio::test]
async fn links_of_the_program_and_of_its_prompt_are_read() {
    let (registry, model) = kitchen();
    let system = ContentSlot::computed(|_| async { Ok(Part::resource("house://secret").into()) });
    let house = agent(&registry, "house").system(system).define().unwrap();

    sent(&house, json!({}), json!({"text": "hi"}), Context::new())
        .await
        .unwrap();
    assert_eq!(
        asked(&model.last_request().unwrap())[0],
        "system: The safe is behind the stove."
    );

    house
        .run(Message::user(Part::resource("recipe://soup")))
        .await
        .unwrap();
    assert_eq!(
        asked(&model.last_request().unwrap())[1],
        "user: How to cook soup."
    );
}

#[tokio::test]
async fn a_client_sends_a_bounded_number_of_links_and_each_is_read_once() {
    let model = ScriptedModel::new().otherwise(|_| "fine");
    let registry = registry(&model);
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let pages = Resource::template("page://{number}", move |input| {
        let counted = Arc::clone(&counted);
        async move {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok("x".repeat(input.variables["number"].parse().unwrap()))
        }
    });
    define_resource(&registry, &pages.unwrap()).unwrap();
    let chef = agent(&registry, "chef").resources(["page://{number}"]);
    let chef = chef.define().unwrap();
    let links = |uri: &str, count: usize| json!(vec![link(uri); count]);
    let call = async |input: Value, init: Value| {
        let call = JsonCall {
            input: Some(json!({"message": {"role": "user", "content": input}})),
            init: Some(init),
            ..JsonCall::default()
        };
        chef.action().run_json(call).await
    };

    call(links("page://8", 32), json!({})).await.unwrap();
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    let refused = call(links("page://8", 33), json!({})).await.unwrap_err();
    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(
        refused.public_message().unwrap().contains("accepts 32 links"),
        "{refused}"
    );
    let kept = json!({"state": {"messages": [{"role": "user", "content": links("page://8", 33)}]}});
    let refused = call(json!([{"text": "hi"}]), kept).await.unwrap_err();
    assert_eq!(refused.status(), Status::InvalidArgument);
    assert_eq!(reads.load(Ordering::SeqCst), 1);

    let large = call(links("page://3000000", 3), json!({})).await.unwrap();
    assert_eq!(large["error"]["status"], "RESOURCE_EXHAUSTED", "{large}");
    let told = large["error"]["message"].as_str().unwrap();
    assert!(
        told.contains("8388608 bytes") && told.contains("'page://3000000'"),
        "{told}"
    );
    model.assert_calls(1);

    let permissions = &chef.action().descriptor().metadata["everturn"]["clientPermissions"];
    assert_eq!(permissions, &json!(["resources.page://{number}"]));
}
