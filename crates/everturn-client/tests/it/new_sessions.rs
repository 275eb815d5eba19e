//! Starting a session on another server: its custom state, and the input of the agent's prompt.

use everturn_agent::store::{MemoryStore, Scope, SessionQuery, SessionStore};
use everturn_agent::{AgentSession, ClientPermissions, custom_agent, prompt_agent};
use everturn_ai::prompt::{PromptDefinition, PromptOverrides};
use everturn_ai::{Message, set_default_model};
use everturn_client::RemoteAgent;
use everturn_core::{Registry, Status};
use everturn_testkit::ScriptedModel;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::support::kitchen::{Kitchen, Serving, serve_all};

fn counting(registry: &Registry, name: &str, store: &MemoryStore, accepts: bool) {
    let agent = custom_agent(registry, name, |session: AgentSession<Kitchen>| async move {
        session
            .run(|turn| async move {
                turn.update_custom(|kitchen| kitchen.turns += 1);
                turn.add_message(Message::model("done"));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .initial_message("welcome")
    .store(store.clone());
    let agent = if accepts {
        agent.client_permissions(ClientPermissions::none().custom())
    } else {
        agent
    };
    agent.define().unwrap();
}

async fn sessions(store: &MemoryStore) -> usize {
    let query = SessionQuery::default();
    store
        .sessions(&Scope::default(), &query)
        .await
        .unwrap()
        .items
        .len()
}

fn remote(server: &Serving, name: &str) -> RemoteAgent<Kitchen> {
    RemoteAgent::new(&format!("http://{}/agents/{name}", server.address)).unwrap()
}

/// Sends a turn like a client in another language, and returns the status and the body.
async fn post(server: &Serving, agent: &str, init: Value) -> (u16, Value) {
    let url = format!("http://{}/agents/{agent}", server.address);
    let body = json!({
        "data": {"message": {"role": "user", "content": [{"text": "hi"}]}},
        "init": init,
    });
    everturn_core::install_tls_provider();
    let response = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn a_remote_caller_gives_the_custom_state_where_the_agent_accepts_it() {
    let (registry, store) = (Registry::new(), MemoryStore::new());
    counting(&registry, "open", &store, true);
    counting(&registry, "closed", &store, false);
    let server = serve_all(&registry).await;
    let (open, closed) = (remote(&server, "open"), remote(&server, "closed"));

    let refused = closed
        .chat()
        .custom(Kitchen { turns: 7 })
        .run("a")
        .await
        .unwrap_err();
    let none_yet = sessions(&store).await;
    let mut unnamed = open.chat().custom(Kitchen { turns: 7 }).open().await.unwrap();
    unnamed.run("a").await.unwrap();
    unnamed.run("b").await.unwrap();
    let named = || open.chat().resume("s").custom(Kitchen { turns: 70 });
    named().run("a").await.unwrap();
    let exists = named().run("b").await.unwrap_err();

    assert_eq!(refused.status(), Status::FailedPrecondition);
    assert_eq!(none_yet, 0);
    assert_eq!(unnamed.custom().unwrap().turns, 9);
    let mut read = open.chat().resume("s").open().await.unwrap();
    assert_eq!(read.custom().unwrap().turns, 71);
    assert_eq!(
        read.messages().len(),
        3,
        "the initial message, the input, the answer"
    );
    assert_eq!(exists.status(), Status::FailedPrecondition);
    assert!(exists.message().contains("session 's' exists"), "{exists}");
    assert_eq!(read.run("c").await.unwrap().text(), "done");
}

#[tokio::test]
async fn a_custom_state_that_does_not_fit_is_refused_with_the_field_before_any_write() {
    let (registry, store) = (Registry::new(), MemoryStore::new());
    counting(&registry, "open", &store, true);
    let server = serve_all(&registry).await;

    let (status, body) = post(&server, "open", json!({"custom": {"turns": "seven"}})).await;

    assert_eq!(status, 400);
    assert_eq!(body["status"], "INVALID_ARGUMENT", "{body}");
    assert!(body.to_string().contains("/turns"), "{body}");
    assert_eq!(sessions(&store).await, 0);
}

#[derive(Serialize, JsonSchema)]
struct Role {
    tone: String,
}

#[tokio::test]
async fn an_invalid_prompt_input_is_refused_with_the_field_before_any_write() {
    let (registry, store) = (Registry::new(), MemoryStore::new());
    let model = ScriptedModel::new().otherwise(|_| "fine");
    model.register(&registry, "scripted").unwrap();
    set_default_model(&registry, "scripted");
    let reviewer = PromptDefinition::new("reviewer")
        .input::<Role>()
        .system("Be {{tone}}.");
    let reviewer = reviewer.define(&registry).unwrap();
    let critic = prompt_agent(&registry, "critic").prompt_ref(&reviewer, None);
    let critic = critic.client_permissions(ClientPermissions::none().prompt_input(["tone", "tune"]));
    critic.store(store.clone()).define().unwrap();
    let server = serve_all(&registry).await;
    let agent: RemoteAgent = RemoteAgent::new(&format!("http://{}/agents/critic", server.address)).unwrap();

    for init in [
        json!({"sessionId": "s", "promptInput": {"tone": 3}}),
        json!({"sessionId": "s", "promptInput": {"tune": "kind"}}),
        json!({"sessionId": "s"}),
    ] {
        let (status, body) = post(&server, "critic", init.clone()).await;

        assert_eq!(status, 400, "{init}");
        assert_eq!(body["status"], "INVALID_ARGUMENT", "{body}");
        assert!(body["message"].as_str().unwrap().contains("tone"), "{body}");
    }
    assert_eq!(sessions(&store).await, 0);
    model.assert_calls(0);

    let wrong = agent
        .chat()
        .prompt_input(json!({}))
        .run("my soup?")
        .await
        .unwrap_err();
    assert_eq!(wrong.status(), Status::InvalidArgument);
    let right = agent
        .chat()
        .prompt_input(json!({"tone": "kind"}))
        .run("my soup?")
        .await;
    assert_eq!(right.unwrap().text(), "fine");
}

#[tokio::test]
async fn overrides_of_a_call_are_not_silently_omitted() {
    let (registry, store) = (Registry::new(), MemoryStore::new());
    counting(&registry, "open", &store, true);
    let server = serve_all(&registry).await;

    let chat = remote(&server, "open")
        .chat()
        .overrides(PromptOverrides::new().model("other"));
    let refused = chat.run("a").await.unwrap_err();

    assert_eq!(refused.status(), Status::InvalidArgument);
    assert_eq!(sessions(&store).await, 0);
}
