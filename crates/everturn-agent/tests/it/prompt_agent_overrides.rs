//! Settings over a named prompt: the call's go before the agent's, the agent's before the file's, the file's
//! before the defaults.

use std::fs;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use everturn_agent::{AgentBuilder, NamedPrompt, prompt_agent};
use everturn_ai::prompt::{PromptOverrides, load_prompts};
use everturn_ai::{
    GenerateRound, Middleware, ModelResponse, NextRound, NoInput, Tool, ToolChoice, ToolContext,
    set_default_model,
};
use everturn_core::{HandlerResult, Registry, Status};
use everturn_testkit::ScriptedModel;
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::prompt_support::json;

const CRITIC: &str = r#"---
model: of-file
config:
  temperature: 0.1
  topK: 1
tools: [of-file]
toolChoice: none
output:
  schema:
    verdict: string
use: [noted-by-file]
---
{{role "system"}}
Be kind.
"#;

/// The models and tools of each level, and which middleware has run.
struct Levels {
    registry: Registry,
    models: [ScriptedModel; 4],
    ran: Arc<Mutex<Vec<&'static str>>>,
    _folder: tempfile::TempDir,
}

const LEVELS: [&str; 4] = ["of-call", "of-agent", "of-file", "of-default"];

#[derive(Clone)]
struct Noted(&'static str, Arc<Mutex<Vec<&'static str>>>);

#[async_trait]
impl Middleware for Noted {
    async fn generate(&self, round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        self.1.lock().unwrap().push(self.0);
        Ok(next.run(round).await?)
    }
}

fn tool(name: &str) -> Tool {
    Tool::new(name, "Does nothing.", |_: NoInput, _: ToolContext| async {
        Ok("done")
    })
}

fn levels(file: &str) -> Levels {
    let registry = Registry::new();
    let models = LEVELS.map(|name| {
        let model = ScriptedModel::new().otherwise(|_| r#"{"verdict": "fine"}"#);
        model.register(&registry, name).unwrap();
        model
    });
    set_default_model(&registry, "of-default");
    tool("of-file").register(&registry).unwrap();
    let ran = Arc::new(Mutex::default());
    let of_file = Arc::clone(&ran);
    let noted = everturn_ai::MiddlewareDefinition::new("noted-by-file", move |_: Value, _: &Registry| {
        Ok(Noted("file", Arc::clone(&of_file)))
    });
    everturn_ai::define_middleware(&registry, noted).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("critic.prompt"), file).unwrap();
    load_prompts(&registry, folder.path()).unwrap();
    Levels {
        registry,
        models,
        ran,
        _folder: folder,
    }
}

impl Levels {
    fn critic(&self) -> AgentBuilder<Value, NamedPrompt> {
        prompt_agent(&self.registry, "critic")
    }

    /// The model that was called, and its configuration.
    fn asked(&self) -> (&'static str, Value) {
        let asked =
            |(name, model): (&'static str, &ScriptedModel)| Some((name, json(&model.last_request()?)));
        let all: Vec<_> = LEVELS.into_iter().zip(&self.models).filter_map(asked).collect();
        assert_eq!(all.len(), 1, "one model is asked");
        all.into_iter().next().unwrap()
    }
}

fn tools(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["name"].as_str()).collect()
}

#[tokio::test]
async fn without_anything_said_the_default_model_is_asked() {
    let levels = levels("Be kind.");

    levels
        .critic()
        .define()
        .unwrap()
        .run_text("my soup?")
        .await
        .unwrap();

    assert_eq!(levels.asked().0, "of-default");
}

#[tokio::test]
async fn the_files_settings_go_before_the_defaults() {
    let levels = levels(CRITIC);

    levels
        .critic()
        .define()
        .unwrap()
        .run_text("my soup?")
        .await
        .unwrap();

    let (model, request) = levels.asked();
    assert_eq!(model, "of-file");
    assert_eq!(request["config"], json!({"temperature": 0.1, "topK": 1}));
    assert_eq!(tools(&request), ["of-file"]);
    assert_eq!(request["toolChoice"], "none");
    assert!(
        request["messages"].to_string().contains("verdict"),
        "the model is told the schema"
    );
    assert_eq!(*levels.ran.lock().unwrap(), ["file"]);
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Stars {
    stars: u32,
}

#[tokio::test]
async fn the_agents_settings_go_before_the_files() {
    let levels = levels(CRITIC);
    let critic = levels
        .critic()
        .model("of-agent")
        .config(json!({"temperature": 0.9}))
        .tool(tool("of-agent"))
        .tool_choice(ToolChoice::Auto)
        .output::<Stars>()
        .use_middleware(Noted("agent", Arc::clone(&levels.ran)))
        .define()
        .unwrap();
    levels.models[1].push(r#"{"stars": 3}"#);

    critic.run_text("my soup?").await.unwrap();

    let (model, request) = levels.asked();
    assert_eq!(model, "of-agent");
    assert_eq!(request["config"], json!({"temperature": 0.9, "topK": 1}));
    assert_eq!(tools(&request), ["of-agent"]);
    assert_eq!(request["toolChoice"], "auto");
    let told = request["messages"].to_string();
    assert!(told.contains("stars") && !told.contains("verdict"), "{told}");
    assert_eq!(*levels.ran.lock().unwrap(), ["agent"]);
}

#[tokio::test]
async fn the_calls_settings_go_before_the_agents() {
    let levels = levels(CRITIC);
    let critic = levels
        .critic()
        .model("of-agent")
        .config(json!({"temperature": 0.9}))
        .tools([tool("of-agent")])
        .tool_choice(ToolChoice::Auto)
        .use_middleware(Noted("agent", Arc::clone(&levels.ran)))
        .define()
        .unwrap();
    let overrides = PromptOverrides::new()
        .model("of-call")
        .config(json!({"topK": 7}))
        .tools([tool("of-call")])
        .tool_choice(ToolChoice::Required)
        .output_format("text")
        .use_middleware(Noted("call", Arc::clone(&levels.ran)));

    critic.chat().overrides(overrides).run("my soup?").await.unwrap();

    let (model, request) = levels.asked();
    assert_eq!(model, "of-call");
    assert_eq!(request["config"], json!({"temperature": 0.9, "topK": 7}));
    assert_eq!(tools(&request), ["of-call"]);
    assert_eq!(request["toolChoice"], "required");
    assert!(!request["messages"].to_string().contains("verdict"), "{request}");
    assert_eq!(*levels.ran.lock().unwrap(), ["call"]);
}

#[tokio::test]
async fn the_calls_settings_are_for_every_turn_of_the_chat_and_for_no_other() {
    let levels = levels("Be kind.");
    let critic = levels.critic().define().unwrap();
    let overrides = PromptOverrides::new().model("of-call");

    let mut chat = critic.chat().overrides(overrides).open().await.unwrap();
    chat.run("my soup?").await.unwrap();
    chat.run("my stew?").await.unwrap();
    critic.run_text("my roast?").await.unwrap();

    levels.models[0].assert_calls(2);
    levels.models[3].assert_calls(1);
}

#[tokio::test]
async fn settings_that_cannot_be_written_as_json_are_found_when_the_agent_is_defined() {
    let levels = levels("Be kind.");

    let broken = levels.critic().config(Unwritable).define().unwrap_err();

    assert_eq!(broken.status(), Status::Internal);
    assert!(broken.message().contains("'critic'"), "{broken}");
}

struct Unwritable;

impl serde::Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("not today"))
    }
}
