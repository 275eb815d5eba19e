//! The built-in wrappers of models, used as middleware.

use everturn_ai::builtin_middleware::{
    AugmentWithContext, DownloadMedia, SimulateConstrained, SimulateSystemPrompt, ValidateSupport,
    register_builtin_middleware,
};
use everturn_ai::{
    Citation, ConstrainedSupport, Fetch, FetchedMedia, Generate, IntoMiddleware, Media, MediaDownload,
    MediaFetcher, Message, MiddlewareRef, ModelInfo, ModelRequest, ModelSupports, Part, Role, reason,
};
use everturn_core::{Error, HandlerResult, Registry, Result, Schema, Status};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::middleware_support::{Reply, Script};

/// The request to a model with all capabilities, with this middleware in use.
async fn asked(
    middleware: impl IntoMiddleware,
    ask: impl FnOnce(Generate<Value>) -> Generate<Value>,
) -> Result<ModelRequest> {
    let registry = Registry::new();
    register_builtin_middleware(&registry)?;
    let supports = ModelSupports {
        system_role: Some(true),
        context: Some(true),
        constrained: Some(ConstrainedSupport::All),
        ..ModelSupports::default()
    };
    let info = ModelInfo {
        supports: Some(supports),
        ..ModelInfo::default()
    };
    let script = Script::register_with(&registry, "able", info, [Reply::text("{}")]);
    ask(Generate::new(&registry).model("able"))
        .use_middleware(middleware)
        .run()
        .await?;
    Ok(script.requests().remove(0))
}

#[tokio::test]
async fn a_system_prompt_is_simulated_in_the_given_words() {
    let ask = |generate: Generate<Value>| generate.system("You cook.").prompt("hi");
    let by_name = MiddlewareRef::new("simulateSystemPrompt")
        .with_config(json!({ "preface": "RULES: ", "acknowledgement": "Aye." }));

    let usual = asked(SimulateSystemPrompt::default(), ask).await.unwrap();
    let typed = asked(
        SimulateSystemPrompt::default()
            .preface("RULES: ")
            .acknowledgement("Aye."),
        ask,
    )
    .await
    .unwrap();
    let named = asked(by_name, ask).await.unwrap();

    let roles: Vec<Role> = usual.messages.iter().map(Message::role).collect();
    assert_eq!(roles, [Role::User, Role::Model, Role::User]);
    assert_eq!(
        usual.messages.get(0).unwrap().text(),
        "SYSTEM INSTRUCTIONS:\nYou cook."
    );
    assert_eq!(typed.messages.get(0).unwrap().text(), "RULES: You cook.");
    assert_eq!(typed.messages.get(1).unwrap().text(), "Aye.");
    assert_eq!(named.messages, typed.messages);
}

#[tokio::test]
async fn documents_are_written_into_the_last_user_message() {
    let ask = |generate: Generate<Value>| generate.prompt("hi").docs(["Leeks are in season."]);
    let text = |request: ModelRequest| request.messages.last().unwrap().text().into_owned();
    let named = |config: Value| MiddlewareRef::new("augmentWithContext").with_config(config);

    let usual = asked(AugmentWithContext::default(), ask).await.unwrap();
    let typed = asked(
        AugmentWithContext::default()
            .preface("\nSee:\n")
            .citation(Citation::None),
        ask,
    )
    .await
    .unwrap();
    let by_name = asked(named(json!({ "preface": "\nSee:\n", "citationKey": null })), ask)
        .await
        .unwrap();
    let default_by_name = asked(named(json!({})), ask).await.unwrap();

    assert!(text(usual.clone()).contains("- [0]: Leeks are in season.\n"));
    assert_eq!(text(typed.clone()), "hi\nSee:\n- Leeks are in season.\n\n");
    assert_eq!(by_name.messages, typed.messages);
    assert_eq!(default_by_name.messages, usual.messages);
}

#[tokio::test]
async fn an_output_schema_is_put_into_words() {
    let schema = Schema::from_json(json!({ "type": "object" })).unwrap();
    let ask = |generate: Generate<Value>| {
        generate
            .prompt("hi")
            .output_schema(&schema)
            .output_constrained(true)
    };

    let constrained = asked(
        everturn_ai::model_hook(|call, next| async move { Ok(next.run(call).await?) }),
        ask,
    )
    .await
    .unwrap();
    let simulated = asked(SimulateConstrained::default(), ask).await.unwrap();
    let by_name = asked("simulateConstrainedGeneration", ask).await.unwrap();

    assert!(constrained.output.unwrap().schema.is_some());
    let output = simulated.output.clone().unwrap();
    assert_eq!((output.constrained, output.schema), (Some(false), None));
    let has_words = |part: &Part| part.purpose() == Some("output");
    assert!(
        simulated
            .messages
            .iter()
            .any(|message| message.content().iter().any(has_words))
    );
    assert_eq!(by_name, simulated);
}

#[tokio::test]
async fn requests_that_the_given_declaration_rules_out_are_refused() {
    let ask = |generate: Generate<Value>| generate.prompt(Part::media("data:image/png;base64,AA=="));
    let blind = ModelSupports {
        media: Some(false),
        ..ModelSupports::default()
    };
    let by_name = MiddlewareRef::new("validateSupport")
        .with_config(json!({ "name": "x", "supports": { "media": false } }));

    let refused = asked(ValidateSupport::new(blind), ask).await.unwrap_err();
    let named = asked(by_name, ask).await.unwrap_err();
    let allowed = asked(ValidateSupport::default(), ask).await;

    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(refused.is(reason::UNSUPPORTED_BY_MODEL));
    assert!(refused.message().contains("'able'"), "{refused}");
    assert!(named.message().contains("'x'"), "{named}");
    assert!(allowed.is_ok());
}

#[tokio::test]
async fn without_a_given_declaration_the_models_own_is_used() {
    let registry = Registry::new();
    let supports = ModelSupports {
        tools: Some(false),
        multiturn: Some(false),
        ..ModelSupports::default()
    };
    let info = ModelInfo {
        supports: Some(supports),
        ..ModelInfo::default()
    };
    let script = Script::register_with(&registry, "single", info, [Reply::text("unused")]);

    let error = Generate::new(&registry)
        .model("single")
        .system("two")
        .prompt("messages")
        .use_middleware(ValidateSupport::default())
        .run()
        .await
        .unwrap_err();

    assert!(error.is(reason::UNSUPPORTED_BY_MODEL));
    assert_eq!(script.calls(), 0);
}

/// Serves one byte, unless that is too much.
struct Shelf;

impl MediaFetcher for Shelf {
    fn fetch<'a>(&'a self, fetch: &'a Fetch<'a>) -> BoxFuture<'a, HandlerResult<FetchedMedia>> {
        let result = if fetch.max_bytes() == 0 {
            Err(Error::invalid_argument("too large").into())
        } else {
            let content_type = fetch.url().contains("png").then(|| "image/png".to_owned());
            Ok(FetchedMedia {
                content_type,
                bytes: vec![0],
            })
        };
        Box::pin(std::future::ready(result))
    }
}

#[tokio::test]
async fn media_behind_urls_is_given_inline() {
    let ask = |generate: Generate<Value>| {
        generate.prompt(vec![
            Part::media("https://x.test/cat.png"),
            Part::media("gs://bucket/dog.png"),
        ])
    };

    let request = asked(DownloadMedia::new(Shelf), ask).await.unwrap();

    let media: Vec<Media> = request.messages.last().unwrap().media().cloned().collect();
    assert_eq!(
        media[0],
        Media::new("data:image/png;base64,AA==").with_content_type("image/png")
    );
    assert_eq!(media[1], Media::new("gs://bucket/dog.png"));
}

#[tokio::test]
async fn media_over_the_limit_fails_and_filtered_media_is_left_alone() {
    let ask = |generate: Generate<Value>| generate.prompt(Part::media("https://x.test/cat.png"));

    let limited = asked(DownloadMedia::from(MediaDownload::new(Shelf).max_bytes(0)), ask).await;
    let filtered = asked(
        DownloadMedia::from(MediaDownload::new(Shelf).filter(|_| false)),
        ask,
    )
    .await
    .unwrap();

    assert!(limited.unwrap_err().message().contains("too large"));
    assert_eq!(
        filtered.messages.last().unwrap().media().next().unwrap().url,
        "https://x.test/cat.png"
    );
}

#[tokio::test]
async fn a_download_leaves_the_caller_s_messages_alone() {
    let registry = Registry::new();
    let script = Script::register(&registry, "m", [Reply::text("done")]);
    let message = Message::user(Part::media("https://x.test/cat.png"));

    Generate::new(&registry)
        .model("m")
        .messages(message.clone())
        .use_middleware(DownloadMedia::new(Shelf))
        .run()
        .await
        .unwrap();

    assert!(
        script.requests()[0]
            .messages
            .last()
            .unwrap()
            .media()
            .next()
            .unwrap()
            .url
            .starts_with("data:")
    );
    assert_eq!(message.media().next().unwrap().url, "https://x.test/cat.png");
}
