//! The real program as a server: what it prints works when it is pasted into a shell.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The last line of what is printed when the server is ready.
const LAST_LINE: &str = "Ctrl-C ends it.";

/// How long work may take on a busy machine before it is taken for stuck.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server in a folder; killed if the test ends before it.
struct Server {
    child: Child,
    greeting: String,
}

impl Server {
    fn start(folder: &Path, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_playground"))
            .args(options)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut greeting = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        while !greeting.trim_end().ends_with(LAST_LINE) {
            let read = out.read_line(&mut greeting).unwrap();
            assert_ne!(read, 0, "it ended after: {greeting}");
        }
        Self { child, greeting }
    }

    fn on_a_free_port(folder: &Path) -> Self {
        Self::start(folder, &["--addr", "127.0.0.1:0"])
    }

    fn address(&self) -> &str {
        let (_, after) = self.greeting.split_once("Serving on http://").unwrap();
        after.lines().next().unwrap()
    }

    /// The lines for a shell, as they were printed.
    fn curl_lines(&self) -> Vec<&str> {
        self.greeting
            .lines()
            .filter(|line| line.starts_with("curl "))
            .collect()
    }

    fn signal(mut self, signal: &str) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already, where the test ended it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a line as a shell does and gives what it printed.
fn paste(line: &str) -> String {
    let pasted = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(
        pasted.status.success(),
        "{line}\n{}",
        String::from_utf8_lossy(&pasted.stderr)
    );
    String::from_utf8(pasted.stdout).unwrap()
}

/// Pastes a line until it prints a text.
fn paste_until(line: &str, wanted: &str) -> String {
    let begun = Instant::now();
    loop {
        let printed = paste(line);
        if printed.contains(wanted) {
            return printed;
        }
        assert!(begun.elapsed() < PATIENCE, "no {wanted} yet: {printed}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether requests can be made the way people make them.
fn has_curl() -> bool {
    let found = Command::new("curl").arg("--version").output().is_ok();
    if !found {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "curl is not here");
        println!("skipped: curl is not here");
    }
    found
}

#[test]
fn the_printed_lines_work_when_they_are_pasted() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::on_a_free_port(folder.path());
    let [turn, resume, detach, look] = server.curl_lines()[..] else {
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
fn a_conversation_goes_on_after_a_restart() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::on_a_free_port(folder.path());
    let turn = server.curl_lines()[0].to_owned();
    let resume = server.curl_lines()[1].to_owned();
    let address = server.address().to_owned();
    paste(&turn);

    let ended = server.signal("-TERM");
    let server = Server::on_a_free_port(folder.path());
    let resumed = paste(&resume.replace(&address, server.address()));

    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(resumed.contains("Stock the pantry with leeks"), "{resumed}");
}

#[test]
fn a_background_run_goes_on_after_its_process_was_killed() {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::on_a_free_port(folder.path());
    let detach = server.curl_lines()[2].to_owned();
    let look = server.curl_lines()[3].to_owned();
    let address = server.address().to_owned();
    paste(&detach);

    server.signal("-KILL");
    let server = Server::on_a_free_port(folder.path());
    let look = look.replace(&address, server.address());
    let lost = paste(&look);
    let done = paste_until(&look, r#""status":"completed""#);

    assert!(!lost.contains("The week is planned."), "{lost}");
    assert!(done.contains("The week is planned."), "{done}");
}

#[test]
fn health_and_the_description_of_the_routes_are_where_it_says() {
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
fn a_usual_port_that_is_taken_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    // Where this fails, somebody else has taken it.
    let _taken = TcpListener::bind("127.0.0.1:8080");

    let server = Server::start(folder.path(), &["--database", "dinner.db"]);

    assert!(server.greeting.contains("another port"), "{}", server.greeting);
    assert_ne!(server.address(), "127.0.0.1:8080");
    assert!(folder.path().join("dinner.db").exists());
}

#[test]
fn what_cannot_be_meant_ends_with_advice() {
    let run = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_playground"));
        let output = command.args(options).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };

    let (code, said) = run(&["--port", "80"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("'--port'") && said.contains("usage:"), "{said}");

    let (code, said) = run(&["--database", "no/such/folder/x.db"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no/such/folder"), "{said}");

    let (code, said) = run(&["--help"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("--database"), "{said}");
}
