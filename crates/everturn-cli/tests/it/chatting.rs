//! `everturn chat`.

use everturn::prelude::*;

use crate::support::Kitchen;

#[tokio::test(flavor = "multi_thread")]
async fn one_message_is_answered_and_the_session_resumed() {
    let kitchen = Kitchen::on_a_server().await;

    let first = kitchen
        .program(&["chat", "chef", "--session", "dinner", "with", "leeks"])
        .run()
        .exits(0);
    kitchen
        .program(&["chat", "chef", "--session", "dinner", "and peas"])
        .run()
        .exits(0);

    assert_eq!(first.out, "Soup for: with leeks\n");
    assert!(first.err.contains("session dinner"), "{}", first.err);
    let dinner = kitchen.chef.archive().unwrap().latest("dinner").await.unwrap();
    assert_eq!(dinner.state.unwrap().messages.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_json_every_chunk_is_a_line_and_the_result_is_the_last() {
    let kitchen = Kitchen::on_a_server().await;

    let lines = kitchen
        .program(&["chat", "chef", "leeks", "--json"])
        .run()
        .exits(0)
        .json_lines();

    let result = &lines.last().unwrap()["result"];
    assert_eq!(result["message"]["content"][0]["text"], "Soup for: leeks");
    assert!(result["snapshotId"].is_string());
    assert!(
        lines[..lines.len() - 1]
            .iter()
            .all(|line| line.get("message").is_some()),
        "{lines:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_messages_of_one_session() {
    let kitchen = Kitchen::on_a_server().await;
    let typed = "leeks\n\n/state\n/dance\npeas\n/quit\nbeans\n";

    let ran = kitchen
        .program(&["chat", "chef", "--session", "dinner"])
        .input(typed)
        .run()
        .exits(0);

    assert!(
        ran.out.contains("Soup for: leeks\n") && ran.out.contains("Soup for: peas\n"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("\"dishes\": 1"), "{}", ran.out);
    assert!(ran.err.contains("/help"), "{}", ran.err);
    assert!(!ran.out.contains("beans"), "{}", ran.out);
    let dinner = kitchen.chef.archive().unwrap().latest("dinner").await.unwrap();
    assert_eq!(dinner.state.unwrap().messages.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_leaves_a_question_open_and_answers_it_later() {
    let kitchen = Kitchen::on_a_server().await;

    let asked = kitchen
        .program(&["chat", "banker", "--session", "bank", "move 50"])
        .run()
        .exits(8);
    let wrong = kitchen
        .program(&["chat", "banker", "--session", "bank", "--answer", "perhaps"])
        .run()
        .exits(2);
    let answered = kitchen
        .program(&["chat", "banker", "--session", "bank", "--answer", "y"])
        .run()
        .exits(0);
    let nothing = kitchen
        .program(&["chat", "banker", "--session", "bank", "--answer", "y"])
        .run()
        .exits(5);

    assert!(
        asked.err.contains("Move 50?") && asked.err.contains("--answer y"),
        "{}",
        asked.err
    );
    assert!(wrong.err.contains("perhaps"), "{}", wrong.err);
    assert!(
        answered.out.contains("moved 50") && answered.out.contains("Done."),
        "{}",
        answered.out
    );
    assert!(nothing.err.contains("no open question"), "{}", nothing.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_in_the_conversation() {
    let kitchen = Kitchen::on_a_server().await;
    let typed = "move 50\nwell\nn\n";

    let ran = kitchen.program(&["chat", "banker"]).input(typed).run().exits(0);

    assert!(
        ran.out.contains("declined") && ran.out.contains("Done."),
        "{}",
        ran.out
    );
    assert!(ran.err.contains("neither y, n nor JSON"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_continued_as_a_branch() {
    let kitchen = Kitchen::on_a_server().await;
    let first = kitchen.cook("dinner", "leeks").await;
    kitchen.cook("dinner", "soup").await;

    kitchen
        .program(&["chat", "chef", "--snapshot", &first, "pie"])
        .run()
        .exits(0);

    let children = kitchen
        .chef
        .archive()
        .unwrap()
        .children(first.as_str())
        .await
        .unwrap();
    assert_eq!(children.len(), 2);
    let unknown = kitchen
        .program(&["chat", "chef", "--snapshot", "nowhere", "pie"])
        .run()
        .exits(3);
    assert!(unknown.err.contains("everturn sessions"), "{}", unknown.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_answer_stays_text() {
    let kitchen = Kitchen::on_a_server().await;

    let ran = kitchen.program(&["chat", "chef", "\u{1b}[2Jgone"]).run().exits(0);
    let shown = kitchen
        .program(&["chat", "chef", "\u{1b}[2Jgone", "--json"])
        .run()
        .exits(0);

    assert_eq!(ran.out, "Soup for: \\u{1b}[2Jgone\n");
    assert_eq!(
        shown.json_lines().last().unwrap()["result"]["message"]["content"][0]["text"],
        json!("Soup for: \u{1b}[2Jgone")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_turn_is_shown_with_its_calls_and_its_cost_and_continues() {
    let kitchen = Kitchen::on_a_server().await;

    let failed = kitchen
        .program(&["chat", "waiter", "--session", "tea", "tea for two"])
        .run()
        .exits(6);
    let shown = kitchen
        .program(&["sessions", "--agent", "waiter", "show", "tea"])
        .run()
        .exits(0);
    let done = kitchen
        .program(&["chat", "waiter", "--session", "tea", "--retry"])
        .run()
        .exits(0);

    assert!(
        failed.err.contains("It used 2 model calls, 1 tool call.")
            && failed.err.contains("--session tea --retry"),
        "{}",
        failed.err
    );
    for words in [
        "failed",
        "UNAVAILABLE",
        "used",
        "2 model calls",
        "tea for two",
        "count answers 12",
    ] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    assert_eq!(done.out, "Here you are.\n");
}
