//! The place of the conversation in a prompt agent's request, and the messages that are kept.

use everturn_agent::{AgentBuilder, InlinePrompt, agent};
use everturn_ai::prompt::MessagesSlot;
use everturn_ai::{Message, Messages};
use serde_json::Value;

use crate::prompt_support::{answering, asked, said};

type Builder = AgentBuilder<Value, InlinePrompt>;

/// Runs two turns and returns the model's request in the second, and the stored messages after it.
async fn second_turn(define: impl FnOnce(Builder) -> Builder) -> (Vec<String>, Vec<String>) {
    let (registry, model) = answering(["one!", "two!"]);
    let agent = define(agent(&registry, "chef")).define().unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    chat.run("one").await.unwrap();
    let reply = chat.run("two").await.unwrap();

    assert_eq!(reply.text(), "two!");
    (
        asked(&model.requests()[1]),
        said(&reply.state().unwrap().messages),
    )
}

const WHOLE: [&str; 4] = ["user: one", "model: one!", "user: two", "model: two!"];

#[tokio::test]
async fn a_system_text_goes_before_the_conversation() {
    let (asked, kept) = second_turn(|chef| chef.system("sys")).await;

    assert_eq!(asked, ["system: sys", "user: one", "model: one!", "user: two"]);
    assert_eq!(kept, WHOLE);
}

#[tokio::test]
async fn no_prompt_at_all_is_the_conversation_alone() {
    let (asked, kept) = second_turn(|chef| chef).await;

    assert_eq!(asked, ["user: one", "model: one!", "user: two"]);
    assert_eq!(kept, WHOLE);
}

#[tokio::test]
async fn a_user_prompt_stays_last() {
    let (asked, kept) = second_turn(|chef| chef.system("sys").user_prompt("ask")).await;

    assert_eq!(
        asked,
        [
            "system: sys",
            "user: one",
            "model: one!",
            "user: two",
            "user: ask"
        ]
    );
    assert_eq!(kept, WHOLE);
}

#[tokio::test]
async fn a_template_places_the_conversation_at_its_marker() {
    let template = "{{role \"user\"}}before{{history}}{{role \"model\"}}after{{role \"user\"}}ask";

    let (asked, kept) = second_turn(|chef| chef.messages(template)).await;

    assert_eq!(
        asked,
        [
            "user: before",
            "user: one",
            "model: one!",
            "user: two",
            "model: after",
            "user: ask"
        ]
    );
    assert_eq!(kept, WHOLE);
}

#[tokio::test]
async fn a_template_without_a_place_gets_it_before_its_last_user_message() {
    let template = "{{role \"system\"}}sys{{role \"model\"}}hello{{role \"user\"}}ask";

    let (asked, kept) = second_turn(|chef| chef.messages(template)).await;

    assert_eq!(
        asked,
        [
            "system: sys",
            "model: hello",
            "user: one",
            "model: one!",
            "user: two",
            "user: ask"
        ]
    );
    assert_eq!(kept, WHOLE);
}

#[tokio::test]
async fn conversation_messages_left_out_by_computed_messages_are_not_kept() {
    let trimmed = MessagesSlot::computed(|scope| async move {
        let mut messages = Messages::from(Message::system("summary"));
        let length = scope.conversation.len();
        messages.append(scope.conversation.slice(length - 1..length));
        Ok(messages)
    });

    let (asked, kept) = second_turn(|chef| chef.messages(trimmed)).await;

    assert_eq!(asked, ["system: summary", "user: two"]);
    assert_eq!(kept, ["user: two", "model: two!"]);
}

#[tokio::test]
async fn fixed_messages_leave_the_conversation_out_and_only_the_answer_is_kept() {
    let fixed = vec![Message::system("sys"), Message::user("ask")];

    let (asked, kept) = second_turn(|chef| chef.messages(fixed)).await;

    assert_eq!(asked, ["system: sys", "user: ask"]);
    assert_eq!(kept, ["model: two!"]);
}
