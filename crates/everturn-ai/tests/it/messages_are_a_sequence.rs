//! `Messages` behave like a list of messages, whatever they are pieced together from.

use everturn_ai::{Feature, History, Message, Messages, messages::Segment};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Push(Message),
    AppendRun(Vec<Message>),
    AppendHistory(Vec<Message>),
    AppendItself,
    Replace(usize, Message),
    Splice(usize, usize, Vec<Message>),
    Slice(usize, usize),
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (0..100_u8).prop_map(|n| Message::user(n.to_string())),
        (0..100_u8).prop_map(|n| Message::system(n.to_string())),
    ]
}

fn run_of(most: usize) -> impl Strategy<Value = Vec<Message>> {
    prop::collection::vec(message(), 0..=most)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => message().prop_map(Step::Push),
        2 => run_of(50).prop_map(Step::AppendRun),
        2 => run_of(20).prop_map(Step::AppendHistory),
        1 => Just(Step::AppendItself),
        3 => (any::<usize>(), message()).prop_map(|(at, message)| Step::Replace(at, message)),
        2 => (any::<usize>(), any::<usize>(), run_of(3)).prop_map(|(from, to, with)| Step::Splice(from, to, with)),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(from, to)| Step::Slice(from, to)),
    ]
}

fn range(from: usize, to: usize, len: usize) -> std::ops::Range<usize> {
    let (from, to) = (from % (len + 1), to % (len + 1));
    from.min(to)..from.max(to)
}

fn apply(step: Step, messages: &mut Messages, model: &mut Vec<Message>) {
    match step {
        Step::Push(message) => {
            messages.push(message.clone());
            model.push(message);
        }
        Step::AppendRun(run) => {
            messages.append(run.clone());
            model.extend(run);
        }
        Step::AppendHistory(run) => {
            messages.append(History::from_iter(run.clone()));
            model.extend(run);
        }
        Step::AppendItself if model.len() < 500 => {
            messages.append(messages.clone());
            model.extend_from_within(..);
        }
        Step::AppendItself => {}
        Step::Replace(at, message) => {
            let at = at % (model.len() + 1);
            messages.replace(at, message.clone());
            if let Some(place) = model.get_mut(at) {
                *place = message;
            }
        }
        Step::Splice(from, to, with) => {
            let range = range(from, to, model.len());
            messages.splice(range.clone(), with.clone());
            model.splice(range, with);
        }
        Step::Slice(from, to) => {
            let range = range(from, to, model.len());
            *messages = messages.slice(range.clone());
            *model = model[range].to_vec();
        }
    }
}

proptest! {
    #[test]
    fn a_program_gives_the_same_as_on_a_list(steps in prop::collection::vec(step(), 0..30)) {
        let (mut messages, mut model) = (Messages::new(), Vec::new());
        let mut kept = Vec::new();
        for step in steps {
            kept.push((messages.clone(), model.clone()));
            apply(step, &mut messages, &mut model);
        }
        kept.push((messages, model));

        // Also the clones taken on the way are as they were.
        for (messages, model) in kept {
            prop_assert_eq!(messages.len(), model.len());
            prop_assert!(messages.iter().eq(&model));
            prop_assert!(messages.iter().rev().eq(model.iter().rev()));
            prop_assert_eq!(messages.first(), model.first());
            prop_assert_eq!(messages.last(), model.last());
            prop_assert_eq!(messages.get(model.len()), None);
            prop_assert_eq!(messages.stats(), model.iter().map(Message::stats).sum());
            let is_system = |message: &Message| message.stats().messages_with(Feature::System) > 0;
            for start in 0..=model.len() {
                let expected = model.iter().skip(start).position(is_system).map(|index| start + index);
                prop_assert_eq!(messages.next_with(Feature::System, start), expected);
                prop_assert_eq!(messages.get(start), model.get(start));
            }
            prop_assert_eq!(messages.rposition(is_system), model.iter().rposition(is_system));
        }
    }
}

fn long_history() -> History {
    (0..10_000).map(|n| Message::user(n.to_string())).collect()
}

#[test]
fn pushing_after_a_shared_history_leaves_its_lineage_alone() {
    let history = long_history();
    let mut messages = Messages::from(&history);

    messages.push("one more");

    assert_eq!(messages.len(), 10_001);
    assert_eq!(history.lineage().tip(), 10_000);
    assert!(
        matches!(messages.segments().next(), Some(Segment::History { history: shared, from: 0 })
        if shared.lineage().id() == history.lineage().id())
    );
}

#[test]
fn replacing_a_message_splits_a_shared_history_around_it() {
    let history = long_history();
    let mut messages = Messages::from(&history);

    messages.replace(5_000, Message::user("changed"));

    let lengths: Vec<_> = messages
        .segments()
        .map(|segment| match segment {
            Segment::Run(run) => run.len(),
            Segment::History { history: piece, from } => {
                assert_eq!(piece.lineage().id(), history.lineage().id());
                piece.len() - from
            }
        })
        .collect();
    assert_eq!(lengths, [5_000, 1, 4_999]);
}

#[test]
fn many_pushes_make_few_segments() {
    let messages: Messages = (0..10_000).fold(Messages::new(), |mut messages, n| {
        messages.push(n.to_string());
        messages
    });

    assert_eq!(messages.len(), 10_000);
    assert_eq!(messages.segments().count(), 1);
}
