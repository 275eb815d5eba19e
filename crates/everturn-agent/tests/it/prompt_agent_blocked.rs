//! A model that refuses to answer ends the turn, and the conversation can continue.

use everturn_agent::{AgentFinishReason, agent};
use everturn_ai::{FinishReason, Message, ModelResponse};
use everturn_testkit::Reply;

use crate::prompt_support::{answering, said};

#[tokio::test]
async fn a_refusal_in_words_is_the_answer() {
    let refusal =
        ModelResponse::new(Message::model("I would rather not.")).with_finish_reason(FinishReason::Blocked);
    let (registry, _model) = answering([Reply::from(refusal), "Soup.".into()]);
    let agent = agent(&registry, "chef").define().unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    let blocked = chat.run("poison?").await.unwrap();
    let after = chat.run("leeks?").await.unwrap();

    assert_eq!(
        (blocked.finish_reason(), blocked.text().as_ref()),
        (AgentFinishReason::Blocked, "I would rather not.")
    );
    assert_eq!(after.state().unwrap().messages.len(), 4);
}

#[tokio::test]
async fn a_refusal_without_a_word_is_no_answer() {
    let silence = ModelResponse {
        finish_reason: Some(FinishReason::Blocked),
        ..ModelResponse::default()
    };
    let (registry, _model) = answering([silence]);
    let agent = agent(&registry, "chef").system("sys").define().unwrap();

    let blocked = agent.run_text("poison?").await.unwrap();

    assert_eq!(blocked.finish_reason(), AgentFinishReason::Blocked);
    assert_eq!(blocked.message(), None);
    assert_eq!(said(&blocked.state().unwrap().messages), ["user: poison?"]);
}
