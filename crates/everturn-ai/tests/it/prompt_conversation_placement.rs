//! The place of the conversation in a rendered prompt.

use everturn_ai::prompt::{MessagesSlot, PromptDefinition, PromptPiece};
use everturn_ai::{History, Message, Messages};
use everturn_core::{Context, Registry};
use serde_json::Value;

fn conversation() -> History {
    History::from_iter([
        Message::user("one"),
        Message::model("two"),
        Message::user("three"),
    ])
}

/// The rendered texts; those of the conversation in brackets.
async fn layout(definition: PromptDefinition) -> Vec<String> {
    let prompt = definition.define(&Registry::new()).unwrap();

    let rendered = prompt
        .render_around(&Value::Null, conversation(), Context::new())
        .await
        .unwrap();

    let texts = |messages: &Messages, mark: fn(&str) -> String| {
        messages
            .iter()
            .map(|message| mark(&message.text()))
            .collect::<Vec<_>>()
    };
    rendered
        .pieces()
        .iter()
        .flat_map(|piece| match piece {
            PromptPiece::Prompt(messages) => texts(messages, str::to_owned),
            PromptPiece::Conversation(messages) => texts(messages, |text| format!("[{text}]")),
        })
        .collect()
}

#[tokio::test]
async fn a_system_text_goes_before_the_conversation() {
    let layout = layout(PromptDefinition::new("p").system("sys")).await;

    assert_eq!(layout, ["sys", "[one]", "[two]", "[three]"]);
}

#[tokio::test]
async fn a_user_prompt_stays_last() {
    let layout = layout(PromptDefinition::new("p").system("sys").prompt("ask")).await;

    assert_eq!(layout, ["sys", "[one]", "[two]", "[three]", "ask"]);
}

#[tokio::test]
async fn a_template_places_the_conversation_at_its_marker() {
    let template = "{{role \"system\"}}sys{{history}}{{role \"user\"}}ask";

    assert_eq!(
        layout(PromptDefinition::new("p").messages(template)).await,
        ["sys", "[one]", "[two]", "[three]", "ask"]
    );
}

#[tokio::test]
async fn a_template_without_a_place_gets_it_before_its_last_user_message() {
    let template = "{{role \"system\"}}sys{{role \"user\"}}ask";

    assert_eq!(
        layout(PromptDefinition::new("p").messages(template)).await,
        ["sys", "[one]", "[two]", "[three]", "ask"]
    );
}

#[tokio::test]
async fn fixed_messages_leave_the_conversation_out() {
    let fixed = vec![Message::system("sys"), Message::user("ask")];

    assert_eq!(
        layout(PromptDefinition::new("p").messages(fixed)).await,
        ["sys", "ask"]
    );
}

#[tokio::test]
async fn a_function_may_trim_the_conversation_and_add_to_it() {
    let trimmed = MessagesSlot::computed(|scope| async move {
        let mut messages = Messages::from(Message::system("summary"));
        messages.extend(scope.conversation.iter().skip(2).cloned());
        Ok(messages)
    });

    assert_eq!(
        layout(PromptDefinition::new("p").messages(trimmed)).await,
        ["summary", "[three]"]
    );
}

#[tokio::test]
async fn a_shared_history_stays_shared() {
    let history = conversation();
    let prompt = PromptDefinition::new("p")
        .system("sys")
        .prompt("ask")
        .define(&Registry::new())
        .unwrap();

    let rendered = prompt
        .render_around(&Value::Null, history.clone(), Context::new())
        .await
        .unwrap();

    let shares = rendered.messages().segments().any(|segment| match segment {
        everturn_ai::messages::Segment::History { history: kept, .. } => {
            kept.shared_prefix(&history) == history.len()
        }
        everturn_ai::messages::Segment::Run(_) => false,
    });
    assert!(shares);
}

#[tokio::test]
async fn a_system_template_must_not_open_another_role() {
    let prompt = PromptDefinition::new("p")
        .system("sys {{role \"user\"}} more")
        .define(&Registry::new())
        .unwrap();

    let error = prompt
        .render_around(&Value::Null, Messages::new(), Context::new())
        .await
        .unwrap_err();

    assert!(error.message().contains("must render to one message"), "{error}");
}
