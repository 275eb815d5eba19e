//! A provider's signatures are sent back unchanged through every store, a fork and an export.

use std::sync::Arc;

use everturn_agent::archive::Import;
use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_agent::{Agent, agent};
use everturn_ai::{Tool, ToolContext};
use everturn_core::{Plugin, Registry};
use everturn_file::FileStore;
use everturn_models::openai::{Api, OpenAi};
use everturn_models::{Anthropic, Gemini};
use everturn_sqlite::SqliteStore;
use serde_json::{Value, json};

use crate::server::Server;
use crate::{anthropic_server, gemini_server, responses_server};

/// A server of a provider that signs, asks for a tool, and refuses what does not come back as it was.
async fn anthropic() -> (Server, Arc<dyn Plugin>, &'static str) {
    let again = || anthropic_server::Answer::of([json!({ "type": "text", "text": "Again." })]);
    let server = anthropic_server::start_strict([
        anthropic_server::Answer::of([
            json!({ "type": "thinking", "thinking": "Grüße \u{2028} 🥕", "signature": "EqQB+/==" }),
            json!({ "type": "redacted_thinking", "data": "EmwKAhgB" }),
            json!({ "type": "server_tool_use", "id": "s1", "name": "web_search", "input": { "score": 0.1 } }),
            json!({ "type": "web_search_tool_result", "tool_use_id": "s1", "content": [
                { "type": "web_search_result", "encrypted_content": "RW5j", "rank": 1.0, "age": null },
            ]}),
            json!({ "type": "tool_use", "id": "toolu_1", "name": "look", "input": { "z": 1, "a": [2.5e-8] } }),
        ]),
        anthropic_server::Answer::of([json!({ "type": "text", "text": "Leeks." })]),
        again(),
        again(),
        again(),
    ])
    .await;
    let plugin = Anthropic::new("key").base_url(server.url());
    (server, Arc::new(plugin), "anthropic/claude-sonnet-5")
}

async fn gemini() -> (Server, Arc<dyn Plugin>, &'static str) {
    let again = || gemini_server::Answer::of([json!({ "text": "Again." })]);
    let call = json!({ "functionCall": { "name": "look", "args": { "z": 1, "a": [2.5e-8] } }, "thoughtSignature": "-_8=" });
    let server = gemini_server::start_strict([
        gemini_server::Answer::of([json!({ "text": "Grüße 🥕", "thought": true }), call]),
        gemini_server::Answer::of([
            json!({ "text": "Leeks." }),
            json!({ "text": "", "thoughtSignature": "Yg==" }),
        ]),
        again(),
        again(),
        again(),
    ])
    .await;
    let plugin = Gemini::new("key").base_url(server.url());
    (server, Arc::new(plugin), "gemini/gemini-3-pro")
}

async fn openai() -> (Server, Arc<dyn Plugin>, &'static str) {
    let again = |id: &str| responses_server::Answer::of([responses_server::message(id, "Again.")]);
    let search =
        json!({ "type": "web_search_call", "id": "ws_1", "status": "completed", "score": 0.1, "rank": 1.0 });
    let server = responses_server::start_strict([
        responses_server::Answer::of([
            responses_server::reasoning("rs_1", "gAAAA+/==", &["Grüße \u{2028} 🥕", "Hm."]),
            search,
            responses_server::reasoning("rs_2", "gAAAB-_", &[]),
            responses_server::call("fc_1", "call_1", "look", r#"{"z":1,"a":[2.5e-8]}"#),
        ]),
        responses_server::Answer::of([
            responses_server::reasoning("rs_3", "gAAAC", &["So."]),
            responses_server::message("msg_1", "Leeks."),
        ]),
        again("msg_2"),
        again("msg_3"),
        again("msg_4"),
    ])
    .await;
    let plugin = OpenAi::new("key").base_url(server.url()).api(Api::Responses);
    (server, Arc::new(plugin), "openai/gpt-test")
}

/// An agent as a process that has just started defines it.
fn chef(plugin: Arc<dyn Plugin>, model: &str, store: Arc<dyn SessionStore>) -> Agent {
    let registry = Registry::new();
    registry.install(plugin).unwrap();
    let look = Tool::new("look", "Looks.", |_: Value, _: ToolContext| async {
        Ok(json!(["leeks"]))
    });
    agent(&registry, "chef")
        .model(model)
        .tool(look)
        .store(store)
        .define()
        .unwrap()
}

async fn survives(
    (server, plugin, model): (Server, Arc<dyn Plugin>, &str),
    open: impl AsyncFn() -> Arc<dyn SessionStore>,
) {
    let first = chef(Arc::clone(&plugin), model, open().await);
    first.chat().resume("s").run("What is there?").await.unwrap();
    drop(first);

    let agent = chef(plugin, model, open().await);
    let archive = agent.archive().unwrap();
    let tip = archive.latest("s").await.unwrap().snapshot_id;
    archive.fork(tip, "fork").await.unwrap();
    let mut export = Vec::new();
    archive.export("s", &mut export).await.unwrap();
    archive
        .import(&export[..], Import::default().into_session("import"))
        .await
        .unwrap();

    for session in ["s", "fork", "import"] {
        let reply = agent.chat().resume(session).run("And now?").await.unwrap();
        assert_eq!(reply.text(), "Again.", "{session}");
    }
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn in_memory() {
    for provider in [anthropic().await, gemini().await, openai().await] {
        let store = MemoryStore::new();
        survives(provider, async || {
            Arc::new(store.clone()) as Arc<dyn SessionStore>
        })
        .await;
    }
}

#[tokio::test]
async fn in_files() {
    for provider in [anthropic().await, gemini().await, openai().await] {
        let folder = tempfile::tempdir().unwrap();
        let open = async || Arc::new(FileStore::open(folder.path()).await.unwrap()) as Arc<dyn SessionStore>;
        survives(provider, open).await;
    }
}

#[tokio::test]
async fn in_sqlite() {
    for provider in [anthropic().await, gemini().await, openai().await] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chef.db");
        let open = async || Arc::new(SqliteStore::open(&path).await.unwrap()) as Arc<dyn SessionStore>;
        survives(provider, open).await;
    }
}
