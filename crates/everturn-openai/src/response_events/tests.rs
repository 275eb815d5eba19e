use everturn_agent::{AddedMessages, AgentFinishReason, TurnEnd};
use everturn_ai::{Message, ModelResponseChunk, Part, Role, ToolRequest, ToolResponse};
use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::items::TurnInfo;

/// An item as a client assembles it from events.
#[derive(Debug, Default)]
struct Heard {
    id: String,
    text: String,
    has_part: bool,
    is_done: bool,
}

/// Validates a stream by the rules of the clients' own helpers; returns the response at its end.
fn received(events: &[Value]) -> Result<Value, String> {
    let mut items: Vec<Heard> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let fault = |what: &str| Err(format!("{what}: {event}"));
        let kind = event["type"].as_str().unwrap_or_default();
        if event["sequence_number"] != json!(number) {
            return fault("a number is missing");
        }
        if (number == 0) != (kind == "response.created") {
            return fault("a stream begins with 'response.created', once");
        }
        let index = event["output_index"]
            .as_u64()
            .and_then(|index| usize::try_from(index).ok());
        match (kind, index) {
            ("response.in_progress" | "response.created", None) => {}
            ("response.completed", None) if number + 1 == events.len() => {}
            ("response.output_item.added", Some(index)) if index == items.len() => items.push(Heard {
                id: event["item"]["id"].as_str().unwrap_or_default().to_owned(),
                ..Heard::default()
            }),
            (_, Some(index)) => {
                let Some(item) = items.get_mut(index).filter(|item| !item.is_done) else {
                    return fault("an item that is not open");
                };
                let id = event["item_id"].as_str().or(event["item"]["id"].as_str());
                if id != Some(&item.id) {
                    return fault("the id of another item");
                }
                match kind {
                    "response.content_part.added" => item.has_part = true,
                    "response.output_text.delta" | "response.reasoning_text.delta" if item.has_part => {
                        item.text.push_str(event["delta"].as_str().unwrap_or_default());
                    }
                    "response.output_text.delta" | "response.reasoning_text.delta" => {
                        return fault("no part was added");
                    }
                    "response.output_text.done" | "response.reasoning_text.done"
                        if event["text"] != json!(item.text) =>
                    {
                        return fault("other words than were sent");
                    }
                    "response.output_item.done" => item.is_done = true,
                    _ => {}
                }
            }
            _ => return fault("an event that does not belong here"),
        }
    }
    let response = events
        .last()
        .map(|event| event["response"].clone())
        .unwrap_or_default();
    let output = response["output"].as_array().map_or(0, Vec::len);
    if output != items.len() || items.iter().any(|item| !item.is_done) {
        return Err(format!("an item was not sent to its end: {items:?}"));
    }
    Ok(response)
}

fn response_events() -> ResponseEvents {
    let response = Response {
        id: "resp_s_6b".into(),
        name: "s".into(),
        agent: "k".into(),
        created_at: 0,
        completed_at: None,
        status: State::InProgress,
        background: false,
        is_stored: true,
        session: None,
        previous: None,
        echoed: Map::new(),
        usage: None,
    };
    ResponseEvents::new(response, ItemStream::new(TurnInfo::default()))
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        "[a-zäß ]{0,4}".prop_map(Part::text),
        "[a-z]{0,3}".prop_map(Part::reasoning),
        (0..3_u8).prop_map(|number| {
            Part::tool_request(ToolRequest::new("look", json!({})).with_reference(number.to_string()))
        }),
        Just(Part::media("https://example.com/leek.png")),
    ]
}

/// The messages of a turn: the model's, each with the results of its calls behind it.
fn turn() -> impl Strategy<Value = Vec<Message>> {
    let message = prop::collection::vec(part(), 0..6).prop_map(Message::model);
    prop::collection::vec(message, 0..4).prop_map(|models| {
        let mut messages = Vec::new();
        for message in models {
            let results = message
                .tool_requests()
                .map(|request| Part::tool_response(ToolResponse::to(request, "seen")));
            let results: Vec<Part> = results.collect();
            messages.push(message);
            if !results.is_empty() {
                messages.push(Message::tool(results));
            }
        }
        messages
    })
}

fn chunk(place: usize, role: Role, part: Part) -> AgentStreamChunk {
    AgentStreamChunk::model(ModelResponseChunk {
        role: Some(role),
        content: vec![part],
        ..ModelResponseChunk::default()
    })
    .at(Some(place))
}

/// A text or reasoning letter by letter, and every other part whole.
fn letters(part: &Part) -> Vec<Part> {
    let each = |text: &str, new: fn(String) -> Part| text.chars().map(|letter| new(letter.into())).collect();
    match (part.as_text(), part.as_reasoning()) {
        (Some(text), _) => each(text, Part::text),
        (_, Some(text)) => each(text, Part::reasoning),
        _ => vec![part.clone()],
    }
}

/// Encodes a turn; `streamed` selects the messages that were streamed.
fn encode(messages: &[Message], streamed: &[bool], split: impl Fn(&Part) -> Vec<Part>) -> Vec<Value> {
    let mut encoder = response_events();
    let mut events = encoder.start();
    for (offset, message) in messages.iter().enumerate() {
        if streamed[offset % streamed.len()] {
            for part in message.content().iter().flat_map(&split) {
                events.extend(encoder.chunk(&chunk(offset + 1, message.role(), part)));
            }
        }
    }
    events.extend(encoder.chunk(&AgentStreamChunk::turn_end(TurnEnd {
        finish_reason: Some(AgentFinishReason::Stop),
        added: Some(AddedMessages {
            position: 1,
            messages: messages.to_vec(),
        }),
        ..TurnEnd::default()
    })));
    encoder.response.status = State::Completed;
    events.push(encoder.end());
    events.iter().map(|event| event.data.read().unwrap()).collect()
}

proptest! {
    /// For every streamed subset of a turn, in any pieces, clients accept the events and end with one
    /// response.
    #[test]
    fn every_turn_is_encoded_in_a_form_that_clients_accept(
        messages in turn(),
        streamed in prop::collection::vec(any::<bool>(), 8),
    ) {
        let whole = received(&encode(&messages, &streamed, |part| vec![part.clone()]));
        let letters = received(&encode(&messages, &streamed, letters));

        prop_assert!(whole.is_ok(), "{:?}", whole);
        prop_assert_eq!(whole, letters);
    }
}
