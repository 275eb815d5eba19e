//! A `History` behaves like a list of messages, whatever is shared underneath.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use everturn_ai::{Feature, History, Message, Part};
use proptest::prelude::*;

/// A step of a program over a growing set of histories, each chosen by a number modulo how many there are.
#[derive(Debug, Clone)]
enum Step {
    Push(usize, Message),
    Fork(usize),
    Truncate(usize, usize),
    Extend(usize, Vec<Message>),
}

fn message() -> impl Strategy<Value = Message> {
    // Few different texts, so that branches also agree by value and not only by sharing.
    prop_oneof![
        4 => (0..3_u8).prop_map(|n| Message::user(format!("question {n}"))),
        4 => (0..3_u8).prop_map(|n| Message::model(format!("answer {n}"))),
        1 => Just(Message::system("Be kind.")),
        1 => Just(Message::user(Part::resource("file:///pantry"))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<usize>(), message()).prop_map(|(which, message)| Step::Push(which, message)),
        1 => any::<usize>().prop_map(Step::Fork),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(which, len)| Step::Truncate(which, len)),
        1 => (any::<usize>(), prop::collection::vec(message(), 0..9))
            .prop_map(|(which, messages)| Step::Extend(which, messages)),
    ]
}

fn run(steps: Vec<Step>) -> Vec<(History, Vec<Message>)> {
    let mut all = vec![(History::new(), Vec::new())];
    for step in steps {
        let count = all.len();
        match step {
            Step::Push(which, message) => {
                let (history, model) = &mut all[which % count];
                history.push(message.clone());
                model.push(message);
            }
            Step::Fork(which) => all.push(all[which % count].clone()),
            Step::Truncate(which, len) => {
                let (history, model) = &all[which % count];
                let len = len % (model.len() + 2);
                let older = (
                    history.truncate_to(len),
                    model.iter().take(len).cloned().collect(),
                );
                all.push(older);
            }
            Step::Extend(which, messages) => {
                let (history, model) = &mut all[which % count];
                history.extend(messages.clone());
                model.extend(messages);
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn every_history_reads_like_its_list(steps in prop::collection::vec(step(), 0..60), start in 0..20_usize) {
        for (history, model) in run(steps) {
            prop_assert_eq!(history.len(), model.len());
            prop_assert!(history.iter().eq(&model));
            prop_assert!(history.iter().rev().eq(model.iter().rev()));
            prop_assert!(history.since(start).eq(model.iter().skip(start)));
            prop_assert_eq!(history.last(), model.last());
            for index in 0..=model.len() {
                prop_assert_eq!(history.get(index), model.get(index));
            }
        }
    }

    #[test]
    fn common_prefixes_are_those_of_the_lists(steps in prop::collection::vec(step(), 0..40)) {
        let all = run(steps);
        for (history, model) in &all {
            for (other, other_model) in &all {
                let expected = model.iter().zip(other_model).take_while(|(a, b)| a == b).count();
                prop_assert_eq!(history.common_prefix(other), expected);
                prop_assert!(history.shared_prefix(other) <= expected);
                prop_assert_eq!(history == other, model == other_model);
            }
        }
    }

    #[test]
    fn features_are_found_where_the_list_has_them(steps in prop::collection::vec(step(), 0..40)) {
        for (history, model) in run(steps) {
            let sum = model.iter().map(Message::stats).sum();
            prop_assert_eq!(history.stats(), sum);
            for feature in [Feature::System, Feature::Resource, Feature::Media] {
                for start in 0..=model.len() {
                    let has = |message: &Message| message.stats().messages_with(feature) > 0;
                    let expected = model.iter().skip(start).position(has).map(|index| start + index);
                    prop_assert_eq!(history.next_with(feature, start), expected);
                    let expected = model[..start].iter().rposition(has);
                    prop_assert_eq!(history.last_with(feature, start), expected);
                }
            }
        }
    }

    #[test]
    fn a_history_survives_json(messages in prop::collection::vec(message(), 0..40)) {
        let history: History = messages.iter().cloned().collect();

        let json = serde_json::to_value(&history).unwrap();

        prop_assert_eq!(&json, &serde_json::to_value(&messages).unwrap());
        prop_assert_eq!(serde_json::from_value::<History>(json).unwrap(), history);
    }
}

#[test]
fn appending_at_the_tip_stays_in_the_lineage_and_below_it_forks() {
    let mut history = History::from_iter([Message::user("a"), Message::model("b")]);
    let root = history.lineage().id();
    let older = history.truncate_to(1);

    history.push(Message::user("c"));
    let mut branch = older.clone();
    branch.push(Message::model("other"));

    assert_eq!(history.lineage().id(), root);
    assert_ne!(branch.lineage().id(), root);
    assert_eq!(branch.lineage().parent(), Some(&older));
    assert_eq!(branch.lineage().base(), 1);
    assert_eq!(branch.shared_prefix(&history), 1);
}

#[test]
fn a_chain_of_200_000_lineages_is_dropped_without_recursion() {
    let mut history = History::from_iter([Message::user("first")]);
    let message = Message::user("next");
    for _ in 0..200_000 {
        let mut sibling = history.clone();
        history.push(message.clone());
        // The tip is taken now, so that this goes into its own lineage.
        sibling.push(message.clone());
        history = sibling;
    }
    assert_eq!(history.len(), 200_001);

    drop(history);
}

#[test]
fn two_threads_that_append_at_one_position_get_a_branch_each() {
    for _ in 0..200 {
        let shared = History::from_iter([Message::user("shared")]);
        let barrier = Arc::new(Barrier::new(2));

        let branches = ["left", "right"].map(|side| {
            let (mut history, barrier) = (shared.clone(), Arc::clone(&barrier));
            thread::spawn(move || {
                barrier.wait();
                (0..50).for_each(|n| history.push(Message::model(format!("{side} {n}"))));
                history
            })
        });
        let [left, right] = branches.map(|branch| branch.join().unwrap());

        for (branch, side) in [(&left, "left"), (&right, "right")] {
            let texts: Vec<_> = branch
                .since(1)
                .map(|message| message.text().into_owned())
                .collect();
            assert_eq!(texts, (0..50).map(|n| format!("{side} {n}")).collect::<Vec<_>>());
        }
        assert_eq!(left.common_prefix(&right), 1);
        assert_eq!(shared.len(), 1);
    }
}
