//! Mistakes in prompts and agents are found when the application is built or served, all at once.

use std::fs;

use everturn::prelude::*;
use everturn::testkit::EchoModel;
use tempfile::TempDir;

/// Tells what is in season.
#[tool]
async fn in_season() -> String {
    "leeks".to_owned()
}

fn prompts(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, source) in files {
        fs::write(folder.path().join(name), source).unwrap();
    }
    folder
}

fn assert_lists(error: &Error, mistakes: &[&str]) {
    assert_eq!(error.status(), Status::InvalidArgument, "{error}");
    for mistake in mistakes {
        assert!(error.message().contains(mistake), "{mistake}: {error}");
    }
    assert_eq!(error.message().lines().count(), 1 + mistakes.len(), "{error}");
}

#[tokio::test]
async fn building_lists_every_mistake_of_every_folder() {
    let first = prompts(&[
        (
            "chef.prompt",
            "---\nmodle: echo\ntools: [in_season, in_seson]\n---\nYou cook.\n{{>style}}\n",
        ),
        (
            "waiter.prompt",
            "---\nmodel: nobody\nuse:\n  - quiet\n---\nYou serve.\n",
        ),
    ]);
    let second = prompts(&[(
        "broken.prompt",
        "---\nmodel: echo\ntools: [in_season\n---\nYou break.\n",
    )]);

    let error = Everturn::builder()
        .model("echo", EchoModel)
        .tool(in_season)
        .prompts(first.path())
        .prompts(second.path())
        .build()
        .await
        .unwrap_err();

    assert_lists(
        &error,
        &[
            "chef.prompt:2:1: unknown key 'modle': did you mean 'model'?",
            "chef.prompt:6:1: unknown partial 'style'",
            "chef.prompt:3:20: no tool 'in_seson' is registered",
            "waiter.prompt:2:1: no model 'nobody' is registered",
            "waiter.prompt:4:5: no middleware 'quiet' is registered",
            "broken.prompt:",
        ],
    );
}

#[tokio::test]
async fn serving_lists_the_mistakes_of_agents_and_binds_nothing() {
    let folder = prompts(&[("critic.prompt", "---\nmodel: echo\n---\nReview.\n")]);
    let app = Everturn::builder()
        .model("echo", EchoModel)
        .default_model("ecko")
        .prompts(folder.path())
        .build()
        .await
        .unwrap();
    app.agent("chef")
        .model("nobody")
        .tool("in_seson")
        .define()
        .unwrap();
    let critic = app.prompt_agent("critic").use_middleware("quiet").tool("pen");
    critic.define().unwrap();
    let window = Window::of_model().summarize_with("smoll");
    app.agent("scribe").model("echo").window(window).define().unwrap();

    let served = app.serve("127.0.0.1:0").await.unwrap_err();
    let bound = app.server().bind("127.0.0.1:0").await.map(drop).unwrap_err();
    let checked = app.check().await.unwrap_err();

    for error in [served, bound, checked] {
        assert_lists(
            &error,
            &[
                "the default model: no model 'ecko' is registered",
                "agent 'chef': no model 'nobody' is registered",
                "agent 'chef': no tool 'in_seson' is registered",
                "agent 'critic': no tool 'pen' is registered",
                "agent 'critic': no middleware 'quiet' is registered",
                "agent 'scribe': no model 'smoll' is registered",
            ],
        );
    }
}

#[tokio::test]
async fn an_agent_without_a_model_is_found() {
    let folder = prompts(&[
        ("critic.prompt", "Review.\n"),
        ("clerk.prompt", "---\nmodel: echo\n---\nFile.\n"),
    ]);
    let app = Everturn::builder()
        .model("echo", EchoModel)
        .prompts(folder.path())
        .build()
        .await
        .unwrap();
    app.agent("chef").system("You cook.").define().unwrap();
    app.agent("waiter").model("echo").define().unwrap();
    app.prompt_agent("critic").define().unwrap();
    app.prompt_agent("harsh")
        .prompt("critic", json!(null))
        .model("echo")
        .define()
        .unwrap();
    app.prompt_agent("clerk").define().unwrap();

    let found = app.check().await.unwrap_err();

    assert_lists(
        &found,
        &[
            "agent 'chef': it names no model, and there is no default model",
            "agent 'critic': it names no model, and there is no default model",
        ],
    );
    for other in ["waiter", "harsh", "clerk"] {
        assert!(!found.message().contains(other), "{found}");
    }
    let with_default = Everturn::builder().model("echo", EchoModel).default_model("echo");
    let with_default = with_default.build().await.unwrap();
    with_default.agent("chef").define().unwrap();
    with_default.check().await.unwrap();
}

#[tokio::test]
async fn an_unknown_delegate_is_found() {
    let delegating = "---\nuse:\n  - name: agents\n    config:\n      agents: [writer, critc]\n---\nEdit.\n";
    let folder = prompts(&[("editor.prompt", delegating)]);
    let app = Everturn::builder()
        .model("echo", EchoModel)
        .default_model("echo")
        .prompts(folder.path())
        .build()
        .await
        .unwrap();
    app.prompt_agent("editor").define().unwrap();
    let unregistered = app.agent("at_hand").build().unwrap();
    let team = Delegation::to([
        AgentRef::new("writr"),
        AgentRef::from(&unregistered),
        AgentRef::new("writer"),
    ]);
    app.agent("chief").use_middleware(team).define().unwrap();
    app.agent("writer").define().unwrap();

    let found = app.check().await.unwrap_err();
    app.agent("writr").define().unwrap();
    app.agent("critc").define().unwrap();
    let then = app.check().await;

    assert_lists(
        &found,
        &[
            "agent 'chief': it delegates to the agent 'writr', which is not defined",
            "agent 'editor': it delegates to the agent 'critc', which is not defined",
        ],
    );
    assert!(
        !found.message().contains("'writer'") && !found.message().contains("at_hand"),
        "{found}"
    );
    then.unwrap();
}

#[tokio::test]
async fn an_agent_that_is_defined_twice_is_named() {
    let folder = prompts(&[("scribe.prompt", "Write.\n")]);
    let app = Everturn::builder().prompts(folder.path()).build().await.unwrap();
    let define = |name: &str| app.agent(name).define().map(drop);
    let custom = |session: AgentSession| async move { Ok(session.result()) };
    define("chef").unwrap();
    app.custom_agent("waiter", custom).define().unwrap();

    let again = define("chef").unwrap_err();
    let as_custom = app.custom_agent("chef", custom).define().map(drop).unwrap_err();
    let custom_again = app.custom_agent("waiter", custom).define().map(drop).unwrap_err();
    let like_a_prompt = define("scribe").unwrap_err();

    for (error, name) in [(again, "chef"), (as_custom, "chef"), (custom_again, "waiter")] {
        assert_eq!(error.status(), Status::AlreadyExists);
        assert_eq!(
            error.message(),
            format!("agent '{name}' is already defined: give one of the two another name")
        );
    }
    assert_eq!(like_a_prompt.status(), Status::AlreadyExists);
    assert!(
        like_a_prompt.message().contains("agent 'scribe'"),
        "{like_a_prompt}"
    );
    assert!(like_a_prompt.message().contains("prompt"), "{like_a_prompt}");
}

#[tokio::test]
async fn names_defined_in_time_are_valid() {
    let folder = prompts(&[(
        "chef.prompt",
        "---\nmodel: echo\ntools: [in_season]\nuse: [retry]\nmy.note: kept\n---\nYou cook. {{>style}}\n",
    )]);
    let app = Everturn::builder()
        .model("echo", EchoModel)
        .tool(in_season)
        .define(|registry| {
            everturn::ai::prompt::define_partial(registry, "style", "Be brief.");
            Ok(())
        })
        .prompts(folder.path())
        .build()
        .await
        .unwrap();
    app.prompt_agent("chef").define().unwrap();
    app.agent("waiter")
        .model("echo")
        .tool(in_season)
        .define()
        .unwrap();

    app.check().await.unwrap();
}
