//! The changes of middleware to a request, and those that are kept.

use everturn_agent::agent;
use everturn_ai::{Message, generate_hook, model_hook, place_system_part};

use crate::prompt_support::{answering, asked, said};

#[tokio::test]
async fn a_system_message_of_a_middleware_is_sent_and_not_kept() {
    let (registry, model) = answering(["one!", "two!"]);
    let reminding = generate_hook(|mut round, next| async move {
        round
            .request
            .messages
            .splice(0..0, [Message::system("remember the leeks")]);
        Ok(next.run(round).await?)
    });
    let agent = agent(&registry, "chef")
        .use_middleware(reminding)
        .define()
        .unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    chat.run("one").await.unwrap();
    chat.run("two").await.unwrap();

    assert_eq!(
        asked(&model.requests()[1]),
        [
            "system: remember the leeks",
            "user: one",
            "model: one!",
            "user: two"
        ]
    );
    assert_eq!(
        said(chat.messages()),
        ["user: one", "model: one!", "user: two", "model: two!"]
    );
}

#[tokio::test]
async fn a_part_that_a_middleware_adds_to_the_system_message_is_not_kept() {
    let (registry, model) = answering(["one!"]);
    let teaching = generate_hook(|mut round, next| async move {
        place_system_part(&mut round.request.messages, "lesson", "wash the leeks");
        Ok(next.run(round).await?)
    });
    let agent = agent(&registry, "chef")
        .system("sys")
        .use_middleware(teaching)
        .define()
        .unwrap();

    let reply = agent.run_text("one").await.unwrap();

    assert!(asked(&model.requests()[0])[0].contains("wash the leeks"));
    assert_eq!(
        said(&reply.state().unwrap().messages),
        ["user: one", "model: one!"]
    );
}

#[tokio::test]
async fn a_message_that_a_middleware_brings_into_the_conversation_is_kept() {
    let (registry, _model) = answering(["one!"]);
    let bringing = generate_hook(|mut round, next| async move {
        round.inject(Message::user("there is cream, too")).await?;
        Ok(next.run(round).await?)
    });
    let agent = agent(&registry, "chef")
        .use_middleware(bringing)
        .define()
        .unwrap();

    let reply = agent.run_text("one").await.unwrap();

    assert_eq!(
        said(&reply.state().unwrap().messages),
        ["user: one", "user: there is cream, too", "model: one!"]
    );
}

#[tokio::test]
async fn changes_for_one_model_call_are_not_saved() {
    let (registry, model) = answering(["one!"]);
    let shouting = model_hook(|mut call, next| async move {
        call.request.messages.push(Message::user("QUICK!"));
        Ok(next.run(call).await?)
    });
    let agent = agent(&registry, "chef")
        .use_middleware(shouting)
        .define()
        .unwrap();

    let reply = agent.run_text("one").await.unwrap();

    assert_eq!(asked(&model.requests()[0]), ["user: one", "user: QUICK!"]);
    assert_eq!(
        said(&reply.state().unwrap().messages),
        ["user: one", "model: one!"]
    );
}
