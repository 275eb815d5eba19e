//! The settings that `build` and `define` accept and reject.

use std::sync::Arc;

use everturn::agent::store::{Detail, Scope};
use everturn::core::{BoxFuture, Plugin, Registry};
use everturn::prelude::*;
use everturn::testkit::ScriptedModel;

/// Tells the time.
#[tool]
async fn clock() -> String {
    "noon".to_owned()
}

/// Counts the words of a text, as a prompt of the folder wants it.
#[tool]
async fn measure(text: String) -> usize {
    text.split_whitespace().count()
}

#[tokio::test]
async fn of_two_models_or_tools_of_one_name_the_last_is_taken() {
    let app = Everturn::builder()
        .model("chef", ScriptedModel::new().reply("the first"))
        .model("chef", ScriptedModel::new().reply("the last"))
        .tool(clock)
        .tool(clock.tool().with_metadata(object(&json!({ "given": "last" }))))
        .tool(measure)
        .prompts("tests/prompts")
        .prompts("tests/prompts")
        .build()
        .await
        .unwrap();

    let reply = app.generate().model("chef").prompt("Who?").await.unwrap();
    let tool = everturn::ai::lookup_tool(app.registry(), "clock").await.unwrap();

    assert_eq!(reply.text(), "the last");
    assert_eq!(tool.metadata()["given"], "last");
}

fn object(value: &Value) -> everturn::ai::JsonObject {
    value.as_object().cloned().unwrap()
}

/// A plugin that is slow to set up, and may fail.
struct Slow {
    key: Option<&'static str>,
}

impl Plugin for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn set_up<'a>(&'a self, registry: &'a Registry) -> BoxFuture<'a, HandlerResult<()>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let key = self
                .key
                .ok_or_else(|| Error::failed_precondition("SLOW_KEY is not set"))?;
            registry.define_flow(key, |(): ()| async { Ok(()) })?;
            Ok(())
        })
    }
}

#[tokio::test]
async fn building_waits_until_plugins_are_set_up_and_the_last_of_a_name_is_taken() {
    let app = Everturn::builder()
        .plugin(Slow { key: None })
        .plugin(Slow { key: Some("opened") })
        .build()
        .await
        .unwrap();

    assert!(app.registry().get("/flow/opened").is_some());
}

#[tokio::test]
async fn a_plugin_that_cannot_be_set_up_fails_the_build_and_is_named() {
    let error = Everturn::builder()
        .plugin(Slow { key: None })
        .build()
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(error.message().contains("plugin 'slow'"), "{error}");
    assert!(error.message().contains("SLOW_KEY"), "{error}");
}

#[tokio::test]
async fn two_agents_of_one_name_are_refused() {
    let app = Everturn::builder().build().await.unwrap();
    app.agent("chef").system("You are a chef.").define().unwrap();

    let error = app
        .agent("chef")
        .system("You are another chef.")
        .define()
        .unwrap_err();

    assert_eq!(error.status(), Status::AlreadyExists);
}

#[tokio::test]
async fn a_missing_prompt_folder_is_named() {
    let error = Everturn::builder()
        .prompts("no/such/folder")
        .build()
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::NotFound);
    assert!(error.message().contains("no/such/folder"), "{error}");
}

#[tokio::test]
async fn a_tool_that_is_only_a_name_cannot_be_registered() {
    let error = Everturn::builder().tool("clock").build().await.unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn the_last_of_two_settings_is_taken() {
    let app = Everturn::builder()
        .model("chef", ScriptedModel::new().reply("Soup."))
        .default_model("chef")
        .build()
        .await
        .unwrap();
    let (first, last) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let chef = app
        .agent("chef")
        .system("You are a cook.")
        .system("You are a chef.")
        .store(Arc::clone(&first))
        .store(Arc::clone(&last))
        .define()
        .unwrap();

    let chat = chef.chat().resume("lunch").resume("dinner");
    let reply = chat.run("What is there?").await.unwrap();

    let is_in = async |store: &MemoryStore| {
        let found = store
            .latest(&Scope::default(), &"dinner".into(), Detail::Metadata)
            .await;
        found.unwrap().is_some()
    };
    assert_eq!(reply.session_id(), Some(&"dinner".into()));
    assert!(is_in(&last).await && !is_in(&first).await);
}
