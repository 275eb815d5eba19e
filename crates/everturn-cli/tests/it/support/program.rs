//! The program as a process.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use everturn::prelude::Value;

/// Variables that configure the program, removed from the environment of the tests.
const VARIABLES: [&str; 6] = [
    "EVERTURN_URL",
    "EVERTURN_STORE",
    "EVERTURN_TOKEN",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
];

/// A command that has not been started.
pub(crate) struct Program {
    command: Command,
    input: String,
}

/// The output of a finished program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Program {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_everturn"));
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        command.args(arguments);
        Self {
            command,
            input: String::new(),
        }
    }

    pub(crate) fn with(mut self, arguments: &[String]) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Types lines.
    pub(crate) fn input(mut self, input: &str) -> Self {
        input.clone_into(&mut self.input);
        self
    }

    /// Runs the program to its end, while the server of the test continues.
    pub(crate) fn run(mut self) -> Ran {
        tokio::task::block_in_place(|| {
            let mut child = self
                .command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            // The program may exit before it reads its input.
            let _ = stdin.write_all(self.input.as_bytes());
            drop(stdin);
            let output = child.wait_with_output().unwrap();
            Ran {
                code: output.status.code().unwrap(),
                out: String::from_utf8(output.stdout).unwrap(),
                err: String::from_utf8(output.stderr).unwrap(),
            }
        })
    }
}

impl Ran {
    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        self
    }

    /// Returns the one JSON value that was printed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let mut lines = self.json_lines();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines.remove(0)
    }

    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let parse = |line: &str| everturn::serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:?}"));
        self.out.lines().map(parse).collect()
    }

    /// Returns the error that was printed as JSON.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let parsed: Value = everturn::serde_json::from_str(&self.err).unwrap_or_else(|_| panic!("{self:?}"));
        parsed["error"].clone()
    }
}
