//! The program, and its use by the tests.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use everturn::prelude::Value;

/// Variables that configure models, removed from the environment of the tests.
const VARIABLES: [&str; 14] = [
    "EVERTURN_MODEL",
    "OPENAI_API",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_CUSTOM_HEADERS",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
    "OLLAMA_HOST",
    "OLLAMA_API_KEY",
];

/// The program without a configured model.
pub(crate) fn playground() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_playground"));
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command
}

/// The beginning of the last line printed when the server is ready.
const LAST_LINE: &str = "Conversations are kept in ";

/// The timeout of an operation, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server in a folder; killed if the test ends before it.
pub(crate) struct Server {
    child: Child,
    pub(crate) greeting: String,
}

impl Server {
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Self {
        Self::start_with(folder, options, &[])
    }

    /// A server with environment variables.
    pub(crate) fn start_with(folder: &Path, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = playground()
            .args(options)
            .envs(variables.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut greeting = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        while !greeting.ends_with('\n') || !greeting.contains(LAST_LINE) {
            let read = out.read_line(&mut greeting).unwrap();
            assert_ne!(read, 0, "it ended after: {greeting}");
        }
        Self { child, greeting }
    }

    pub(crate) fn on_a_free_port(folder: &Path) -> Self {
        Self::start(folder, &["--addr", "127.0.0.1:0"])
    }

    pub(crate) fn address(&self) -> &str {
        let (_, after) = self.greeting.split_once("Serving on http://").unwrap();
        after.lines().next().unwrap()
    }

    /// The printed shell commands.
    pub(crate) fn curl_lines(&self) -> Vec<String> {
        let mut program = playground();
        let printed = program
            .args(["--curl", "--addr", self.address()])
            .output()
            .unwrap();
        assert!(printed.status.success(), "{printed:?}");
        let lines = String::from_utf8(printed.stdout).unwrap();
        let lines = lines.lines().filter(|line| line.starts_with("curl "));
        lines.map(str::to_owned).collect()
    }

    pub(crate) fn signal(mut self, signal: &str) -> ExitStatus {
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
        // Already ended, if the test ended it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a line in a shell and returns its output.
pub(crate) fn paste(line: &str) -> String {
    let pasted = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(
        pasted.status.success(),
        "{line}\n{}",
        String::from_utf8_lossy(&pasted.stderr)
    );
    String::from_utf8(pasted.stdout).unwrap()
}

/// Repeats a line until it prints a text.
#[expect(
    clippy::disallowed_methods,
    reason = "a pause between two requests for the event"
)]
pub(crate) fn paste_until(line: &str, wanted: &str) -> String {
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

/// Whether the tools of the printed requests are installed.
pub(crate) fn has_curl() -> bool {
    let found = Command::new("curl").arg("--version").output().is_ok();
    if !found {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "curl is not here");
        println!("skipped: curl is not here");
    }
    found
}

/// Posts JSON to a route of a server and returns the response.
pub(crate) fn post(server: &Server, path: &str, body: &Value) -> Value {
    let address = server.address();
    let line = format!("curl -s 'http://{address}{path}' -H 'Content-Type: application/json' -d '{body}'");
    let answer = paste(&line);
    answer.parse().unwrap_or_else(|_| panic!("not JSON: {answer}"))
}
