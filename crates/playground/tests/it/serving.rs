//! The program as a server: its printed requests work in a shell.

use std::net::TcpListener;
use std::process::Stdio;

use crate::program::{Server, has_curl, paste, paste_until, playground};

#[test]
fn the_printed_lines_work_when_they_are_pasted() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::on_a_free_port(folder.path());
    let [turn, resume, detach, look] = &server.curl_lines()[..] else {
        panic!("{}", server.greeting);
    };

    let streamed = paste(turn);
    let resumed = paste(resume);
    let detached = paste(detach);
    let pending = paste(look);
    let done = paste_until(look, r#""status":"completed""#);

    assert!(streamed.matches("data: {\"message\":").count() > 3, "{streamed}");
    assert!(streamed.contains("the pantry holds leeks"), "{streamed}");
    assert!(resumed.contains("Stock the pantry with leeks"), "{resumed}");
    assert!(detached.contains(r#""finishReason":"detached""#), "{detached}");
    assert!(pending.contains(r#""status":"pending""#), "{pending}");
    assert!(done.contains("The week is planned."), "{done}");
}

#[test]
fn a_conversation_continues_after_a_restart() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::on_a_free_port(folder.path());
    let [turn, resume, ..] = &server.curl_lines()[..] else {
        panic!("{}", server.greeting);
    };
    let address = server.address().to_owned();
    paste(turn);

    let ended = server.signal("-TERM");
    for log in ["everturn.db-wal", "everturn.streams.db-wal"] {
        let log = folder.path().join(log);
        assert!(
            !log.exists(),
            "a clean end leaves complete files, but there is {log:?}"
        );
    }
    let server = Server::on_a_free_port(folder.path());
    let resumed = paste(&resume.replace(&address, server.address()));

    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(resumed.contains("Stock the pantry with leeks"), "{resumed}");
}

#[test]
fn a_background_run_continues_after_its_process_was_killed() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::on_a_free_port(folder.path());
    let [_, _, detach, look] = &server.curl_lines()[..] else {
        panic!("{}", server.greeting);
    };
    let address = server.address().to_owned();
    paste(detach);

    server.signal("-KILL");
    let server = Server::on_a_free_port(folder.path());
    let look = look.replace(&address, server.address());
    let lost = paste(&look);
    let done = paste_until(&look, r#""status":"completed""#);

    assert!(!lost.contains("The week is planned."), "{lost}");
    assert!(done.contains("The week is planned."), "{done}");
}

#[test]
fn health_and_openapi_routes_are_where_printed() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::on_a_free_port(folder.path());
    let get = |path: &str| paste(&format!("curl -sf http://{}{path}", server.address()));

    get("/healthz");
    let description = get("/openapi.json");

    assert!(
        description.contains("/agents/banker/getSnapshot"),
        "{description}"
    );
}

#[test]
fn a_used_default_port_is_replaced_by_a_free_one() {
    let folder = tempfile::tempdir().unwrap();
    // If this fails, another program uses the port.
    let _taken = TcpListener::bind("127.0.0.1:8080");

    let server = Server::start(folder.path(), &["--database", "dinner.db"]);

    assert!(server.greeting.contains("another port"), "{}", server.greeting);
    assert_ne!(server.address(), "127.0.0.1:8080");
    assert!(folder.path().join("dinner.db").exists());
}

#[test]
fn requests_are_printed_without_a_server_and_without_files() {
    let folder = tempfile::tempdir().unwrap();

    let printed = playground()
        .arg("--curl")
        .current_dir(folder.path())
        .output()
        .unwrap();

    let text = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(printed.status.code(), Some(0), "{text}");
    assert_eq!(text.matches("curl ").count(), 4, "{text}");
    assert!(
        text.contains("'http://127.0.0.1:8080/agents/chef?stream=true'"),
        "{text}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_address_that_others_reach_needs_a_token_or_permission() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let refused = playground()
        .args(["--addr", "0.0.0.0:0"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let with_token = Server::start(folder.path(), &["--addr", "0.0.0.0:0", "--token", "a-long-token"]);
    let status = |token: &str| {
        let address = with_token.address();
        paste(&format!(
            "curl -s -o /dev/null -w '%{{http_code}}' 'http://{address}/agents' -H 'Authorization: Bearer {token}'"
        ))
    };

    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("allow_everyone"), "{text}");
    assert_eq!(status("a-long-token"), "200");
    assert_eq!(status("another"), "401");
    drop(with_token);
    Server::start(folder.path(), &["--addr", "0.0.0.0:0", "--allow-everyone"]);
}

#[test]
fn invalid_arguments_end_with_advice() {
    let run = |options: &[&str]| {
        let mut command = playground();
        let output = command.args(options).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };

    let (code, text) = run(&["--port", "80"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("'--port'") && text.contains("Usage:"), "{text}");

    let (code, text) = run(&["--database", "no/such/folder/x.db"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no/such/folder"), "{text}");

    let (code, text) = run(&["--help"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("--database"), "{text}");
}
