//! Prompts from a folder: names, variants, partials, frontmatter, reloading.

use std::fs;
use std::path::Path;

use everturn_ai::prompt::{Prompt, PromptDefinition, PromptFolder, check_names, load_prompts};
use everturn_ai::{
    Middleware, MiddlewareDefinition, ModelInfo, ModelResponse, Tool, ToolContext, define_middleware,
    define_model,
};
use everturn_core::{ActionType, JsonCall, Registry, Schema, Status};
use serde_json::{Value, json};

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, source) in files {
        write(folder.path(), name, source);
    }
    folder
}

fn write(folder: &Path, name: &str, source: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, source).unwrap();
}

async fn text(registry: &Registry, name: &str, input: Value) -> String {
    let request = Prompt::lookup(registry, name)
        .unwrap()
        .render(input)
        .await
        .unwrap();
    request.messages.last().unwrap().text().into_owned()
}

#[tokio::test]
async fn names_variants_folders_and_partials_follow_the_layout() {
    let folder = folder(&[
        ("chef.prompt", "plain {{> style}}"),
        ("chef.french.prompt", "bonjour {{> style}}"),
        ("kitchen/deep/chef.prompt", "deep"),
        ("kitchen/_style.prompt", "with style"),
        ("notes.txt", "not a prompt"),
    ]);
    let registry = Registry::new();

    let loaded = load_prompts(&registry, folder.path()).unwrap();

    assert_eq!(
        loaded.names().collect::<Vec<_>>(),
        ["chef", "chef.french", "kitchen/deep/chef"]
    );
    assert_eq!(text(&registry, "chef", Value::Null).await, "plain with style");
    assert_eq!(
        text(&registry, "chef.french", Value::Null).await,
        "bonjour with style"
    );
    assert_eq!(text(&registry, "kitchen/deep/chef", Value::Null).await, "deep");
}

struct Quiet;
impl Middleware for Quiet {}

#[tokio::test]
async fn the_frontmatter_holds_everything_a_call_needs() {
    let source = "---\nmodel: cook\nconfig:\n  temperature: 0.5\ndescription: Asks for a dish.\ninput:\n  schema:\n    \
                  dish: string\n  default:\n    dish: soup\noutput:\n  schema: Recipe\ntools: [season]\n\
                  toolChoice: required\nmaxTurns: 2\nuse:\n  - quiet\n  - name: quiet\n    config: {}\n---\nMake {{dish}}.\n";
    let folder = folder(&[("recipe.prompt", source)]);
    let registry = Registry::new();
    registry
        .register_schema("Recipe", Schema::from_json(json!({"type": "object"})).unwrap())
        .unwrap();
    Tool::new(
        "season",
        "What is in season.",
        |month: u8, _: ToolContext| async move { Ok(month) },
    )
    .register(&registry)
    .unwrap();
    define_middleware(
        &registry,
        MiddlewareDefinition::new("quiet", |_: Value, _: &Registry| Ok(Quiet)),
    )
    .unwrap();
    load_prompts(&registry, folder.path()).unwrap();

    let request = Prompt::lookup(&registry, "recipe")
        .unwrap()
        .render(Value::Null)
        .await
        .unwrap();
    let action = registry
        .resolve(&ActionType::EXECUTABLE_PROMPT.key("recipe"))
        .await
        .unwrap();
    let options = action.run_json(JsonCall::default()).await.unwrap();

    assert_eq!(
        request.messages.last().unwrap().text().lines().next(),
        Some("Make soup.")
    );
    assert_eq!(request.config, Some(json!({"temperature": 0.5})));
    assert_eq!(request.tools().len(), 1);
    assert_eq!(
        action.descriptor().description.as_deref(),
        Some("Asks for a dish.")
    );
    assert_eq!(options["model"], "cook");
    assert_eq!(options["tools"], json!(["/tool/season"]));
    assert_eq!(options["toolChoice"], "required");
    assert_eq!(options["maxTurns"], 2);
    assert_eq!(
        options["use"],
        json!([{"name": "quiet"}, {"name": "quiet", "config": {}}])
    );
    assert_eq!(options["output"]["jsonSchema"], json!({"type": "object"}));
}

#[tokio::test]
async fn an_input_of_the_wrong_type_is_refused_by_the_action() {
    let folder = folder(&[(
        "p.prompt",
        "---\ninput:\n  schema:\n    dish: string\n---\n{{dish}}\n",
    )]);
    let registry = Registry::new();
    load_prompts(&registry, folder.path()).unwrap();
    let action = registry.resolve("/prompt/p").await.unwrap();

    let error = action
        .run_json(JsonCall::new(json!({"dish": 7})))
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("/dish"), "{error}");
}

#[tokio::test]
async fn a_prompt_runs_with_its_model_and_reads_its_output_as_a_type() {
    let folder = folder(&[(
        "count.prompt",
        "---\nmodel: counter\noutput:\n  format: json\n---\nCount {{what}}.\n",
    )]);
    let registry = Registry::new();
    define_model(
        &registry,
        "counter",
        ModelInfo::default(),
        |_request, _emitter, _context| async { Ok(ModelResponse::text_of("[1, 2, 3]")) },
    )
    .unwrap();
    load_prompts(&registry, folder.path()).unwrap();

    let prompt = Prompt::lookup(&registry, "count")
        .unwrap()
        .typed::<Value, Vec<u8>>();
    let reply = prompt.generate(json!({"what": "leeks"})).await.unwrap();

    assert_eq!(reply.output().unwrap(), [1, 2, 3]);
}

#[tokio::test]
async fn a_changed_file_or_partial_is_read_again_while_developing() {
    let folder = folder(&[("p.prompt", "one {{> tail}}"), ("_tail.prompt", "end")]);
    let registry = Registry::new();
    PromptFolder::reloading(&registry, folder.path()).unwrap();
    assert_eq!(text(&registry, "p", Value::Null).await, "one end");

    write(folder.path(), "p.prompt", "another one {{> tail}}");
    write(folder.path(), "_tail.prompt", "the new end");

    assert_eq!(text(&registry, "p", Value::Null).await, "another one the new end");
}

#[test]
fn mistakes_show_when_the_folder_is_loaded() {
    let broken = folder(&[("p.prompt", "---\nmodel: m\n---\nfine\n{{#if}}")]);
    let wrong = folder(&[("p.prompt", "---\nmaxTurns: many\n---\nhi\n")]);

    let place = load_prompts(&Registry::new(), broken.path()).unwrap_err();
    let turns = load_prompts(&Registry::new(), wrong.path()).unwrap_err();
    let missing = load_prompts(&Registry::new(), "no/such/folder").unwrap_err();

    assert!(place.message().contains("p.prompt:5"), "{place}");
    assert!(turns.message().contains("maxTurns"), "{turns}");
    assert_eq!(missing.status(), Status::NotFound);
}

#[test]
fn one_error_lists_the_mistakes_of_all_files() {
    let folder = folder(&[
        (
            "a.prompt",
            "---\nmodle: cook\n---\nhi\n{{> nowhere}} {{#if x}}{{> elsewhere}}{{/if}}\n",
        ),
        ("b.prompt", "---\nmodel: [never closed\n---\nhi\n"),
        (
            "c.prompt",
            "---\ninput:\n  shema:\n    dish: string\nmaxTurns: many\nmy.note: fine\n---\nhi\n",
        ),
        (
            "d.prompt",
            "{{> style}}{{> (lookup . \"name\")}}{{#> absent}}a fallback{{/absent}}",
        ),
        ("_style.prompt", "brief"),
    ]);

    let error = load_prompts(&Registry::new(), folder.path()).unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    let listed = [
        "a.prompt:2:1: unknown key 'modle': did you mean 'model'?",
        "a.prompt:5:1: unknown partial 'nowhere'",
        "a.prompt:5:24: unknown partial 'elsewhere'",
        "b.prompt:",
        "c.prompt:3:3: unknown key 'input.shema': did you mean 'schema'?",
        "c.prompt:5:1: 'maxTurns':",
    ];
    for mistake in listed {
        assert!(error.message().contains(mistake), "{mistake}: {error}");
    }
    assert_eq!(error.message().lines().count(), 1 + listed.len(), "{error}");
}

#[tokio::test]
async fn names_that_stand_for_nothing_are_listed_with_their_places() {
    let source = "---\nmodel: cok\ntools:\n  - seson\n  - files/*\nuse: [quiet, {name: loud}]\n---\nhi\n";
    let folder = folder(&[("chef.prompt", source)]);
    let registry = Registry::new();
    let quiet = MiddlewareDefinition::new("quiet", |_: Value, _: &Registry| Ok(Quiet));
    define_middleware(&registry, quiet).unwrap();
    load_prompts(&registry, folder.path()).unwrap();
    PromptDefinition::new("waiter")
        .model("waitr")
        .prompt("hi")
        .define(&registry)
        .unwrap();

    let error = check_names(&registry).await.into_result().unwrap_err();

    let listed = [
        "chef.prompt:2:1: no model 'cok' is registered",
        "chef.prompt:4:5: no tool 'seson' is registered",
        "chef.prompt:5:5: no tool is registered whose name begins with 'files/'",
        "chef.prompt:6:1: no middleware 'loud' is registered",
        "prompt 'waiter': no model 'waitr' is registered",
    ];
    for mistake in listed {
        assert!(error.message().contains(mistake), "{mistake}: {error}");
    }
    assert_eq!(error.message().lines().count(), 1 + listed.len(), "{error}");
}
