//! Each provider's rules reject known invalid conversations, and accept valid ones.

use everturn_ai::{Message, Messages, Part, ToolRequest, ToolResponse};
use everturn_testkit::provider_rules::Provider;
use serde_json::json;

fn call(reference: &str) -> Part {
    Part::from(ToolRequest::new("pay", json!({})).with_reference(reference))
}

fn answer(reference: &str) -> Part {
    let request = ToolRequest::new("pay", json!({})).with_reference(reference);
    Part::from(ToolResponse::to(&request, "done"))
}

/// Returns the providers that accept a conversation.
fn takers(messages: Vec<Message>) -> Vec<Provider> {
    let messages = Messages::from(messages);
    Provider::ALL
        .into_iter()
        .filter(|provider| provider.check(&messages).is_ok())
        .collect()
}

#[test]
fn a_conversation_with_calls_and_answers_in_their_places_is_taken_by_all() {
    let good = vec![
        Message::system("Be kind."),
        Message::user("pay twice"),
        Message::model(vec![Part::reasoning("hm"), call("1"), call("2")]),
        Message::tool(vec![answer("2"), answer("1")]),
        Message::model(vec![call("1")]),
        Message::tool(vec![answer("1")]),
        Message::model("done"),
        Message::user("thanks"),
        Message::user("bye"),
    ];

    assert_eq!(takers(good), Provider::ALL);
    assert_eq!(
        takers(vec![Message::model("Hello!"), Message::user("hi")]),
        Provider::ALL
    );
}

#[test]
fn a_call_without_an_answer_is_refused() {
    let open = vec![Message::user("pay"), Message::model(vec![call("1")])];
    let passed_over = [open.clone(), vec![Message::user("hello?")]].concat();
    let partly = [
        open.clone(),
        vec![Message::model(vec![call("2")]), Message::tool(vec![answer("2")])],
    ]
    .concat();

    for bad in [open, passed_over, partly] {
        // Ollama does not pair calls and answers.
        assert_eq!(takers(bad), [Provider::Ollama]);
    }
}

#[test]
fn an_answer_without_a_call_is_refused() {
    let orphans = [
        vec![Message::tool(vec![answer("1")]), Message::user("hi")],
        vec![
            Message::user("hi"),
            Message::model("ok"),
            Message::tool(vec![answer("1")]),
        ],
        vec![
            Message::user("pay"),
            Message::model(vec![call("1")]),
            Message::tool(vec![answer("1"), answer("1")]),
        ],
        vec![
            Message::user("pay"),
            Message::model(vec![call("1")]),
            Message::tool(vec![answer("1"), answer("2")]),
        ],
        vec![Message::user(vec![answer("1")])],
    ];

    for bad in orphans {
        assert_eq!(takers(bad), []);
    }
}

#[test]
fn an_answer_in_the_wrong_place_is_refused_where_places_matter() {
    let late = vec![
        Message::user("pay"),
        Message::model(vec![call("1")]),
        Message::user("hello?"),
        Message::tool(vec![answer("1")]),
    ];

    let takers = takers(late);

    // Responses pairs by id, and two providers treat tool results as the user's.
    assert_eq!(
        takers,
        [Provider::OpenAiResponses, Provider::Anthropic, Provider::Gemini]
    );
}

#[test]
fn a_message_without_content_is_refused() {
    let empty = [
        vec![],
        vec![Message::user("")],
        vec![Message::user("hi"), Message::model(Vec::<Part>::new())],
        vec![Message::user("hi"), Message::model(vec![Part::reasoning("hm")])],
        vec![
            Message::user("hi"),
            Message::model(vec![call("1")]),
            Message::tool(Vec::<Part>::new()),
        ],
    ];

    for bad in empty {
        assert_eq!(takers(bad), []);
    }
}
