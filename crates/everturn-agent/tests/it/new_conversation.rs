//! New conversations in an existing session.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_agent::{NewConversation, agent};
use everturn_core::Context;

use crate::prompt_support::answering;

#[tokio::test]
async fn a_new_conversation_starts_next_to_the_sessions_own() {
    let (registry, model) = answering(["one", "two", "other one", "other two"]);
    let chatty = agent(&registry, "chatty")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    for text in ["1", "2"] {
        chatty.chat().resume("s").run(text).await.unwrap();
    }

    let anew = Context::new().with_extension(Arc::new(NewConversation));
    let reply = chatty.chat().context(anew).resume("s").run("1b").await.unwrap();
    let next = chatty.chat().resume("s").run("2b").await.unwrap();

    assert_eq!(reply.session_id(), Some(&"s".into()));
    assert_eq!(next.text(), "other two");
    let request = model.last_request().unwrap();
    let said: Vec<_> = request
        .messages
        .iter()
        .map(|message| message.text().into_owned())
        .collect();
    assert_eq!(said, ["1b", "other one", "2b"]);
}
