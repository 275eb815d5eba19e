use everturn_agent::patch::JsonPatch;
use everturn_agent::{AgentFinishReason, TurnEnd};
use everturn_ai::ModelResponseChunk;
use proptest::prelude::*;

use super::*;

#[path = "../../tests/it/support/verifier.rs"]
mod verifier;

use self::verifier::verify;

/// A message of the model, or the results of its calls, as a script for a stream.
#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Reasoning(String),
    Call(u8),
    Media,
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        "[a-zäß ]{0,4}".prop_map(Piece::Text),
        "[a-z]{0,3}".prop_map(Piece::Reasoning),
        (0..3_u8).prop_map(Piece::Call),
        Just(Piece::Media),
    ]
}

fn part(piece: &Piece) -> Part {
    match piece {
        Piece::Text(text) => Part::text(text),
        Piece::Reasoning(text) => Part::reasoning(text),
        Piece::Call(number) => {
            Part::tool_request(ToolRequest::new("look", json!({})).with_reference(number.to_string()))
        }
        Piece::Media => Part::media("https://example.com/leek.png"),
    }
}

fn results(message: &Message) -> Option<Message> {
    let parts: Vec<Part> = message
        .tool_requests()
        .map(|request| Part::tool_response(ToolResponse::to(request, "seen")))
        .collect();
    (!parts.is_empty()).then(|| Message::tool(parts))
}

fn chunk(place: usize, role: Role, part: Part) -> AgentStreamChunk {
    let model = ModelResponseChunk {
        role: Some(role),
        content: vec![part],
        ..ModelResponseChunk::default()
    };
    AgentStreamChunk::model(model).at(Some(place))
}

fn ended(messages: &[Message]) -> AgentStreamChunk {
    AgentStreamChunk::turn_end(TurnEnd {
        finish_reason: Some(AgentFinishReason::Stop),
        added: Some(AddedMessages {
            position: 1,
            messages: messages.to_vec(),
        }),
        ..TurnEnd::default()
    })
}

fn whole(events: Vec<Value>) -> Vec<Value> {
    let mut all = vec![json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" })];
    all.extend(events);
    all.push(json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" }));
    all
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

fn words(events: &[Value], kind: &str) -> String {
    let deltas = events.iter().filter(|event| event["type"] == kind);
    deltas.filter_map(|event| event["delta"].as_str()).collect()
}

proptest! {
    /// For every streamed subset of a turn, clients accept its events, and each part is emitted once and in
    /// order.
    #[test]
    fn every_turn_is_encoded_once_in_a_form_that_clients_accept(
        script in prop::collection::vec(prop::collection::vec(piece(), 0..6), 0..4),
        streamed in prop::collection::vec(any::<bool>(), 8),
        cut in any::<bool>(),
    ) {
        let mut messages = Vec::new();
        for pieces in &script {
            let message = Message::model(pieces.iter().map(part).collect::<Vec<_>>());
            let answered = results(&message);
            messages.push(message);
            messages.extend(answered);
        }
        let mut encoder = TurnEncoder::new(TurnInfo { name: "s".into(), ..TurnInfo::default() });
        let mut events = Vec::new();
        for (offset, message) in messages.iter().enumerate() {
            if streamed[offset % streamed.len()] {
                for part in message.content() {
                    events.extend(encoder.chunk(&chunk(offset + 1, message.role(), part.clone())));
                }
            }
        }
        if !cut {
            events.extend(encoder.chunk(&ended(&messages)));
        }
        events.extend(encoder.close_all(None));

        let all = whole(events);
        prop_assert_eq!(verify(&all), Ok(()));
        if !cut {
            let models = || messages.iter().filter(|message| message.role() == Role::Model);
            let calls: usize = models().map(|message| message.tool_requests().count()).sum();
            prop_assert_eq!(count(&all, "TOOL_CALL_START"), calls);
            prop_assert_eq!(count(&all, "TOOL_CALL_RESULT"), calls);
            let media: usize = models().map(|message| message.media().count()).sum();
            prop_assert_eq!(count(&all, "CUSTOM"), media);
            let sorted = |text: &str| {
                let mut letters: Vec<char> = text.chars().collect();
                letters.sort_unstable();
                letters
            };
            let text: String = models().map(|message| message.text().into_owned()).collect();
            prop_assert_eq!(sorted(&words(&all, "TEXT_MESSAGE_CONTENT")), sorted(&text));
            let thought: String = models().map(|message| message.reasoning().into_owned()).collect();
            prop_assert_eq!(sorted(&words(&all, "REASONING_MESSAGE_CONTENT")), sorted(&thought));
        }
        let mut ids: Vec<&str> = all
            .iter()
            .filter(|event| event["type"] == "TEXT_MESSAGE_START" || event["type"] == "TOOL_CALL_START")
            .filter_map(|event| event["toolCallId"].as_str().or(event["messageId"].as_str()))
            .collect();
        let number = ids.len();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), number);
    }
}

#[test]
fn the_rest_of_a_text_that_was_streamed_in_part_is_emitted() {
    let mut encoder = TurnEncoder::new(TurnInfo {
        name: "s".into(),
        ..TurnInfo::default()
    });

    let mut events = encoder.chunk(&chunk(1, Role::Model, Part::text("Leek ")));
    events.extend(encoder.chunk(&ended(&[Message::model("Leek soup.")])));

    assert_eq!(words(&events, "TEXT_MESSAGE_CONTENT"), "Leek soup.");
    assert_eq!(count(&events, "TEXT_MESSAGE_START"), 1);
}

#[test]
fn a_whole_patch_is_a_snapshot_and_another_a_delta() {
    let mut encoder = TurnEncoder::default();
    let whole = JsonPatch::replace_document(json!({"a": 1}));
    let part = JsonPatch::diff(&json!({"a": 1}), &json!({"a": null}));

    let snapshot = encoder.chunk(&AgentStreamChunk::patch(whole));
    let delta = encoder.chunk(&AgentStreamChunk::patch(part));

    assert_eq!(
        snapshot,
        [json!({"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}})]
    );
    let change = json!([{"op": "replace", "path": "/a", "value": null}]);
    assert_eq!(delta, [json!({"type": "STATE_DELTA", "delta": change})]);
}
