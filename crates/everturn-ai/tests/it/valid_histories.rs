//! Faults in histories are found and repaired, and a model never sees them.

use everturn_ai::history::{Fault, FaultKind, checked, closing, repaired};
use everturn_ai::{History, Message, Messages, Part, ToolRequest, ToolResponse, metadata};
use proptest::prelude::*;
use serde_json::json;

use crate::generate_support::{says, scripted, step};

fn request(reference: &str) -> Part {
    Part::from(ToolRequest::new("pay", json!({})).with_reference(reference))
}

fn response(reference: &str, output: &str) -> Part {
    let request = ToolRequest::new("pay", json!({})).with_reference(reference);
    Part::from(ToolResponse::to(&request, output))
}

fn interrupted(reference: &str) -> Part {
    request(reference).with_metadata_entry(metadata::INTERRUPT, true)
}

/// A message as one line.
fn line(message: &Message) -> String {
    let part = |part: &Part| match (part.as_text(), part.as_tool_request(), part.as_tool_response()) {
        (Some(text), _, _) => text.to_owned(),
        (_, Some(request), _) => format!("ask {request}"),
        (_, _, Some(response)) => format!("answer {}", response.output.clone().unwrap_or_default()),
        _ => String::new(),
    };
    let parts: Vec<String> = message.content().iter().map(part).collect();
    format!("{}: {}", message.role(), parts.join(", "))
}

fn lines<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<String> {
    messages.into_iter().map(line).collect()
}

/// Checks the faults of a history and its repaired form.
#[track_caller]
fn is_repaired(messages: Vec<Message>, faults: &[&str], expected: &[&str]) {
    let history: History = messages.into_iter().collect();
    let found: Vec<String> = checked(&history).iter().map(Fault::to_string).collect();
    let repaired = repaired(&history).expect("it has faults");

    assert_eq!(found, faults);
    assert_eq!(lines(&repaired.history), expected);
    assert_eq!(checked(&repaired.history), []);
    let request = Messages::from(&history).repaired().expect("it has faults");
    assert_eq!(lines(&request), expected);
}

const NOT_ANSWERED: &str = "tool: answer \"not answered: the conversation went on\"";

#[test]
fn a_valid_history_is_left_as_it_is() {
    let history = History::from_iter([
        Message::system("Be kind."),
        Message::user("pay twice"),
        Message::model(vec![request("1"), request("2")]),
        Message::tool(vec![response("2", "b")]),
        Message::tool(vec![response("1", "a")]),
        Message::model("done"),
        Message::user("thanks"),
        Message::user("and bye"),
    ]);

    assert_eq!(checked(&history), []);
    assert!(repaired(&history).is_none());
    assert!(closing(&history).is_none());
}

#[test]
fn a_missing_answer_is_added_in_its_place() {
    is_repaired(
        vec![
            Message::user("pay"),
            Message::model(vec![request("1"), request("2")]),
            Message::tool(vec![response("1", "a")]),
            Message::user("hello?"),
        ],
        &["message 1: the tool request 'pay#2' has no answer"],
        &[
            "user: pay",
            "model: ask pay#1, ask pay#2",
            "tool: answer \"a\"",
            NOT_ANSWERED,
            "user: hello?",
        ],
    );
}

#[test]
fn requests_of_two_models_in_a_row_are_answered_each_in_its_place() {
    is_repaired(
        vec![
            Message::user("pay"),
            Message::model(vec![interrupted("1")]),
            Message::model(vec![request("1")]),
            Message::tool(vec![response("1", "a")]),
        ],
        &["message 1: the tool request 'pay#1' has no answer"],
        &[
            "user: pay",
            "model: ask pay#1",
            NOT_ANSWERED,
            "model: ask pay#1",
            "tool: answer \"a\"",
        ],
    );
}

#[test]
fn orphaned_and_doubled_answers_are_left_out() {
    is_repaired(
        vec![
            Message::tool(vec![response("0", "orphan")]),
            Message::user("pay"),
            Message::model(vec![request("1")]),
            Message::tool(vec![response("1", "a"), response("1", "again")]),
            Message::tool(vec![response("7", "orphan")]),
            Message::model("done"),
        ],
        &[
            "message 0: the answer to 'pay#0' belongs to no request",
            "message 3: the answer to 'pay#1' belongs to no request",
            "message 4: the answer to 'pay#7' belongs to no request",
        ],
        &[
            "user: pay",
            "model: ask pay#1",
            "tool: answer \"a\"",
            "model: done",
        ],
    );
}

#[test]
fn a_late_answer_moves_to_its_request() {
    is_repaired(
        vec![
            Message::user("pay"),
            Message::model(vec![request("1")]),
            Message::user("hello?"),
            Message::user(vec![response("1", "a"), Part::text("and more")]),
        ],
        &["message 3: the tool call 'pay#1' is in the wrong place"],
        &[
            "user: pay",
            "model: ask pay#1",
            "tool: answer \"a\"",
            "user: hello?",
            "user: and more",
        ],
    );
}

#[test]
fn a_request_that_is_not_the_models_is_left_out() {
    is_repaired(
        vec![Message::user(vec![Part::text("pay"), request("1")])],
        &["message 0: the tool call 'pay#1' is in the wrong place"],
        &["user: pay"],
    );
}

#[test]
fn messages_without_content_are_left_out_and_the_users_say_so() {
    is_repaired(
        vec![
            Message::user("hi"),
            Message::model(vec![Part::reasoning("hm")]),
            Message::user(" "),
            Message::model(""),
            Message::tool(Vec::<Part>::new()),
            Message::user(Vec::<Part>::new()),
        ],
        &[
            "message 1: it has no content",
            "message 2: it has no content",
            "message 3: it has no content",
            "message 4: it has no content",
            "message 5: it has no content",
        ],
        &["user: hi", "user: (empty message)", "user: (empty message)"],
    );
}

#[test]
fn an_interrupt_at_the_end_waits_and_can_be_closed() {
    let mut history = History::from_iter([
        Message::user("pay"),
        Message::model(vec![
            interrupted("1"),
            request("2").with_metadata_entry(metadata::PENDING_OUTPUT, "paid"),
        ]),
    ]);

    let faults = checked(&history);
    assert_eq!(faults[0].message, 1);
    assert!(matches!(&faults[0].kind, FaultKind::Waiting { call } if call == "pay#1"));
    history.push(closing(&history).expect("two requests are open"));

    assert_eq!(
        lines(&history)[2],
        "tool: answer \"not answered: the conversation went on\", answer \"paid\""
    );
    let answers = history.last().unwrap();
    assert_eq!(answers.metadata_entry(metadata::MENDED), Some(&json!(true)));
    let marks = |part: &Part| {
        (
            part.metadata_entry(metadata::MENDED).cloned(),
            part.metadata_entry(metadata::SOURCE).cloned(),
        )
    };
    assert_eq!(marks(&answers.content()[0]), (Some(json!(true)), None));
    assert_eq!(marks(&answers.content()[1]), (None, Some(json!("pending"))));
    assert_eq!(checked(&history), []);
}

#[test]
fn an_unknown_outcome_is_reported_as_unknown() {
    let unknown = json!({ metadata::OUTCOME_UNKNOWN: true });
    let history = History::from_iter([
        Message::user("pay"),
        Message::model(vec![
            request("1").with_metadata_entry(metadata::INTERRUPT, unknown),
        ]),
    ]);

    let answer = line(&closing(&history).unwrap());

    assert!(
        answer.contains("it is not known whether the call took effect"),
        "{answer}"
    );
}

#[tokio::test]
async fn the_model_gets_the_repaired_conversation_and_the_caller_keeps_its_own() {
    let (_registry, model, generate) = scripted([step(says("ok"))]);
    let history = History::from_iter([
        Message::user("pay"),
        Message::model(vec![request("1")]),
        Message::user("hello?"),
    ]);

    let reply = generate.messages(&history).run().await.unwrap();

    assert_eq!(
        lines(&model.requests()[0].messages),
        ["user: pay", "model: ask pay#1", NOT_ANSWERED, "user: hello?"]
    );
    assert_eq!(lines(&reply.request.as_ref().unwrap().messages), lines(&history));
}

/// Any message that code could put into a history.
fn message() -> impl Strategy<Value = Message> {
    let part = prop_oneof![
        3 => Just(Part::text("said")),
        1 => Just(Part::text("")),
        1 => Just(Part::reasoning("hm")),
        3 => (0..3_u8).prop_map(|number| request(&number.to_string())),
        2 => (0..3_u8).prop_map(|number| interrupted(&number.to_string())),
        4 => (0..3_u8).prop_map(|number| response(&number.to_string(), "done")),
    ];
    let content = proptest::collection::vec(part, 0..4);
    (0..7_u8, content).prop_map(|(role, content)| match role {
        0 | 1 => Message::user(content),
        2..=3 => Message::model(content),
        4 => Message::system(content),
        5 => Message::user(content).with_metadata_entry(metadata::WAITING, true),
        _ => Message::tool(content),
    })
}

proptest! {
    #[test]
    fn every_repaired_history_is_valid_and_a_valid_one_is_not_touched(
        messages in proptest::collection::vec(message(), 0..24),
    ) {
        let history: History = messages.into_iter().collect();
        let faults = checked(&history);

        match repaired(&history) {
            None => prop_assert_eq!(faults, []),
            Some(repaired) => {
                prop_assert!(!faults.is_empty());
                prop_assert_eq!(checked(&repaired.history), []);
                prop_assert!(is_valid_again(&repaired.history));
            }
        }
    }

    #[test]
    fn what_is_remembered_of_a_lineage_does_not_change_the_result(
        messages in proptest::collection::vec(message(), 1..40),
        looks in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        fork in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut history = History::new();
        for (number, message) in messages.iter().enumerate() {
            history.push(message.clone());
            if looks.iter().any(|look| look.index(messages.len()) == number) {
                let _ = repaired(&history);
                let _ = Messages::from(&history).repaired();
            }
        }
        let mut branch = history.truncate_to(fork.index(messages.len()));
        branch.push(Message::user("another way"));
        // A window over the branch, after its own message.
        let from = cut.index(branch.len());
        let window = |whole: &History| {
            let mut request = Messages::from(Message::system("sys"));
            request.append(Messages::from(whole).slice(from..whole.len()));
            request
        };

        for seen in [&history, &branch] {
            let copy: History = seen.iter().cloned().collect();
            let found = |history: &History| repaired(history).map(|repaired| lines(&repaired.history));
            prop_assert_eq!(found(seen), found(&copy));
            let asked = |history: &History| Messages::from(history).repaired().map(|messages| lines(&messages));
            prop_assert_eq!(asked(seen), asked(&copy));
        }
        let copy: History = branch.iter().cloned().collect();
        prop_assert_eq!(
            window(&branch).repaired().map(|messages| lines(&messages)),
            window(&copy).iter().cloned().collect::<Messages>().repaired().map(|messages| lines(&messages))
        );
        let windowed = window(&branch);
        let windowed: History = windowed.repaired().unwrap_or(windowed).iter().cloned().collect();
        prop_assert_eq!(checked(&windowed), []);
    }
}

/// Checks a history a second time by other means: the answers to each message are exactly its requests.
fn is_valid_again(history: &History) -> bool {
    let all: Vec<&Message> = history.iter().collect();
    let calls = |message: &Message| -> Vec<String> {
        let mut calls: Vec<String> = message.tool_requests().map(ToString::to_string).collect();
        calls.sort();
        calls
    };
    let mut index = 0;
    while index < all.len() {
        let asked = calls(all[index]);
        let following = all[index + 1..]
            .iter()
            .take_while(|next| next.role() == everturn_ai::Role::Tool);
        let mut answered: Vec<String> = following
            .clone()
            .flat_map(|message| message.content())
            .filter_map(Part::as_tool_response)
            .map(|response| {
                format!(
                    "{}#{}",
                    response.name,
                    response.reference.clone().unwrap_or_default()
                )
            })
            .collect();
        answered.sort();
        if all[index].role() == everturn_ai::Role::Tool || asked != answered {
            return false;
        }
        index += 1 + following.count();
    }
    true
}
