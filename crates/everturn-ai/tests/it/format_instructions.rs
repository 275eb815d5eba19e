//! The place of format instructions in a request.

use everturn_ai::{
    History, Message, Messages, OutputInstructions, Part, Role,
    format::{Format, JsonFormat, inject_instructions, resolve_instructions},
    messages::Segment,
};
use serde_json::json;

fn filled(text: &str) -> Part {
    Part::text(text).with_metadata_entry("purpose", "output")
}

fn place() -> Part {
    filled("").with_metadata_entry("pending", true)
}

fn injected(messages: impl Into<Messages>) -> Vec<Message> {
    let mut messages = messages.into();
    inject_instructions(&mut messages, "as JSON");
    messages.iter().cloned().collect()
}

#[test]
fn instructions_go_to_the_end_of_the_first_system_message() {
    let found = injected([
        Message::user("a"),
        Message::system("s"),
        Message::system("t"),
        Message::user("b"),
    ]);

    assert_eq!(found[1], Message::system([Part::text("s"), filled("as JSON")]));
    assert_eq!(found[2], Message::system("t"));
}

#[test]
fn without_a_system_message_instructions_go_to_the_last_user_message() {
    let found = injected([Message::user("a"), Message::user("b"), Message::model("c")]);

    assert_eq!(
        found,
        [
            Message::user("a"),
            Message::user([Part::text("b"), filled("as JSON")]),
            Message::model("c")
        ]
    );
}

#[test]
fn instructions_replace_their_placeholder_wherever_it_is() {
    let found = injected([
        Message::system("s"),
        Message::user([place(), Part::text("a")]).with_metadata_entry("kept", true),
        Message::user("b"),
    ]);

    assert_eq!(found[0], Message::system("s"));
    let expected = Message::user([filled("as JSON"), Part::text("a")]).with_metadata_entry("kept", true);
    assert_eq!(found[1], expected);
}

#[test]
fn instructions_are_not_added_twice_nor_without_a_message_to_hold_them() {
    let already = [
        Message::system("s"),
        Message::user([Part::text("a"), filled("as XML")]),
    ];
    let no_target = [Message::model("c")];

    assert_eq!(injected(already.clone()), already);
    assert_eq!(injected(no_target.clone()), no_target);
}

#[test]
fn a_shared_history_is_split_around_the_message_and_not_copied() {
    let history: History = (0..1_000)
        .map(|n| {
            if n == 7 {
                Message::system("s")
            } else {
                Message::user(n.to_string())
            }
        })
        .collect();
    let mut messages = Messages::from(&history);

    let added = inject_instructions(&mut messages, "as JSON");

    assert!(added);
    assert_eq!(history.get(7), Some(&Message::system("s")));
    assert_eq!(messages.get(7).map(Message::role), Some(Role::System));
    let shared: Vec<_> = messages
        .segments()
        .filter_map(|segment| match segment {
            Segment::History { history: piece, from } => Some((piece.lineage().id(), piece.len() - from)),
            Segment::Run(_) => None,
        })
        .collect();
    let id = history.lineage().id();
    assert_eq!(shared, [(id, 7), (id, 992)]);
}

#[test]
fn the_callers_words_win_and_json_is_silent_unless_asked() {
    let handler = JsonFormat.handler(Some(&json!({ "type": "object" }))).unwrap();
    let resolve = |asked: Option<OutputInstructions>| {
        resolve_instructions(asked.as_ref(), &JsonFormat.config(), &*handler)
    };

    assert_eq!(
        resolve(Some(OutputInstructions::Text("mine".into()))),
        Some("mine".into())
    );
    assert_eq!(
        resolve(Some(OutputInstructions::Enabled(true))),
        handler.instructions()
    );
    assert_eq!(resolve(Some(OutputInstructions::Enabled(false))), None);
    assert_eq!(resolve(None), None);
}
