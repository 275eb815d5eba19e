//! The program as a chat, run in an empty folder with piped input.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::program::playground;

/// Runs the chat with these lines and a new database, and returns its output.
fn chat(lines: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    chat_in(folder.path(), lines)
}

/// Runs the chat with the database in a folder.
fn chat_in(folder: &Path, lines: &[&str]) -> String {
    let mut child = playground()
        .arg("chat")
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("it was piped");
    for line in lines {
        writeln!(stdin, "{line}").expect("the program reads");
    }
    drop(stdin);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("the program ends");
    assert!(status.success(), "{status}");
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("it prints text")
}

/// Returns the output between a typed line and the next prompt.
fn answer<'a>(transcript: &'a str, line: &str) -> &'a str {
    let typed = format!("> {line}\n");
    let Some((_, after)) = transcript.split_once(&typed) else {
        panic!("'{line}' was not typed in:\n{transcript}");
    };
    after.split("> ").next().unwrap_or(after)
}

#[test]
fn a_turn_is_shown_with_the_tools_it_calls() {
    let transcript = chat(&["Stock the pantry with leeks", "/state"]);

    let turn = answer(&transcript, "Stock the pantry with leeks");
    assert!(
        turn.contains("[calls stock_pantry {\"item\":\"leeks\"}]"),
        "{transcript}"
    );
    assert!(turn.contains("the pantry holds leeks"), "{transcript}");
    assert!(
        answer(&transcript, "/state").contains("\"leeks\""),
        "{transcript}"
    );
    assert!(!transcript.contains("! "), "something went wrong:\n{transcript}");
}

#[test]
fn the_next_chat_lists_the_earlier_conversations_of_one_agent_only() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    chat_in(
        folder.path(),
        &["Remember the leeks", "/agent banker", "Remember the money"],
    );

    let transcript = chat_in(folder.path(), &["/resume", "/resume 1", "What did I say before?"]);

    let conversations = answer(&transcript, "/resume");
    assert!(conversations.contains("Remember the leeks"), "{transcript}");
    assert!(!conversations.contains("Remember the money"), "{transcript}");
    assert!(
        answer(&transcript, "What did I say before?").contains("Remember the leeks"),
        "{transcript}"
    );
}

#[test]
fn a_branch_contains_only_the_messages_before_it() {
    let transcript = chat(&[
        "The first thing",
        "The second thing",
        "/branch 1",
        "What did I say before?",
    ]);

    let memory = answer(&transcript, "What did I say before?");
    assert!(memory.contains("The first thing"), "{transcript}");
    assert!(!memory.contains("The second thing"), "{transcript}");
}

#[test]
fn the_history_shows_where_a_branch_began_and_where_the_conversation_is() {
    let transcript = chat(&["One", "Two", "/branch 1", "Three", "/history"]);

    let lines: Vec<&str> = answer(&transcript, "/history").lines().collect();
    assert!(
        lines[0].starts_with("   1  begins") && lines[0].ends_with("One"),
        "{transcript}"
    );
    assert!(
        lines[1].starts_with("   2  from 1") && lines[1].ends_with("Two"),
        "{transcript}"
    );
    assert!(
        lines[2].starts_with("*  3  from 1") && lines[2].ends_with("Three"),
        "{transcript}"
    );
}

#[test]
fn a_conversation_resumes_where_it_stopped() {
    let transcript = chat(&[
        "Remember the leeks",
        "/new",
        "/resume",
        "/resume 1",
        "What did I say before?",
    ]);

    assert!(
        answer(&transcript, "/resume").contains("Remember the leeks"),
        "{transcript}"
    );
    assert!(
        answer(&transcript, "/resume 1").contains("2 messages"),
        "{transcript}"
    );
    assert!(
        answer(&transcript, "What did I say before?").contains("Remember the leeks"),
        "{transcript}"
    );
}

#[test]
fn money_moves_only_after_a_yes() {
    let transcript = chat(&[
        "/agent banker",
        "Transfer 50 to Ann",
        "no",
        "Transfer 20 to Bob",
        "yes",
        "/state",
    ]);

    assert!(transcript.contains("Move 50 to Ann? [y/n] no\n"), "{transcript}");
    assert!(transcript.contains("declined, nothing was moved"), "{transcript}");
    assert!(transcript.contains("Move 20 to Bob? [y/n] yes\n"), "{transcript}");
    assert!(transcript.contains("\"balance\": 180"), "{transcript}");
}

#[test]
fn an_unanswered_question_is_asked_again() {
    let transcript = chat(&["/agent banker", "Transfer 50 to Ann", "no", "/branch 1", "yes"]);

    assert_eq!(
        transcript.matches("Move 50 to Ann? [y/n]").count(),
        2,
        "{transcript}"
    );
    assert!(transcript.contains("moved 50 to Ann, 150 left"), "{transcript}");
}

#[test]
fn a_background_run_is_awaited_before_the_program_ends() {
    let transcript = chat(&["/agent planner", "/detach Plan the week", "/history"]);

    assert!(
        answer(&transcript, "/history").contains("pending"),
        "{transcript}"
    );
    assert!(
        transcript
            .trim_end()
            .ends_with("[planner is done in the background: The week is planned.]"),
        "{transcript}"
    );
}

#[test]
fn a_failed_command_is_reported_and_the_chat_continues() {
    let transcript = chat(&["/dance", "/branch 7", "/resume 9", "/agent nobody", "Hello"]);

    assert!(
        answer(&transcript, "/dance").contains("! there is no command /dance"),
        "{transcript}"
    );
    assert!(
        answer(&transcript, "/branch 7").contains("! snapshot '7' was not found"),
        "{transcript}"
    );
    assert!(
        answer(&transcript, "/resume 9").contains("! there is no conversation 9"),
        "{transcript}"
    );
    assert!(
        answer(&transcript, "/agent nobody").contains("! there is no agent 'nobody'"),
        "{transcript}"
    );
    assert!(answer(&transcript, "Hello").contains("Hello!"), "{transcript}");
}
