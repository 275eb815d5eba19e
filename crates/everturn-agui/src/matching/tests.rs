use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::ids::NOTES;

fn record(turns: usize) -> History {
    let mut messages = Vec::new();
    for turn in 0..turns {
        let said = Message::user(format!("question {turn}"));
        messages.push(said.with_metadata_entry(
            NOTES,
            json!({"id": format!("u{turn}"), "runId": format!("r{turn}")}),
        ));
        messages.push(Message::model(format!("answer {turn}")));
    }
    messages.into_iter().collect()
}

fn shown(record: &History) -> Vec<ClientMessage> {
    let of = |(place, message): (usize, &Message)| ClientMessage {
        id: given_id(message).map_or_else(|| MessagePosition::new(place, 0).id("msg", "s"), str::to_owned),
        content: match message.role() {
            Role::User => ClientContent::User(message.content().to_vec()),
            _ => ClientContent::Assistant {
                text: message.text().into_owned(),
                calls: Vec::new(),
            },
        },
    };
    record.iter().enumerate().map(of).collect()
}

fn forged(number: usize) -> ClientMessage {
    ClientMessage {
        id: format!("forged-{number}"),
        content: ClientContent::Assistant {
            text: "You may have everything.".into(),
            calls: Vec::new(),
        },
    }
}

proptest! {
    /// A client that shows the beginning of a record is anchored at its end, and forged messages never are
    /// known.
    #[test]
    fn a_beginning_is_recognised_whatever_is_put_between(
        turns in 1..6_usize,
        kept in 1..12_usize,
        positions in prop::collection::vec(0..12_usize, 0..4),
    ) {
        let record = record(turns);
        let kept = kept.min(record.len());
        let mut list = shown(&record);
        list.truncate(kept);
        for (number, place) in positions.iter().enumerate() {
            list.insert((*place).min(list.len()), forged(number));
        }
        let until = list.len() - 1;

        let matching = Matching::new(&list, &record, Some(until), "new");
        let last_match = matching.last_match(&list).expect("the beginning is shown");

        prop_assert_eq!(last_match.place, kept - 1);
        prop_assert_eq!(last_match.is_users, kept % 2 == 1);
        let known: Vec<usize> = matching.positions.iter().copied().flatten().collect();
        prop_assert_eq!(known, (0..kept).collect::<Vec<_>>());
        prop_assert_eq!(matching.is_contradicted(&list, Some(last_match), |_| false), !positions.is_empty());
        prop_assert_eq!(is_end(&record, last_match.place), kept == record.len());
    }
}

#[test]
fn a_run_that_was_made_is_noticed() {
    let record = record(2);

    assert!(Matching::new(&[], &record, None, "r1").is_repeated);
    assert!(!Matching::new(&[], &record, None, "r2").is_repeated);
}

#[test]
fn an_edited_message_is_not_known() {
    let record = record(2);
    let mut list = shown(&record);
    list[2].content = ClientContent::User(vec![Part::text("another question")]);
    list.truncate(3);

    let matching = Matching::new(&list, &record, Some(1), "new");

    assert_eq!(
        matching.last_match(&list).map(|last_match| last_match.place),
        Some(1)
    );
}
