//! Media behind URLs of a conversation is fetched for clients only where the agent allows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::{AgentInput, ClientPermissions, agent};
use everturn_ai::{
    Fetch, FetchRules, FetchedMedia, MediaDownload, MediaFetcher, Message, Model, ModelRequest,
    ModelResponse, ModelResponseChunk, Part, register_model,
};
use everturn_core::{Context, Emitter, HandlerResult, JsonCall, Registry, Result};
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// Counts what is fetched.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl MediaFetcher for Counting {
    fn fetch<'a>(&'a self, _: &'a Fetch<'a>) -> BoxFuture<'a, HandlerResult<FetchedMedia>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let media = FetchedMedia {
            content_type: Some("image/png".to_owned()),
            bytes: b"abc".to_vec(),
        };
        Box::pin(std::future::ready(Ok(media)))
    }
}

/// A model that needs media inline and answers with the URLs that it got.
struct Looker(Counting);

impl Model for Looker {
    fn media_download(&self) -> Option<MediaDownload> {
        Some(MediaDownload::new(self.0.clone()))
    }

    async fn generate(
        &self,
        request: ModelRequest,
        _emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let media = request.messages.iter().flat_map(Message::media);
        let urls: Vec<&str> = media.map(|media| media.url.as_str()).collect();
        Ok(ModelResponse::text_of(urls.join(" ")))
    }
}

fn looking(permissions: ClientPermissions) -> (Registry, Counting) {
    let (registry, fetched) = (Registry::new(), Counting::default());
    register_model(&registry, "looker", Looker(fetched.clone())).unwrap();
    let agent = agent(&registry, "looker").model("looker");
    agent.client_permissions(permissions).define().unwrap();
    (registry, fetched)
}

/// Calls the agent as a server does.
async fn asked_by_client(registry: &Registry, url: &str) -> Result<Value> {
    let message = json!({"role": "user", "content": [{"media": {"url": url}}]});
    let call = JsonCall::new(json!({ "message": message }));
    registry.get("/agent/looker").unwrap().run_json(call).await
}

#[tokio::test]
async fn nothing_is_fetched_for_a_client_unless_the_agent_allows_its_host() {
    let (closed, fetched) = looking(ClientPermissions::none());
    let refused = asked_by_client(&closed, "https://images.example.com/cat")
        .await
        .unwrap();

    assert_eq!(refused["finishReason"], "failed", "{refused}");
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("ClientPermissions::fetch_media"), "{why}");
    assert_eq!(fetched.0.load(Ordering::SeqCst), 0);

    let rules = FetchRules::hosts(["images.example.com"]);
    let (open, fetched) = looking(ClientPermissions::none().fetch_media(rules));
    let elsewhere = asked_by_client(&open, "https://evil.test/cat").await.unwrap();
    let plain = asked_by_client(&open, "http://images.example.com/cat")
        .await
        .unwrap();
    assert_eq!(
        (&elsewhere["finishReason"], &plain["finishReason"]),
        (&json!("failed"), &json!("failed"))
    );
    assert_eq!(fetched.0.load(Ordering::SeqCst), 0);

    let shown = asked_by_client(&open, "https://images.example.com/cat")
        .await
        .unwrap();
    assert_eq!(
        shown["message"]["content"][0]["text"],
        "data:image/png;base64,YWJj"
    );
    assert_eq!(fetched.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn urls_of_the_program_are_its_own() {
    let (registry, fetched) = looking(ClientPermissions::none());
    let painter = agent(&registry, "painter").model("looker").define().unwrap();

    let input = AgentInput::from(Message::user(Part::media("https://images.example.com/cat")));
    let reply = painter.chat().run(input).await.unwrap();

    assert_eq!(reply.text(), "data:image/png;base64,YWJj");
    assert_eq!(fetched.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_url_of_the_prompt_that_a_client_makes_is_the_clients() {
    for (rules, expected, fetches) in [
        (None, "failed", 0),
        (Some(FetchRules::hosts(["images.example.com"])), "stop", 1),
    ] {
        let (registry, fetched) = (Registry::new(), Counting::default());
        register_model(&registry, "looker", Looker(fetched.clone())).unwrap();
        let permissions = ClientPermissions::none().prompt_input(["photo"]);
        let permissions = match rules {
            Some(rules) => permissions.fetch_media(rules),
            None => permissions,
        };
        let looker = agent(&registry, "looker").model("looker");
        looker
            .user_prompt("Look: {{media url=photo}}")
            .prompt_input(json!({"photo": "https://own.example.com/cat"}))
            .client_permissions(permissions)
            .define()
            .unwrap();
        let call = async |init: Value| {
            let message = json!({"role": "user", "content": [{"text": "hi"}]});
            let call = JsonCall {
                init: Some(init),
                ..JsonCall::new(json!({ "message": message }))
            };
            registry
                .get("/agent/looker")
                .unwrap()
                .run_json(call)
                .await
                .unwrap()
        };

        let given = call(json!({"promptInput": {"photo": "https://images.example.com/cat"}})).await;
        assert_eq!(given["finishReason"], expected, "{given}");
        assert_eq!(fetched.0.load(Ordering::SeqCst), fetches);
        let evil = call(json!({"promptInput": {"photo": "https://evil.test/cat"}})).await;
        assert_eq!(evil["finishReason"], "failed", "{evil}");
        assert_eq!(fetched.0.load(Ordering::SeqCst), fetches);
        // The agent's own input is the program's.
        let own = call(json!({})).await;
        assert_eq!(own["finishReason"], "stop", "{own}");
        assert_eq!(fetched.0.load(Ordering::SeqCst), fetches + 1);
    }
}
