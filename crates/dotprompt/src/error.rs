//! The error of this crate, with its location in a file.

use std::fmt;
use std::sync::Arc;

use crate::{Limit, StoreError};

/// The error of parsing, compiling, resolving or rendering a prompt.
///
/// [`kind`](Self::kind) returns the cause, [`location`](Self::location) the place in the source. The
/// displayed form is one line: `greet.prompt:3:7: unknown helper 'shout'`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    location: Option<Location>,
}

/// The cause of an [`Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The frontmatter is not a YAML mapping.
    Frontmatter(String),
    /// A key of the frontmatter has a value that cannot be used.
    Metadata(String),
    /// A Picoschema definition breaks a rule of the format.
    Schema(String),
    /// The named schema is not defined.
    UnknownSchema(String),
    /// The tool resolver has no tool of that name.
    UnknownTool(String),
    /// The template is not well formed.
    Syntax(String),
    /// The template calls a helper that is not defined.
    UnknownHelper(String),
    /// A helper refused its arguments or failed.
    Helper {
        /// The helper's name.
        name: String,
        /// The helper's message.
        message: String,
    },
    /// The template includes a partial that is not defined.
    UnknownPartial(String),
    /// Partials include each other without end. Holds their names, with the first one repeated at the end.
    PartialCycle(Vec<String>),
    /// A resolver failed; an unknown name is another kind of error.
    Resolver(String),
    /// The prompt store failed.
    Store(StoreError),
    /// A bound of [`Limits`](crate::Limits) was exceeded.
    LimitExceeded(Limit),
}

/// A place in a source, counted from 1; columns count characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file or the name under which the source was compiled, if it had one.
    pub file: Option<Arc<str>>,
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Inner { kind, location: None }))
    }

    pub(crate) fn at(kind: ErrorKind, location: Location) -> Self {
        Self(Box::new(Inner {
            kind,
            location: Some(location),
        }))
    }

    pub(crate) fn or_at(mut self, location: impl FnOnce() -> Option<Location>) -> Self {
        if self.0.location.is_none() {
            self.0.location = location();
        }
        self
    }

    /// Returns the cause.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the place in the source, or `None` if the error concerns no source.
    pub fn location(&self) -> Option<&Location> {
        self.0.location.as_ref()
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::new(ErrorKind::Store(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.0.location {
            write!(f, "{location}: ")?;
        }
        write!(f, "{}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frontmatter(message) => write!(f, "the frontmatter cannot be read: {message}"),
            Self::Schema(message) => write!(f, "invalid schema: {message}"),
            Self::UnknownSchema(name) => write!(f, "unknown schema '{name}'"),
            Self::UnknownTool(name) => write!(f, "unknown tool '{name}'"),
            Self::Syntax(message) => write!(f, "invalid template: {message}"),
            Self::UnknownHelper(name) => write!(f, "unknown helper '{name}'"),
            Self::Helper { name, message } => write!(f, "helper '{name}': {message}"),
            Self::UnknownPartial(name) => write!(f, "unknown partial '{name}'"),
            Self::PartialCycle(names) => {
                write!(
                    f,
                    "partials include each other without end: {}",
                    names.join(" -> ")
                )
            }
            Self::Metadata(message) | Self::Resolver(message) => f.write_str(message),
            Self::Store(error) => write!(f, "{error}"),
            Self::LimitExceeded(limit) => write!(f, "limit exceeded: {limit}"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file}:{}:{}", self.line, self.column),
            None => write!(f, "{}:{}", self.line, self.column),
        }
    }
}
