//! Failures inside the store, and how they become errors: by meaning, with advice.

use std::path::Path;

use everturn_core::{Error, Status};
use rusqlite::ErrorCode;

pub(crate) type Outcome<T> = std::result::Result<T, Fault>;

/// A failure inside the store, before it becomes an [`Error`].
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// SQLite failed.
    Sqlite(std::sync::Arc<rusqlite::Error>),
    /// The stored data is damaged.
    Damaged(String),
    /// The store or the caller's mutation refused the operation.
    Refused(Error),
    /// A save was prepared from data that has changed since, and must be prepared again.
    Stale,
}

/// Returns the error of a store or a stream log that was closed.
pub(crate) fn closed() -> Error {
    Error::failed_precondition("the database is closed: open it again")
}

impl Fault {
    /// Names the stream that damage was found in.
    pub(crate) fn in_stream(self, id: &str) -> Self {
        let Self::Damaged(what) = self else {
            return self;
        };
        Self::Refused(Error::data_loss(format!(
            "the stream database is damaged: stream '{id}': {what}; streams are short-lived, so it may simply be removed"
        )))
    }

    /// Returns whether another writer held a lock, so that a retry may succeed.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Sqlite(error) => is_busy(error),
            _ => false,
        }
    }

    pub(crate) fn into_error(self, path: &Path) -> Error {
        let place = path.display();
        match self {
            Self::Refused(error) => error,
            Self::Stale => Error::unavailable(format!(
                "the session database '{place}' was changed by others, again and again, before this could be written: retry"
            )),
            Self::Damaged(what) => Error::data_loss(format!(
                "the session database '{place}' is damaged: {what}; run verify() and restore a backup"
            )),
            Self::Sqlite(error) if is_busy(&error) => {
                let message = format!(
                    "the session database '{place}' is busy: another process holds its write lock; retry, end that \
                     process, or allow a longer busy_timeout ({error})"
                );
                Error::unavailable(message).with_source(error)
            }
            Self::Sqlite(error) => {
                let (status, advice) = meaning(error.sqlite_error_code());
                Error::new(
                    status,
                    format!("the session database '{place}' {advice} ({error})"),
                )
                .with_source(error)
            }
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            // A column holds a value that no version writes there.
            rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::Utf8Error(..) => Self::Damaged(error.to_string()),
            error => Self::Sqlite(error.into()),
        }
    }
}

everturn_sql::store_fault!(Fault);

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

fn meaning(code: Option<ErrorCode>) -> (Status, &'static str) {
    match code {
        Some(ErrorCode::DatabaseCorrupt) => {
            (Status::DataLoss, "is damaged: run verify() and restore a backup")
        }
        Some(ErrorCode::NotADatabase) => (
            Status::DataLoss,
            "is no SQLite database, or its header is damaged: check the path or restore a backup",
        ),
        Some(ErrorCode::DiskFull) => (
            Status::ResourceExhausted,
            "cannot grow: the disk is full; free some space and retry",
        ),
        Some(ErrorCode::OutOfMemory) => (Status::ResourceExhausted, "ran out of memory"),
        Some(ErrorCode::TooBig) => (
            Status::InvalidArgument,
            "cannot keep a value this large: make it smaller",
        ),
        Some(
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied,
        ) => (
            Status::PermissionDenied,
            "may not be written: check the permissions of the file and its folder",
        ),
        Some(ErrorCode::CannotOpen) => (
            Status::FailedPrecondition,
            "cannot be opened: check that its folder exists and may be written",
        ),
        Some(ErrorCode::SystemIoFailure) => (
            Status::Unavailable,
            "cannot be read or written: check the device, then retry",
        ),
        _ => (Status::Internal, "did not do what was asked"),
    }
}
