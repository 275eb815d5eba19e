//! Agents around the prompts of a folder.

use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/prompts");

/// Counts the words of a text.
#[tool]
async fn measure(text: String) -> usize {
    text.split_whitespace().count()
}

async fn app(model: &ScriptedModel) -> Everturn {
    let builder = Everturn::builder()
        .model("scripted", model.clone())
        .default_model("scripted");
    builder
        .tool(measure)
        .prompts(FOLDER)
        .build()
        .await
        .expect("the folder's prompts compile")
}

#[tokio::test]
async fn one_file_backs_many_agents() {
    let model = ScriptedModel::new().reply("Lovely.").reply("Dreadful.");
    let app = app(&model).await;

    let kind = app
        .prompt_agent("kind")
        .prompt("reviewer", json!({"tone": "kind"}))
        .define()
        .unwrap();
    let harsh = app
        .prompt_agent("harsh")
        .prompt("reviewer", json!({"tone": "harsh"}))
        .define()
        .unwrap();
    kind.run_text("My soup.").await.unwrap();
    harsh.run_text("My soup.").await.unwrap();

    for (call, tone) in [(0, "kind"), (1, "harsh")] {
        let request = &model.requests()[call];
        let system = request.messages.first().unwrap();
        assert_eq!(system.role(), Role::System);
        assert!(
            system
                .text()
                .contains(&format!("Be {tone}. Sign with your name.")),
            "{}",
            system.text()
        );
    }
}

#[tokio::test]
async fn an_agent_has_the_prompt_of_its_own_name_and_a_conversation_its_own_input() {
    let model = ScriptedModel::new().reply("Hm.");
    let app = app(&model).await;

    let reviewer = app
        .prompt_agent("reviewer")
        .prompt_input(json!({"tone": "kind"}))
        .define()
        .unwrap();
    reviewer
        .chat()
        .prompt_input(json!({"tone": "terse"}))
        .run("My soup.")
        .await
        .unwrap();

    assert!(
        model.requests()[0]
            .messages
            .first()
            .unwrap()
            .text()
            .contains("Be terse.")
    );
}

#[tokio::test]
async fn a_prompt_finds_the_tools_of_the_application_by_name() {
    let model = ScriptedModel::new()
        .reply(Reply::tool("measure", json!({"text": "one two three"})))
        .reply("Three.");
    let app = app(&model).await;

    let reviewer = app
        .prompt_agent("reviewer")
        .prompt_input(json!({"tone": "kind"}))
        .define()
        .unwrap();
    let reply = reviewer.run_text("How long is it?").await.unwrap();

    assert_eq!(reply.text(), "Three.");
    model.assert_asked(
        1,
        &json!({"messages": [{"content": [{"toolResponse": {"name": "measure", "output": 3}}]}]}),
    );
}

#[tokio::test]
async fn an_agent_without_a_prompt_is_refused() {
    let app = app(&ScriptedModel::new()).await;

    let error = app.prompt_agent("nobody").define().unwrap_err();

    assert_eq!(error.status(), Status::NotFound);
    assert!(error.message().contains("nobody"), "{error}");
}
