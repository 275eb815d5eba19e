//! The testbed as a program: a server in a separate process.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A testbed server; ends with the test.
pub(crate) struct Testbed {
    process: Child,
    pub(crate) address: String,
}

impl Testbed {
    pub(crate) fn start(store: &str) -> Self {
        Self::start_with(&["--store", store])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_testbed"))
            .args(["--addr", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ");
        let address = address
            .unwrap_or_else(|| panic!("the testbed said {line:?}"))
            .to_owned();
        Self { process, address }
    }

    /// Sets the further answers of the model.
    pub(crate) fn program(&self, program: &str) {
        self.post("/testbed/program", program);
    }

    /// Posts a body and returns the whole response.
    pub(crate) fn post(&self, path: &str, body: &str) -> String {
        let answer = self.request("POST", path, body);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answer
    }

    /// Returns the address without its scheme.
    pub(crate) fn host(&self) -> &str {
        self.address.trim_start_matches("http://")
    }

    /// Sends a request and returns the whole response.
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> String {
        let host = self.host();
        let mut stream = TcpStream::connect(host).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.id())])
            .status()
            .unwrap();
        assert!(status.success(), "the signal {name} was not sent");
    }

    /// Waits for the process to end.
    pub(crate) fn wait(mut self) -> std::process::ExitStatus {
        self.process.wait().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // The process may have ended, which the test has already noticed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Creates a database on the server that a variable names, and returns the store in it as the testbed's
/// argument; `None`, with a printed reason, without a server. The testbed's tables have fixed names, so
/// concurrent tests need separate databases.
pub(crate) async fn new_postgres_database(variable: &str) -> Option<String> {
    let Ok(url) = std::env::var(variable) else {
        println!("skipped: {variable} names no server; ./test starts one");
        return None;
    };
    let name = format!("testbed_{:016x}", fastrand::u64(..));
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    client
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .await
        .unwrap();
    connection.abort();
    let (server, _) = url.rsplit_once('/').unwrap();
    Some(format!("postgres:{server}/{name}"))
}

/// The folder of the packages of other languages.
pub(crate) fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools")
}

/// Runs a command and prints its output if it fails.
pub(crate) fn assert_succeeds(mut command: Command) {
    let output = command.output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

    assert!(
        output.status.success(),
        "{}\n{}",
        said(&output.stdout),
        said(&output.stderr)
    );
}
