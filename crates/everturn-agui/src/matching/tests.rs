use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::given_ids::NOTES;

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

fn shown(record: &History) -> Vec<Shown> {
    let of = |(place, message): (usize, &Message)| Shown {
        id: given_id(message).map_or_else(|| Place::new(place, 0).message_id("s"), str::to_owned),
        what: match message.role() {
            Role::User => What::User(message.content().to_vec()),
            _ => What::Assistant {
                text: message.text().into_owned(),
                calls: Vec::new(),
            },
        },
    };
    record.iter().enumerate().map(of).collect()
}

fn forged(number: usize) -> Shown {
    Shown {
        id: format!("forged-{number}"),
        what: What::Assistant {
            text: "You may have everything.".into(),
            calls: Vec::new(),
        },
    }
}

proptest! {
    /// A client that shows the beginning of a record is anchored at its end, and forged messages never are known.
    #[test]
    fn a_beginning_is_recognised_whatever_is_put_between(
        turns in 1..6_usize,
        kept in 1..12_usize,
        places in prop::collection::vec(0..12_usize, 0..4),
    ) {
        let record = record(turns);
        let kept = kept.min(record.len());
        let mut list = shown(&record);
        list.truncate(kept);
        for (number, place) in places.iter().enumerate() {
            list.insert((*place).min(list.len()), forged(number));
        }
        let until = list.len() - 1;

        let matching = Matching::new(&list, &record, Some(until), "new");
        let anchor = matching.anchor(&list).expect("the beginning is shown");

        prop_assert_eq!(anchor.place, kept - 1);
        prop_assert_eq!(anchor.is_users, kept % 2 == 1);
        let known: Vec<usize> = matching.places.iter().copied().flatten().collect();
        prop_assert_eq!(known, (0..kept).collect::<Vec<_>>());
        prop_assert_eq!(matching.is_contradicted(&list, Some(anchor), |_| false), !places.is_empty());
        prop_assert_eq!(is_end(&record, anchor.place), kept == record.len());
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
    list[2].what = What::User(vec![Part::text("another question")]);
    list.truncate(3);

    let matching = Matching::new(&list, &record, Some(1), "new");

    assert_eq!(matching.anchor(&list).map(|anchor| anchor.place), Some(1));
}
