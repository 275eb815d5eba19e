//! A history that a request shares stays shared, from the caller through the loop into the response.

use everturn_ai::{
    ConstrainedSupport, Document, History, Message, ModelInfo, ModelSupports, messages::Segment,
};
use serde_json::json;

use crate::generate_support::{
    constant, message, object_schema, request, says, scripted, scripted_with, step,
};

fn history(len: usize) -> History {
    let pair = |n: usize| {
        if n.is_multiple_of(2) {
            Message::user(format!("q{n}"))
        } else {
            Message::model(format!("a{n}"))
        }
    };
    (0..len).map(pair).collect()
}

fn shares(messages: &everturn_ai::Messages, history: &History) -> bool {
    messages.segments().any(|segment| match segment {
        Segment::History { history: own, .. } => own.shared_prefix(history) == history.len(),
        Segment::Run(_) => false,
    })
}

#[tokio::test]
async fn through_a_round_of_tools() {
    let history = history(1000);
    let asks = message(json!([request("t", "1", json!({}))]));
    let (_registry, script, generate) = scripted([step(asks), step(says("x"))]);

    let generate = generate
        .system("You cook.")
        .messages(&history)
        .prompt("p")
        .tool(constant("t", "o"));
    let response = generate.await.unwrap();

    assert!(
        script
            .requests()
            .iter()
            .all(|request| shares(&request.messages, &history))
    );
    assert!(shares(&response.request.as_ref().unwrap().messages, &history));
    assert!(shares(&response.messages(), &history));
    assert_eq!(response.messages().len(), 1000 + 5);
    assert_eq!(history.len(), 1000);
}

#[tokio::test]
async fn through_every_wrapper() {
    let history = history(1000);
    let supports = ModelSupports {
        system_role: Some(false),
        context: Some(false),
        constrained: Some(ConstrainedSupport::None),
        ..ModelSupports::default()
    };
    let info = ModelInfo {
        supports: Some(supports),
        ..ModelInfo::default()
    };
    let (_registry, script, generate) = scripted_with(info, [step(says("{\"a\": 1}"))]);

    let generate = generate
        .system("You cook.")
        .messages(&history)
        .prompt("p")
        .docs([Document::from("d")]);
    let response = generate
        .output_schema(&object_schema("a", "number"))
        .await
        .unwrap();

    let seen = &script.requests()[0].messages;
    assert!(shares(seen, &history));
    assert_eq!(seen.len(), 1000 + 3);
    assert!(seen.last().unwrap().text().contains("- [0]: d"));
    assert_eq!(
        response.request.as_ref().unwrap().messages.last().unwrap().text(),
        "p"
    );
}
