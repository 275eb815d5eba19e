//! `#[tool]`, as users of this crate write it.

use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel, with_session};

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    pantry: Vec<String>,
}

/// Puts something into the pantry.
#[tool]
async fn stock(item: String, kitchen: Session<Kitchen>) -> Result<usize> {
    Ok(kitchen.update_custom(|kitchen| {
        kitchen.pantry.push(item);
        kitchen.pantry.len()
    }))
}

#[tokio::test]
async fn a_tool_changes_the_state_of_its_session_and_the_prompt_shows_it() {
    let model = ScriptedModel::new()
        .reply(Reply::tool("stock", json!({"item": "leeks"})))
        .reply("Stocked.")
        .reply("Soup.");
    let app = Everturn::builder()
        .model("scripted", model.clone())
        .default_model("scripted")
        .build()
        .await
        .unwrap();
    let chef = app
        .agent("chef")
        .custom::<Kitchen>()
        .system("The pantry holds {{#each @custom.pantry}}{{this}}{{/each}}.")
        .tool(stock)
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let mut chat = chef.chat().open().await.unwrap();
    chat.run("I bought leeks.").await.unwrap();
    chat.run("Now cook.").await.unwrap();

    assert_eq!(chat.custom().unwrap().pantry, ["leeks"]);
    assert!(
        model.requests()[2]
            .messages
            .first()
            .unwrap()
            .text()
            .contains("The pantry holds leeks.")
    );
}

#[tokio::test]
async fn the_model_receives_the_description_of_the_tool() {
    let model = ScriptedModel::new().reply("Fine.");
    let app = Everturn::builder()
        .model("scripted", model.clone())
        .build()
        .await
        .unwrap();

    app.generate()
        .model("scripted")
        .prompt("Hello")
        .tool(stock)
        .run()
        .await
        .unwrap();

    model.assert_asked(
        0,
        &json!({"tools": [{
            "name": "stock",
            "description": "Puts something into the pantry.",
            "inputSchema": {"properties": {"item": {"type": "string"}}, "required": ["item"]},
        }]}),
    );
}

#[tokio::test]
async fn outside_an_agent_a_tool_finds_no_session() {
    let error = stock.tool().run(json!({"item": "leeks"})).await.unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
}

#[tokio::test]
async fn an_agent_with_another_state_refuses_the_tool() {
    let app = Everturn::builder().build().await.unwrap();

    let error = app.agent("chef").tool(stock).define().unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(
        error.message().contains("'stock'") && error.message().contains("'chef'"),
        "{error}"
    );
    assert!(error.message().contains("Kitchen"), "{error}");
}

#[tokio::test]
async fn a_tool_that_works_on_a_session_is_tested_without_an_agent() {
    let begun = Kitchen {
        pantry: vec!["leeks".into()],
    };

    let (count, kitchen) = with_session(begun, |session| async move {
        let reply = stock.tool().run(json!({"item": "butter"})).await.unwrap();
        (reply.output, session.custom())
    })
    .await;
    let outside = stock.tool().run(json!({"item": "butter"})).await.unwrap_err();

    assert_eq!(count, Some(json!(2)));
    assert_eq!(kitchen.pantry, ["leeks", "butter"]);
    assert_eq!(outside.status(), Status::FailedPrecondition);
}
