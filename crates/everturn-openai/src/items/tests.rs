use everturn_agent::AgentStreamChunk;
use everturn_ai::ModelResponseChunk;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn chunk(place: usize, role: Role, content: Vec<Part>) -> AgentStreamChunk {
    AgentStreamChunk::model(ModelResponseChunk {
        role: Some(role),
        content,
        ..ModelResponseChunk::default()
    })
    .at(Some(place))
}

fn call(name: &str, reference: &str) -> ToolRequest {
    ToolRequest::new(name, json!({})).with_reference(reference)
}

/// A turn with text, a tool and more text.
fn turn() -> Vec<Message> {
    vec![
        Message::user("hi"),
        Message::model(vec![
            Part::reasoning("hm"),
            Part::text("Let me look."),
            Part::tool_request(call("look", "1")),
        ]),
        Message::tool(vec![Part::tool_response(ToolResponse::to(
            &call("look", "1"),
            "seen",
        ))]),
        Message::model("Found."),
    ]
}

fn kinds(items: &[Item]) -> Vec<String> {
    let name = |item: &Item| match &item.kind {
        ItemKind::Text(text) => format!("text {text}"),
        ItemKind::Reasoning(text) => format!("reasoning {text}"),
        ItemKind::Question(request) => format!("question {}", request.name),
        ItemKind::Approval(request) => format!("approval {}", request.name),
        ItemKind::Done { request, output, .. } => format!("done {} {}", request.name, json!(output)),
    };
    items.iter().map(name).collect()
}

#[test]
fn a_turn_is_sent_in_items_with_places() {
    let items = items_of(4, &turn(), &TurnInfo::default());

    assert_eq!(
        kinds(&items),
        [
            "reasoning hm",
            "text Let me look.",
            "done look \"seen\"",
            "text Found."
        ]
    );
    let keys: Vec<_> = items
        .iter()
        .map(|item| (item.key.message, item.key.number))
        .collect();
    assert_eq!(keys, [(5, 0), (5, 1), (5, 2), (7, 0)]);
}

#[test]
fn calls_that_wait_are_sent_by_who_answers_them() {
    let asking = |name: &str, data: Value| {
        Part::tool_request(call(name, name)).with_metadata_entry(metadata::INTERRUPT, data)
    };
    let message = Message::model(vec![
        asking("paint", json!({"clientTool": true})),
        asking("person", json!(true)),
        asking("pay", json!({"confirm": 1})),
        Part::tool_request(call("look", "l")).with_metadata_entry(metadata::PENDING_OUTPUT, "seen"),
    ]);

    let info = TurnInfo {
        respond_only: vec!["person".into()],
        ..TurnInfo::default()
    };
    let items = items_of(0, &[message], &info);

    assert_eq!(
        kinds(&items),
        [
            "question paint",
            "question person",
            "approval pay",
            "done look \"seen\""
        ]
    );
}

#[test]
fn a_restarted_call_of_the_turn_before_is_sent_and_an_answered_one_is_not() {
    let prior = [
        Part::tool_request(call("pay", "1")),
        Part::tool_request(call("ask", "2")),
    ];
    let answered = prior[1].respond("yes", None).unwrap();
    let paid = Part::tool_response(ToolResponse::to(&call("pay", "1"), "paid"));

    let info = TurnInfo {
        prior: prior.to_vec(),
        ..TurnInfo::default()
    };
    let items = items_of(2, &[Message::tool(vec![paid, answered])], &info);

    assert_eq!(kinds(&items), ["done pay \"paid\""]);
}

#[test]
fn what_was_not_streamed_is_sent_at_the_end() {
    let mut items = ItemStream::default();

    let steps = items.end(0, &turn());

    assert_eq!(items.items(), items_of(0, &turn(), &TurnInfo::default()));
    assert_eq!(
        steps
            .iter()
            .filter(|step| matches!(step, ItemStep::Started(_)))
            .count(),
        4
    );
    assert_eq!(
        steps
            .iter()
            .filter(|step| matches!(step, ItemStep::Finished(_)))
            .count(),
        4
    );
}

/// Splits a text at the given fractions of its characters.
fn split(text: &str, cuts: &[usize]) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (letters.len() + 1)).collect();
    places.push(0);
    places.push(letters.len());
    places.sort_unstable();
    places
        .windows(2)
        .map(|ends| letters[ends[0]..ends[1]].iter().collect())
        .collect()
}

proptest! {
    /// For every split of a turn's stream, and wherever it ends, each item is opened, sent whole and closed
    /// once.
    #[test]
    fn every_item_is_sent_once(cuts in prop::collection::vec(0usize..40, 0..6), kept in 0usize..24) {
        let messages = turn();
        let mut chunks = Vec::new();
        for (place, message) in messages.iter().enumerate().skip(1) {
            for part in message.content() {
                match Run::of(part) {
                    Some((run, text)) => chunks.extend(split(text, &cuts).into_iter().map(|piece| {
                        let part = match run {
                            Run::Text => Part::text(piece),
                            Run::Reasoning => Part::reasoning(piece),
                        };
                        chunk(place, message.role(), vec![part])
                    })),
                    None => chunks.push(chunk(place, message.role(), vec![part.clone()])),
                }
            }
        }
        let mut items = ItemStream::default();
        let mut steps: Vec<ItemStep> = chunks.iter().take(kept).flat_map(|chunk| items.chunk(chunk)).collect();
        steps.extend(items.end(0, &messages));

        let mut expected = items_of(0, &messages, &TurnInfo::default());
        let mut sent = items.items().to_vec();
        expected.sort_by_key(|item| item.key);
        sent.sort_by_key(|item| item.key);
        prop_assert_eq!(sent, expected);
        for index in 0..items.items().len() {
            let about = |step: &&ItemStep| match step {
                ItemStep::Started(of) | ItemStep::Finished(of) | ItemStep::Delta(of, _) => *of == index,
            };
            let own: Vec<&ItemStep> = steps.iter().filter(about).collect();
            prop_assert!(matches!(own.first(), Some(ItemStep::Started(_))));
            prop_assert!(matches!(own.last(), Some(ItemStep::Finished(_))));
            prop_assert_eq!(own.iter().filter(|step| matches!(step, ItemStep::Started(_))).count(), 1);
            prop_assert_eq!(own.iter().filter(|step| matches!(step, ItemStep::Finished(_))).count(), 1);
        }
    }
}
