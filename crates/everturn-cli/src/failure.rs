//! The end of a command: its exit code, and an error with a suggested next step.

use std::io;
use std::process::ExitCode;

use everturn_agent::AgentReply;
use everturn_core::{Error, Status};
use serde_json::Value;

/// The result of a command.
pub(crate) type Outcome<T = Exit> = Result<T, Failure>;

/// An exit code; documented in the help and the guide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Wrong = 2,
    NotFound = 3,
    NotAllowed = 4,
    Conflict = 5,
    Unavailable = 6,
    /// The command succeeded with a negative result.
    No = 7,
    /// An agent waits for an answer.
    Unanswered = 8,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<Status> for Exit {
    fn from(status: Status) -> Self {
        match status {
            Status::InvalidArgument | Status::OutOfRange => Self::Wrong,
            Status::NotFound => Self::NotFound,
            Status::PermissionDenied | Status::Unauthenticated => Self::NotAllowed,
            Status::AlreadyExists | Status::Aborted | Status::FailedPrecondition => Self::Conflict,
            Status::Unavailable | Status::DeadlineExceeded | Status::ResourceExhausted => Self::Unavailable,
            _ => Self::Failed,
        }
    }
}

/// The reason why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader closed standard output, which is not an error.
    ReaderLeft,
    /// An error, with the exit code and a suggested next step.
    Error {
        error: Box<Error>,
        next: Option<String>,
        exit: Exit,
    },
}

impl Failure {
    /// Adds the next step, unless there is one.
    pub(crate) fn or_next(mut self, step: impl Into<String>) -> Self {
        if let Self::Error { next, .. } = &mut self {
            next.get_or_insert_with(|| step.into());
        }
        self
    }

    pub(crate) fn exit_with(mut self, code: Exit) -> Self {
        if let Self::Error { exit, .. } = &mut self {
            *exit = code;
        }
        self
    }

    pub(crate) fn status(&self) -> Option<Status> {
        match self {
            Self::ReaderLeft => None,
            Self::Error { error, .. } => Some(error.status()),
        }
    }

    /// Adds the next step after a turn failed on its server. The status describes the turn, not the request,
    /// which the server accepted.
    pub(crate) fn in_turn(self) -> Self {
        match self.status() {
            Some(Status::Unauthenticated | Status::PermissionDenied) => self.exit_with(Exit::Failed).or_next(
                "a model provider or a tool rejected the agent's request: check the keys of the program that serves the agent",
            ),
            Some(Status::Unavailable | Status::NotFound) => {
                self.or_next("the turn failed on the server, whose log has the cause")
            }
            _ => self,
        }
    }

    /// Returns a failure for wrong arguments.
    pub(crate) fn wrong(message: impl Into<String>) -> Self {
        Error::invalid_argument(message).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let is_of_turn = AgentReply::<Value>::of(&error).is_some();
        let failure = Self::Error {
            exit: error.status().into(),
            error: Box::new(error),
            next: None,
        };
        if is_of_turn { failure.in_turn() } else { failure }
    }
}

/// For errors of standard output. Errors of files include the file name and are made with [`about_file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderLeft,
            _ => Error::from(error).into(),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Error::from(error).into()
    }
}

/// Adds the file name to an error.
pub(crate) fn about_file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let status = match error.kind() {
            io::ErrorKind::NotFound => Status::NotFound,
            io::ErrorKind::PermissionDenied => Status::PermissionDenied,
            io::ErrorKind::AlreadyExists => Status::AlreadyExists,
            _ => Status::Internal,
        };
        Error::new(status, format!("{}: {error}", path.display())).into()
    }
}
