//! A prompt's own messages are sent to the model and never become part of a conversation.

use everturn_agent::store::MemoryStore;
use everturn_agent::{agent, prompt_agent};
use everturn_ai::Role;
use everturn_ai::prompt::{Prompt, PromptDefinition};
use serde_json::Value;

use crate::prompt_support::{answering, json, said};

#[tokio::test]
async fn ten_turns_store_no_word_of_the_prompt() {
    let (registry, model) = answering((0..10).map(|number| format!("answer {number}")));
    let agent = agent(&registry, "chef")
        .system("the system text")
        .user_prompt("the user prompt")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    for number in 0..10 {
        chat.run(format!("question {number}")).await.unwrap();
    }

    let snapshot = agent
        .get_snapshot(chat.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    let stored = json(&snapshot).to_string();
    assert_eq!(snapshot.state.unwrap().messages.len(), 20);
    assert!(
        !stored.contains("the system text") && !stored.contains("the user prompt"),
        "{stored}"
    );
    assert!(!stored.contains("_everturn"), "{stored}");
    assert_eq!(model.requests()[9].messages.len(), 21);
}

#[tokio::test]
async fn a_request_separates_the_prompts_messages_from_the_conversations() {
    let (registry, model) = answering(["soup"]);
    let agent = agent(&registry, "chef")
        .system("sys")
        .user_prompt("ask")
        .define()
        .unwrap();

    agent.run_text("leeks").await.unwrap();

    let marked: Vec<bool> = model.requests()[0]
        .messages
        .iter()
        .map(|message| message.metadata().is_some())
        .collect();
    assert_eq!(marked, [true, false, true]);
}

#[tokio::test]
async fn a_prompt_that_is_used_elsewhere_too_is_left_as_it_is() {
    let (registry, model) = answering(["soup", "stew"]);
    PromptDefinition::new("cook")
        .system("sys")
        .prompt("ask")
        .define(&registry)
        .unwrap();
    let agent = prompt_agent(&registry, "chef")
        .prompt("cook", Value::Null)
        .define()
        .unwrap();

    agent.run_text("leeks").await.unwrap();
    Prompt::lookup(&registry, "cook")
        .unwrap()
        .generate(Value::Null)
        .await
        .unwrap();

    let alone = &model.requests()[1];
    assert!(
        alone.messages.iter().all(|message| message.metadata().is_none()),
        "{alone:?}"
    );
}

#[tokio::test]
async fn a_conversation_that_holds_a_system_message_keeps_it() {
    let (registry, _model) = answering(["soup"]);
    let agent = agent(&registry, "chef").system("sys").define().unwrap();
    let begun = [
        everturn_ai::Message::system("the client's own"),
        everturn_ai::Message::user("one"),
    ];
    let state = everturn_agent::SessionState {
        messages: begun.into_iter().collect(),
        ..Default::default()
    };

    let reply = agent.chat().state(state).run("two").await.unwrap();

    let kept = &reply.state().unwrap().messages;
    assert_eq!(
        said(kept),
        [
            "system: the client's own",
            "user: one",
            "user: two",
            "model: soup"
        ]
    );
    assert_eq!(
        kept.iter()
            .filter(|message| message.role() == Role::System)
            .count(),
        1
    );
}
