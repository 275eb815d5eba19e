//! The form in which a log stores errors.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Exposure, Status};

/// An error as a log stores it: with one message, and whether that message is public.
///
/// An error with a public message keeps only that. An error without one keeps its private message, marked as
/// private, so that a reader can show it to an operator and not to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredError {
    /// The canonical status.
    pub status: Status,
    /// The public message if there is one, else the private one.
    pub message: String,
    /// Whether the message may be shown to clients.
    pub public: bool,
    /// Machine-readable details that help the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl From<&Error> for StoredError {
    fn from(error: &Error) -> Self {
        let wire = error.to_wire(Exposure::Full);
        Self {
            status: wire.status.unwrap_or(Status::Unknown),
            message: wire.message,
            public: error.public_message().is_some(),
            details: wire.details,
        }
    }
}

impl From<StoredError> for Error {
    fn from(stored: StoredError) -> Self {
        let mut error = Self::new(stored.status, stored.message);
        if let Some(details) = stored.details {
            error = error.with_details(details);
        }
        if stored.public { error.with_public() } else { error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_text_stays_private_through_a_log_and_a_public_message_is_all_that_is_kept() {
        let private = Error::internal("row 17").with_details("table t");
        let public = Error::not_found("row 17").with_public_message("no such recipe");

        let through = |error: &Error| {
            let text = serde_json::to_string(&StoredError::from(error)).unwrap();
            (
                text.clone(),
                Error::from(serde_json::from_str::<StoredError>(&text).unwrap()),
            )
        };
        let ((_, private), (kept, public)) = (through(&private), through(&public));

        assert_eq!(private.to_wire(Exposure::Public).message, "internal error");
        assert_eq!(private.to_wire(Exposure::Full).message, "row 17");
        assert_eq!(public.to_wire(Exposure::Public).message, "no such recipe");
        assert!(!kept.contains("row 17"), "{kept}");
    }
}
