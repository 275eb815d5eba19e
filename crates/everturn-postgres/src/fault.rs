//! Failures inside the store, and how they become errors: by meaning, with advice.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::save_unknown;
use everturn_agent::{SessionId, SnapshotId};
use everturn_core::{Error, Status};
use tokio_postgres::error::SqlState;

pub(crate) type Outcome<T> = std::result::Result<T, Fault>;

/// A save that was sent and not answered.
#[derive(Debug, Clone)]
pub(crate) struct UnknownSave {
    pub(crate) snapshot: SnapshotId,
    pub(crate) session: Option<SessionId>,
    pub(crate) why: Fault,
}

/// A failure inside the store, before it becomes an [`Error`].
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// PostgreSQL, or the way to it, failed.
    Database(Arc<tokio_postgres::Error>),
    /// No connection could be had, for this reason.
    NoConnection(String),
    /// A statement was not answered in this time, and the server has cancelled it.
    TimedOut(Duration),
    /// Nothing was answered in this time.
    Silent(Duration),
    /// A statement was sent and not answered, for this reason. It may have been carried out, or still be.
    Unanswered(Box<Fault>),
    /// Whether a snapshot was saved could not be found out.
    Unknown(Box<UnknownSave>),
    /// Another writer was faster.
    Moved,
    /// The stored data is damaged.
    Damaged(String),
    /// The store or the caller's mutation refused the operation.
    Refused(Error),
}

impl Fault {
    /// Returns the fault of a statement that was sent before its connection failed.
    pub(crate) fn unanswered(self) -> Self {
        match self {
            // The server reported that the statement was not executed.
            Self::TimedOut(_) => self,
            fault => Self::Unanswered(Box::new(fault)),
        }
    }

    /// Returns whether a statement was sent of which it is unknown whether it was carried out.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unanswered(_))
    }

    /// Returns whether the connection failed rather than the statement, so that another connection may
    /// succeed.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::TimedOut(_) | Self::Silent(_) | Self::Unanswered(_) => true,
            Self::Database(error) => error.code().is_none_or(|code| {
                // Classes: connection exception, operator intervention.
                ["08", "57P"].iter().any(|class| code.code().starts_with(class))
                    || *code == SqlState::TOO_MANY_CONNECTIONS
                    // The server has become a standby.
                    || *code == SqlState::READ_ONLY_SQL_TRANSACTION
            }),
            Self::Unknown(_) | Self::Moved | Self::Damaged(_) | Self::Refused(_) => false,
        }
    }

    /// Returns whether the statement lost a race and was undone, so that it can be tried again.
    pub(crate) fn is_conflict(&self) -> bool {
        if matches!(self, Self::Moved) {
            return true;
        }
        let codes = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
        ];
        self.code().is_some_and(|code| codes.contains(code))
    }

    pub(crate) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Database(error) => error.code(),
            Self::Unanswered(fault) => fault.code(),
            _ => None,
        }
    }

    /// Converts the failure; `place` names the database without its password.
    pub(crate) fn into_error(self, place: &str) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Damaged(what) => Error::data_loss(format!(
                "the session database '{place}' is damaged: {what}; run verify() and restore a backup"
            )),
            Self::Moved => Error::unavailable(format!(
                "the session database '{place}' is contended: other writers of the session were faster; retry"
            )),
            Self::NoConnection(why) => Error::unavailable(format!(
                "the session database '{place}' cannot be reached: {why}; check that it runs, then retry"
            )),
            Self::TimedOut(limit) => Error::unavailable(format!(
                "the session database '{place}' did not finish a statement within {limit:?}, and cancelled it; retry, or \
                 allow a longer patience and statement_timeout"
            )),
            Self::Silent(limit) => Error::unavailable(format!(
                "the session database '{place}' did not answer within {limit:?}; check that it runs, then retry"
            )),
            Self::Unanswered(fault) => fault.into_error(place),
            Self::Unknown(save) => save_unknown(&save.snapshot, save.why.into_error(place)),
            Self::Database(error) => {
                let (status, advice) = meaning(error.code());
                // The outer error does not describe its cause.
                let why = error
                    .as_db_error()
                    .map_or_else(|| describe(&error), ToString::to_string);
                Error::new(status, format!("the session database '{place}' {advice} ({why})"))
                    .with_source(error)
            }
        }
    }
}

/// Returns an error with its causes.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(Arc::new(error))
    }
}

everturn_sql::store_fault!(Fault);

fn meaning(code: Option<&SqlState>) -> (Status, &'static str) {
    let Some(code) = code else {
        return (
            Status::Unavailable,
            "cannot be reached: check that it runs, then retry",
        );
    };
    match code.code() {
        "28P01" | "28000" => (
            Status::PermissionDenied,
            "refuses this user: check the name, the password and pg_hba.conf",
        ),
        "42501" => (
            Status::PermissionDenied,
            "does not let this user do that: grant it the privileges on the schema, or have the owner run migration_sql()",
        ),
        "3D000" => (Status::FailedPrecondition, "does not exist: create it first"),
        "42P01" | "42703" | "3F000" => (
            Status::FailedPrecondition,
            "lacks tables of this version: open it with a user that may create them, or run migration_sql()",
        ),
        "53100" => (
            Status::ResourceExhausted,
            "cannot grow: its disk is full; free some space and retry",
        ),
        "53200" => (Status::ResourceExhausted, "ran out of memory"),
        "54000" | "22001" => (
            Status::InvalidArgument,
            "cannot keep a value this large: make it smaller",
        ),
        "XX001" | "XX002" => (Status::DataLoss, "is damaged: run verify() and restore a backup"),
        "40001" | "40P01" | "23505" => (Status::Aborted, "is contended: retry"),
        other if other.starts_with("08") || other.starts_with("57P") || other.starts_with("53") => (
            Status::Unavailable,
            "is not available: check that it runs, then retry",
        ),
        "57014" => (
            Status::Unavailable,
            "cancelled the statement: retry, or raise the role's statement_timeout",
        ),
        "25006" => (
            Status::Unavailable,
            "is read-only: connect to the primary server, then retry",
        ),
        _ => (Status::Internal, "did not do what was asked"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_database_is_unavailable_and_may_be_retried() {
        let fault = Fault::NoConnection("connection refused".to_owned());

        assert!(fault.is_lost());
        let error = fault.into_error("db.example/kitchen");
        assert_eq!(error.status(), Status::Unavailable);
        assert!(error.message().contains("db.example/kitchen"), "{error}");
    }

    #[test]
    fn codes_are_converted_by_meaning() {
        let cases = [
            ("28P01", Status::PermissionDenied),
            ("53100", Status::ResourceExhausted),
            ("53300", Status::Unavailable),
            ("57P01", Status::Unavailable),
            ("XX001", Status::DataLoss),
            ("42P01", Status::FailedPrecondition),
        ];
        for (code, status) in cases {
            assert_eq!(meaning(Some(&SqlState::from_code(code))).0, status, "{code}");
        }
    }
}
