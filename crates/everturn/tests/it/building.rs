//! What `build` and `define` refuse.

use everturn::prelude::*;
use everturn::testkit::EchoModel;

/// Tells the time.
#[tool]
async fn clock() -> String {
    "noon".to_owned()
}

#[tokio::test]
async fn two_models_of_one_name_are_refused() {
    let twice = Everturn::builder()
        .model("echo", EchoModel)
        .model("echo", EchoModel);

    let error = twice.build().await.unwrap_err();

    assert_eq!(error.status(), Status::AlreadyExists);
    assert!(error.message().contains("echo"), "{error}");
}

#[tokio::test]
async fn two_tools_of_one_name_are_refused() {
    let error = Everturn::builder()
        .tool(clock)
        .tool(clock)
        .build()
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::AlreadyExists);
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
async fn an_option_said_twice_is_refused() {
    let app = Everturn::builder().build().await.unwrap();

    let error = app
        .agent("chef")
        .store(MemoryStore::new())
        .store(MemoryStore::new())
        .define()
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("store"), "{error}");
}
