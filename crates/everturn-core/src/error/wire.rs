//! The form in which errors leave the process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Status};

/// An error as it travels: `{status, message, details?}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeError {
    /// The canonical status; absent in errors written by older peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The description of the failure, for people.
    pub message: String,
    /// Machine-readable details for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl RuntimeError {
    /// Creates an error without details.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self {
            status: Some(status),
            message: message.into(),
            details: None,
        }
    }
}

/// How much of an error may leave the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Public messages only; an error without one is reduced to its status's label and loses its details.
    Public,
    /// The public message if there is one, else the operator's message; and the details. For development.
    Full,
}

impl Error {
    /// Returns the error's form for a client, without private text unless `exposure` allows it.
    ///
    /// An error whose status is `OK` is reported as `INTERNAL`, because `OK` is not an error.
    pub fn to_wire(&self, exposure: Exposure) -> RuntimeError {
        let status = self.wire_status();
        let (message, details) = match (exposure, self.public_message()) {
            (Exposure::Public, None) => (status.label(), None),
            (Exposure::Full, None) => (self.message(), self.details()),
            (_, Some(public)) => (public, self.details()),
        };
        RuntimeError {
            status: Some(status),
            message: message.to_owned(),
            details: details.cloned(),
        }
    }

    /// Returns the error's form for the operator, with the operator's message. Stored failures keep this
    /// form.
    pub fn for_operator(&self) -> RuntimeError {
        RuntimeError {
            status: Some(self.wire_status()),
            message: self.message().to_owned(),
            details: self.details().cloned(),
        }
    }

    fn wire_status(&self) -> Status {
        match self.status() {
            Status::Ok => Status::Internal,
            status => status,
        }
    }
}

impl From<RuntimeError> for Error {
    fn from(wire: RuntimeError) -> Self {
        let error = Self::new(wire.status.unwrap_or(Status::Unknown), wire.message);
        match wire.details {
            Some(details) => error.with_details(details),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_text_stays_inside_unless_allowed() {
        let error = Error::failed_precondition("agent 'x' has no store").with_details("table t");

        let outside = error.to_wire(Exposure::Public);
        let inside = error.to_wire(Exposure::Full);

        assert_eq!(outside.message, "failed precondition");
        assert_eq!(outside.details, None);
        assert_eq!(inside.message, "agent 'x' has no store");
        assert_eq!(
            serde_json::to_value(inside).unwrap(),
            serde_json::json!({"status": "FAILED_PRECONDITION", "message": "agent 'x' has no store", "details": "table t"})
        );
    }

    #[test]
    fn a_public_message_is_all_that_callers_see_and_the_operator_keeps_the_other() {
        let error = Error::not_found("row 17 of tenant 4").with_public_message("snapshot not found");

        assert_eq!(error.to_wire(Exposure::Public).message, "snapshot not found");
        assert_eq!(error.to_wire(Exposure::Full).message, "snapshot not found");
        assert_eq!(error.for_operator().message, "row 17 of tenant 4");
    }

    #[test]
    fn an_error_that_claims_ok_leaves_as_internal() {
        let wire = Error::new(Status::Ok, "?").to_wire(Exposure::Public);

        assert_eq!(wire.status, Some(Status::Internal));
    }
}
