//! The wrappers between a request and a provider.

use everturn_ai::{
    Fetch, FetchedMedia, Generate, MediaDownload, MediaFetcher, Message, Model, ModelInfo, ModelRequest,
    ModelResponse, ModelResponseChunk, ModelSupports, Part, ToolChoice, reason, register_model,
};
use everturn_core::{Context, Emitter, Error, HandlerResult, Registry, Schema, Status};
use futures::future::BoxFuture;
use serde_json::json;

use crate::generate_support::{constant, says, scripted_with, step};

fn supporting(supports: ModelSupports) -> ModelInfo {
    ModelInfo {
        supports: Some(supports),
        ..ModelInfo::default()
    }
}

#[tokio::test]
async fn requests_that_a_model_declares_unsupported_are_refused_before_it_is_called() {
    let no = Some(false);
    let (_registry, script, generate) = scripted_with(
        supporting(ModelSupports {
            tools: no,
            tool_choice: no,
            media: no,
            ..ModelSupports::default()
        }),
        [],
    );

    let with_tools = generate
        .clone()
        .prompt("p")
        .tool(constant("t", "o"))
        .await
        .unwrap_err();
    let with_choice = generate
        .clone()
        .prompt("p")
        .tool_choice(ToolChoice::Required)
        .await
        .unwrap_err();
    let with_media = generate
        .prompt(Part::media("data:image/png;base64,AA=="))
        .await
        .unwrap_err();

    for error in [with_tools, with_choice, with_media] {
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.is(reason::UNSUPPORTED_BY_MODEL));
    }
    assert_eq!(script.calls(), 0);
}

#[tokio::test]
async fn a_system_prompt_is_simulated_for_the_model_and_not_in_the_history() {
    let info = supporting(ModelSupports {
        system_role: Some(false),
        ..ModelSupports::default()
    });
    let (_registry, script, generate) = scripted_with(info, [step(says("x"))]);

    let response = generate.system("You cook.").prompt("p").await.unwrap();

    let roles: Vec<_> = script.requests()[0].messages.iter().map(Message::role).collect();
    assert_eq!(json!(roles), json!(["user", "model", "user"]));
    assert_eq!(response.messages().first(), Some(&Message::system("You cook.")));
}

#[tokio::test]
async fn usage_counts_characters_and_media() {
    let (_registry, _script, generate) = scripted_with(ModelInfo::default(), [step(says("süß"))]);

    let content = [Part::text("éa"), Part::media("data:image/png;base64,AA==")];
    let usage = generate.prompt(content).await.unwrap().usage.clone().unwrap();

    assert_eq!(
        (usage.input_characters, usage.output_characters),
        (Some(2), Some(3))
    );
    assert_eq!((usage.input_images, usage.output_images), (Some(1), Some(0)));
}

/// Knows one picture.
struct Gallery;

impl MediaFetcher for Gallery {
    fn fetch<'a>(&'a self, fetch: &'a Fetch<'a>) -> BoxFuture<'a, HandlerResult<FetchedMedia>> {
        Box::pin(async move {
            match fetch.url() {
                "https://x.test/cat" => Ok(FetchedMedia {
                    content_type: Some("image/png".to_owned()),
                    bytes: vec![1, 2, 3],
                }),
                _ => Err(Error::not_found("no such picture").into()),
            }
        })
    }
}

struct Looker(usize);

impl Model for Looker {
    fn config_schema(&self) -> Option<Schema> {
        Schema::from_json(json!({ "type": "object", "properties": { "zoom": { "type": "integer" } } })).ok()
    }

    fn media_download(&self) -> Option<MediaDownload> {
        Some(
            MediaDownload::new(Gallery)
                .max_bytes(self.0)
                .filter(|media| !media.url.ends_with("keep")),
        )
    }

    async fn generate(
        &self,
        request: ModelRequest,
        _emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let urls: Vec<_> = request
            .messages
            .iter()
            .flat_map(Message::media)
            .map(|media| &media.url)
            .collect();
        Ok(ModelResponse::text_of(json!(urls).to_string()))
    }
}

fn looking(max_bytes: usize) -> (Registry, Generate) {
    let registry = Registry::new();
    register_model(&registry, "looker", Looker(max_bytes)).unwrap();
    let generate = Generate::new(&registry).model("looker");
    (registry, generate)
}

#[tokio::test]
async fn media_is_inlined_where_a_model_asks_for_it() {
    let (_registry, generate) = looking(3);

    let parts = ["https://x.test/cat", "https://x.test/keep", "gs://x/cat"].map(Part::media);
    let response = generate.prompt(parts).await.unwrap();

    let seen: Vec<String> = serde_json::from_str(&response.text()).unwrap();
    assert_eq!(
        seen,
        ["data:image/png;base64,AQID", "https://x.test/keep", "gs://x/cat"]
    );
    let kept = response.messages();
    assert_eq!(
        kept.first().unwrap().media().next().unwrap().url,
        "https://x.test/cat"
    );
}

#[tokio::test]
async fn media_that_is_too_large_or_missing_fails_the_call() {
    let too_large = looking(2)
        .1
        .prompt(Part::media("https://x.test/cat"))
        .await
        .unwrap_err();
    let missing = looking(3)
        .1
        .prompt(Part::media("https://x.test/dog"))
        .await
        .unwrap_err();

    assert_eq!(too_large.status(), Status::InvalidArgument);
    assert_eq!(missing.status(), Status::NotFound);
    assert!(missing.message().contains("https://x.test/dog"), "{missing}");
}

#[tokio::test]
async fn a_configuration_that_the_model_does_not_know_is_refused() {
    let error = looking(3)
        .1
        .prompt("p")
        .config(json!({ "zoom": "in" }))
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("/zoom"), "{error}");
}

#[tokio::test]
async fn the_models_info_is_in_its_descriptor() {
    let (registry, _generate) = looking(3);

    let descriptor = registry.get("/model/looker").unwrap().descriptor().clone();

    assert_eq!(descriptor.metadata["type"], "model");
    assert_eq!(descriptor.metadata["model"]["label"], "looker");
    assert_eq!(
        descriptor.metadata["model"]["customOptions"]["properties"]["zoom"]["type"],
        "integer"
    );
}
