//! Agents around prompts from files.

use std::fs;

use everturn_agent::prompt_agent;
use everturn_ai::prompt::load_prompts;
use everturn_ai::{NoInput, Tool, ToolContext};
use everturn_testkit::Reply;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::prompt_support::{answering, asked, said};

const CHEF: &str = r#"---
config:
  temperature: 0.3
input:
  default:
    cuisine: French
tools: [pantry]
---
{{role "system"}}
You cook {{cuisine}} food. {{>style}} The oven is {{@state.oven}}.
{{history}}
"#;

#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    oven: String,
}

#[tokio::test]
async fn a_file_of_the_agents_name_is_its_prompt() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("chef.prompt"), CHEF).unwrap();
    fs::write(folder.path().join("_style.prompt"), "Be brief.").unwrap();
    let (registry, model) = answering([Reply::tool("pantry", json!({})), "Soup.".into(), "Stew.".into()]);
    let pantry = Tool::new("pantry", "Looks.", |_: NoInput, _: ToolContext| async {
        Ok("leeks")
    });
    pantry.register(&registry).unwrap();
    load_prompts(&registry, folder.path()).unwrap();

    let chef = prompt_agent(&registry, "chef")
        .custom::<Kitchen>()
        .define()
        .unwrap();
    let mut chat = chef
        .chat()
        .custom(Kitchen {
            oven: "hot".to_owned(),
        })
        .open()
        .await
        .unwrap();
    chat.run("what can you make?").await.unwrap();
    chat.run("and tomorrow?").await.unwrap();

    let request = model.requests().remove(2);
    let asked = asked(&request);
    assert!(
        asked[0].contains("You cook French food. Be brief. The oven is hot."),
        "{asked:?}"
    );
    assert_eq!(asked[1], "user: what can you make?");
    assert_eq!(asked.last().unwrap(), "user: and tomorrow?");
    assert_eq!(request.config, Some(json!({"temperature": 0.3})));
    assert_eq!(
        said(chat.messages()),
        [
            "user: what can you make?",
            "model: ask(pantry)",
            "tool: answer(\"leeks\")",
            "model: Soup.",
            "user: and tomorrow?",
            "model: Stew.",
        ]
    );
}

#[tokio::test]
async fn a_variant_in_a_folder_is_named_in_full() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("kitchen")).unwrap();
    fs::write(
        folder.path().join("kitchen/chef.french.prompt"),
        "{{role \"system\"}}Bonjour{{history}}",
    )
    .unwrap();
    let (registry, model) = answering(["Soupe."]);
    load_prompts(&registry, folder.path()).unwrap();

    let chef = prompt_agent(&registry, "chef")
        .prompt("kitchen/chef.french", Value::Null)
        .define()
        .unwrap();
    chef.run_text("leeks?").await.unwrap();

    assert_eq!(asked(&model.requests()[0]), ["system: Bonjour", "user: leeks?"]);
}
