//! Logging failures: one line each, with the whole chain of causes.
//!
//! The turn, the invocation, the background run and the server all report failures. The first of them claims
//! the report ([`Error::claim_report`]), so that each failure has one line.

use everturn_ai::is_limit;
use everturn_core::{Context, Error, RequestId, Status};

use crate::SessionId;

/// A piece of an agent's work that failed.
pub(crate) struct FailedWork<'a> {
    pub(crate) agent: &'a str,
    pub(crate) session: &'a SessionId,
    pub(crate) context: &'a Context,
}

impl FailedWork<'_> {
    /// Logs the failure, unless it has been logged already. Work that was ended on purpose has not failed.
    pub(crate) fn log(&self, what: &str, error: &Error) {
        if !error.claim_report() {
            return;
        }
        let Self {
            agent,
            session,
            context,
        } = self;
        let (status, request_id) = (error.status(), RequestId::of(context));
        let (is_limit, error) = (is_limit(error), error.with_causes());
        if is_limit {
            tracing::warn!(agent, %session, %request_id, %status, %error, "{what} was stopped by a limit");
        } else if matches!(status, Status::Cancelled | Status::Aborted) {
            tracing::info!(agent, %session, %request_id, %status, %error, "{what} was ended");
        } else {
            tracing::error!(agent, %session, %request_id, %status, %error, "{what} failed");
        }
    }
}
