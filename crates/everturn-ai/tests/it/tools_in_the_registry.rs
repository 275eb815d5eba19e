//! Tools as actions.

use everturn_ai::{
    Generate, ModelInfo, ModelResponse, MultipartToolResponse, NoInput, Tool, ToolContext, define_model,
    lookup_tool, lookup_tools,
};
use everturn_core::{Action, ActionType, Context, JsonCall, Reason, Registry, Status};
use serde_json::{Value, json};
use std::sync::Arc;

fn double() -> Tool {
    Tool::new(
        "maths/double",
        "Doubles.",
        |n: i64, _cx: ToolContext| async move { Ok(n * 2) },
    )
}

#[tokio::test]
async fn one_tool_answers_in_two_forms() {
    let registry = Registry::new();
    double().register(&registry).unwrap();
    let run = async |key: &str| {
        registry
            .get(key)
            .unwrap()
            .run_json(JsonCall::new(21))
            .await
            .unwrap()
    };

    assert_eq!(run("/tool/maths/double").await, 42);
    assert_eq!(run("/tool.v2/maths/double").await, json!({ "output": 42 }));
}

#[tokio::test]
async fn a_multipart_tool_has_one_form() {
    let registry = Registry::new();
    let tool = Tool::multipart("look", "Looks.", |_: NoInput, _cx: ToolContext| async {
        Ok(MultipartToolResponse::default())
    });
    tool.register(&registry).unwrap();

    assert!(registry.get("/tool/look").is_none());
    assert_eq!(
        registry.get("/tool.v2/look").unwrap().descriptor().metadata["tool"],
        json!({ "multipart": true })
    );
}

#[tokio::test]
async fn a_tool_is_found_by_name_and_by_key_and_is_the_same_tool() {
    let registry = Registry::new();
    double().register(&registry).unwrap();

    for name in ["maths/double", "/tool/maths/double", "/tool.v2/maths/double"] {
        let found = lookup_tool(&registry, name).await.unwrap();
        assert_eq!(found.run(4).await.unwrap().output, Some(json!(8)), "{name}");
        assert_eq!(found.definition().key.as_deref(), Some("/tool/maths/double"));
    }
    assert_eq!(
        lookup_tool(&registry, "maths/triple").await.unwrap_err().status(),
        Status::NotFound
    );
}

#[tokio::test]
async fn any_action_can_be_a_tool() {
    let registry = Registry::new();
    let action = Action::new(ActionType::PROMPT, "greet", |name: String, _context| async move {
        Ok(format!("Hi {name}"))
    });
    registry.register(Arc::new(action)).unwrap();

    let tool = lookup_tool(&registry, "greet").await.unwrap();

    assert_eq!(tool.run("Ada").await.unwrap().output, Some(json!("Hi Ada")));
    assert_eq!(tool.definition().key.as_deref(), Some("/prompt/greet"));
}

#[tokio::test]
async fn input_is_checked_and_a_missing_object_is_an_empty_one() {
    let none = Tool::new("none", "Takes nothing.", |_: NoInput, _cx: ToolContext| async {
        Ok("fine")
    });

    assert_eq!(
        none.run_in(None, ToolContext::new(Context::default()))
            .await
            .unwrap()
            .output,
        Some(json!("fine"))
    );
    assert_eq!(none.run(Value::Null).await.unwrap().output, Some(json!("fine")));
    let error = double().run("four").await.unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.is(Reason::INVALID_INPUT));
}

#[tokio::test]
async fn output_that_breaks_the_tools_promise_is_its_own_fault() {
    let liar = Tool::dynamic("liar", "d", None, |_input, _cx: ToolContext| async {
        Ok(json!("text"))
    });
    let liar = liar.with_output_schema(everturn_core::Schema::of::<u32>());

    let error = liar.run(()).await.unwrap_err();

    assert_eq!(error.status(), Status::Internal);
    assert!(error.is(Reason::INVALID_OUTPUT));
}

#[tokio::test]
async fn all_tools_of_a_plugin_are_found_by_its_name() {
    let registry = Registry::new();
    for name in ["maths/double", "maths/half", "mathsless/other"] {
        double().named(name).register(&registry).unwrap();
    }

    let found = lookup_tools(&registry, "maths/*").await.unwrap();
    let missing = lookup_tools(&registry, "music/*").await.unwrap_err();

    let names: Vec<_> = found.iter().map(Tool::name).collect();
    assert_eq!(names, ["maths/double", "maths/half"]);
    assert_eq!(missing.status(), Status::NotFound);
}

#[tokio::test]
async fn tools_of_two_mcp_servers_with_one_name_get_distinct_names() {
    let registry = Registry::new();
    let mark = json!({ "mcp": {} }).as_object().cloned().unwrap();
    for name in ["a/look", "b/look"] {
        let tool = double().named(name).with_metadata(mark.clone());
        tool.register(&registry).unwrap();
    }
    define_model(
        &registry,
        "names",
        ModelInfo::default(),
        |request, _, _| async move {
            let names: Vec<_> = request
                .tools
                .iter()
                .flat_map(|tools| tools.iter())
                .map(|tool| tool.name.clone())
                .collect();
            Ok(ModelResponse::text_of(names.join(" ")))
        },
    )
    .unwrap();

    let generate = Generate::new(&registry).model("names").prompt("Which?");
    let reply = generate.tool("a/*").tool("b/*").await.unwrap();

    assert_eq!(reply.text(), "look b_look");
}
