//! The laws of windows, over random conversations.

use futures::FutureExt;
use proptest::prelude::*;
use serde_json::json;

use super::cut::start;
use super::frame::frame;
use super::measure::Measure;
use super::view::View;
use crate::{Feature, History, Message, Messages, Part, Role, ToolRequest, ToolResponse, metadata};

fn request(reference: u8) -> ToolRequest {
    ToolRequest::new("look", json!({})).with_reference(reference.to_string())
}

fn asking(reference: u8) -> Message {
    Message::model(Part::tool_request(request(reference)))
}

fn answering(reference: u8, size: usize) -> Message {
    let response = ToolResponse::to(&request(reference), "x".repeat(size));
    Message::tool(Part::tool_response(response))
}

/// Any message, in any order: most of these conversations are not valid.
fn anything() -> impl Strategy<Value = Message> {
    prop_oneof![
        4 => (0..200_usize).prop_map(|size| Message::user("u".repeat(size))),
        3 => (0..200_usize).prop_map(|size| Message::model("m".repeat(size))),
        2 => (0..3_u8).prop_map(asking),
        2 => ((0..3_u8), (0..200_usize)).prop_map(|(reference, size)| answering(reference, size)),
        1 => (0..100_usize).prop_map(|size| Message::system("s".repeat(size))),
        1 => Just(Message::user("an example").with_metadata_entry(metadata::PROMPT, true)),
    ]
}

/// A turn of a valid conversation: a question, some rounds of tools, an answer.
fn turn() -> impl Strategy<Value = Vec<Message>> {
    let rounds = prop::collection::vec(0..120_usize, 0..3);
    (0..300_usize, rounds, 0..300_usize).prop_map(|(question, rounds, answer)| {
        let mut turn = vec![Message::user("q".repeat(question))];
        for (reference, size) in rounds.into_iter().enumerate() {
            let reference = u8::try_from(reference).unwrap();
            turn.extend([asking(reference), answering(reference, size)]);
        }
        turn.push(Message::model("a".repeat(answer)));
        turn
    })
}

fn conversation() -> impl Strategy<Value = Vec<Message>> {
    prop::collection::vec(turn(), 1..40).prop_map(|turns| turns.concat())
}

fn is(message: &Message, feature: Feature) -> bool {
    message.stats().messages_with(feature) > 0
}

fn begin(messages: &Messages, room: u64) -> usize {
    start(&View::new(messages, &Measure::Estimate, true), 0, room)
}

/// Returns whether an answer from `start` on has its call before `start`, and no other call after it.
fn parts_a_call(messages: &[Message], start: usize) -> bool {
    let calls = |message: &Message| -> Vec<Option<String>> {
        message
            .tool_requests()
            .map(|request| request.reference.clone())
            .collect()
    };
    (start..messages.len()).any(|index| {
        let responses = messages[index]
            .content()
            .iter()
            .filter_map(Part::as_tool_response);
        responses.into_iter().any(|response| {
            let asked = |within: &[Message]| {
                within
                    .iter()
                    .flat_map(calls)
                    .any(|call| call == response.reference)
            };
            asked(&messages[..start]) && !asked(&messages[start..index])
        })
    })
}

fn seen(messages: &Messages, room: u64, kept_outputs: Option<usize>) -> Vec<Message> {
    let measure = Measure::Estimate;
    let view = View::new(messages, &measure, kept_outputs.is_none());
    let framed = frame(&view, Some(room), kept_outputs, None);
    let framed = framed.now_or_never().expect("no summary is made");
    framed.messages.iter().cloned().collect()
}

proptest! {
    #[test]
    fn a_window_begins_with_a_user_message_and_parts_no_answer_from_its_call(
        messages in prop::collection::vec(anything(), 0..60),
        room in 1..600_u64,
    ) {
        let start = begin(&messages.clone().into(), room);

        if start > 0 {
            prop_assert!(is(&messages[start], Feature::User));
            prop_assert!(!parts_a_call(&messages, start), "{start}: {messages:?}");
        }
    }

    #[test]
    fn the_model_sees_pinned_messages_and_the_end_of_the_conversation(
        messages in prop::collection::vec(anything(), 0..60),
        room in 1..600_u64,
    ) {
        let start = begin(&messages.clone().into(), room);
        let pinned = messages[..start].iter().filter(|message| is(message, Feature::Pinned));
        let expected: Vec<Message> = pinned.chain(&messages[start..]).cloned().collect();

        prop_assert_eq!(seen(&messages.into(), room, None), expected);
    }

    #[test]
    fn a_window_is_the_same_for_a_shared_history_and_for_a_list(
        messages in conversation(),
        room in 1..600_u64,
        split in any::<prop::sample::Index>(),
    ) {
        let split = split.index(messages.len() + 1);
        let mut shared = Messages::from(Message::system("Be kind."));
        shared.append(messages[..split].iter().cloned().collect::<History>());
        shared.extend(messages[split..].iter().cloned());
        let mut list = vec![Message::system("Be kind.")];
        list.extend(messages);

        prop_assert_eq!(begin(&shared, room), begin(&list.into(), room));
    }

    #[test]
    fn the_beginning_stays_until_the_window_is_full_and_then_moves_by_half(
        messages in conversation(),
        room in 100..600_u64,
    ) {
        let mut history = History::new();
        let (mut last, mut moves) = (Vec::new(), 0);
        for message in messages {
            let asks = message.role() != Role::Model;
            history.push(message);
            // A model is called after a user's message and after the answers of tools.
            if !asks {
                continue;
            }
            let now = seen(&(&history).into(), room, None);
            if !now.starts_with(&last) {
                moves += 1;
            }
            last = now;
        }

        let total = history.stats().tokens;
        prop_assert!(moves <= total / (room / 2), "{moves} moves in {total} tokens");
    }

    #[test]
    fn a_window_never_holds_more_than_its_room_unless_the_last_turn_does(
        messages in conversation(),
        room in 1..600_u64,
    ) {
        let last_turn = messages.iter().rposition(|message| message.role() == Role::User).unwrap();
        let messages = Messages::from(messages);
        let view = View::new(&messages, &Measure::Estimate, true);
        let start = start(&view, 0, room);

        prop_assert!(view.tokens_from(start) <= room || start == last_turn);
    }

    #[test]
    fn cleared_outputs_change_nothing_but_outputs(messages in conversation(), kept in 0..4_usize) {
        let all = u64::MAX / 4;
        let with = seen(&messages.clone().into(), all, None);
        let without = seen(&messages.clone().into(), all, Some(kept));
        let answers: Vec<usize> = (0..with.len()).filter(|index| is(&with[*index], Feature::ToolResponse)).collect();
        let changed: Vec<usize> = (0..with.len()).filter(|index| with[*index] != without[*index]).collect();

        prop_assert_eq!(with.len(), without.len());
        prop_assert!(changed.iter().all(|index| answers.contains(index)));
        let latest = answers.iter().rev().take(kept.max(1));
        prop_assert!(latest.into_iter().all(|index| !changed.contains(index)));
    }

    #[test]
    fn a_counting_function_gives_the_sums_of_its_counts(
        messages in prop::collection::vec(anything(), 0..40),
        forks in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let measure = Measure::Function(std::sync::Arc::new(|message: &Message| message.text().len() as u64 + 1));
        let mut history = History::from_iter(messages);
        for fork in forks {
            let len = fork.index(history.len() + 1);
            let whole = Messages::from(&history);
            let expected: u64 = whole.iter().take(len).map(|message| message.text().len() as u64 + 1).sum();
            prop_assert_eq!(measure.before(&whole, len).tokens, expected);
            // A branch has its own messages after those it shares.
            history = history.truncate_to(len);
            history.extend([Message::user("on a branch"), Message::model("as well")]);
        }
        let whole = Messages::from(&history);
        let expected: u64 = whole.iter().map(|message| message.text().len() as u64 + 1).sum();
        prop_assert_eq!(measure.before(&whole, whole.len()).tokens, expected);
    }
}
