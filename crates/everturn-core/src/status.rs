//! The canonical statuses of errors and their HTTP codes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The kind of an operation's outcome, one of the canonical statuses of all clients.
///
/// On the wire a status is its upper-case name (`INVALID_ARGUMENT`). A name that this version does not define
/// is read as [`Status::Unknown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// The operation succeeded.
    Ok,
    /// The caller gave up before the operation finished.
    Cancelled,
    /// The cause of the failure is unknown.
    Unknown,
    /// The request itself is wrong, whatever the state of the system.
    InvalidArgument,
    /// The deadline passed before the operation finished.
    DeadlineExceeded,
    /// The requested entity does not exist.
    NotFound,
    /// The entity to be created already exists.
    AlreadyExists,
    /// The caller is known but is not allowed to do this.
    PermissionDenied,
    /// A quota or limit is used up.
    ResourceExhausted,
    /// The system is not in the state that the operation needs; retrying without a change does not help.
    FailedPrecondition,
    /// The operation lost a race; retry at a higher level.
    Aborted,
    /// The operation went past a valid range.
    OutOfRange,
    /// The operation is not offered here.
    Unimplemented,
    /// An invariant of the system is broken.
    Internal,
    /// The service cannot be reached now; retry with backoff.
    Unavailable,
    /// Data is lost or corrupt beyond repair.
    DataLoss,
    /// The caller's identity is missing or not proven.
    Unauthenticated,
}

/// Every status in code order with its wire name, its HTTP status and the label shown in place of a private
/// message.
#[rustfmt::skip] // A table reads by columns.
const TABLE: [(Status, &str, u16, &str); 17] = [
    (Status::Ok, "OK", 200, "ok"),
    (Status::Cancelled, "CANCELLED", 499, "cancelled"),
    (Status::Unknown, "UNKNOWN", 500, "unknown error"),
    (Status::InvalidArgument, "INVALID_ARGUMENT", 400, "invalid argument"),
    (Status::DeadlineExceeded, "DEADLINE_EXCEEDED", 504, "deadline exceeded"),
    (Status::NotFound, "NOT_FOUND", 404, "not found"),
    (Status::AlreadyExists, "ALREADY_EXISTS", 409, "already exists"),
    (Status::PermissionDenied, "PERMISSION_DENIED", 403, "permission denied"),
    (Status::ResourceExhausted, "RESOURCE_EXHAUSTED", 429, "resource exhausted"),
    (Status::FailedPrecondition, "FAILED_PRECONDITION", 400, "failed precondition"),
    (Status::Aborted, "ABORTED", 409, "aborted"),
    (Status::OutOfRange, "OUT_OF_RANGE", 400, "out of range"),
    (Status::Unimplemented, "UNIMPLEMENTED", 501, "unimplemented"),
    (Status::Internal, "INTERNAL", 500, "internal error"),
    (Status::Unavailable, "UNAVAILABLE", 503, "unavailable"),
    (Status::DataLoss, "DATA_LOSS", 500, "data loss"),
    (Status::Unauthenticated, "UNAUTHENTICATED", 401, "unauthenticated"),
];

impl Status {
    /// Returns every status, in code order.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (Self, &'static str, u16, &'static str) {
        &TABLE[usize::from(self.code())]
    }

    /// Returns the numeric code, 0 to 16.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name used on the wire, for example `NOT_FOUND`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the HTTP code that a server answers with.
    pub fn http_status(self) -> u16 {
        self.row().2
    }

    /// Returns a general label such as `not found`, shown to clients in place of a private message.
    pub fn label(self) -> &'static str {
        self.row().3
    }

    /// Returns the status for the HTTP code of another service's response.
    ///
    /// ```
    /// use everturn_core::Status;
    ///
    /// assert_eq!(Status::from_http(429), Status::ResourceExhausted);
    /// assert_eq!(Status::from_http(529), Status::Internal);
    /// ```
    pub fn from_http(code: u16) -> Self {
        match code {
            200..=299 => Self::Ok,
            400 => Self::InvalidArgument,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::NotFound,
            409 => Self::Aborted,
            429 => Self::ResourceExhausted,
            499 => Self::Cancelled,
            501 => Self::Unimplemented,
            503 => Self::Unavailable,
            504 => Self::DeadlineExceeded,
            500.. => Self::Internal,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for an unknown status name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownStatus(String);

impl fmt::Display for UnknownStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a status name", self.0)
    }
}

impl std::error::Error for UnknownStatus {}

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        TABLE
            .iter()
            .find(|row| row.1 == name)
            .map(|row| row.0)
            .ok_or_else(|| UnknownStatus(name.to_owned()))
    }
}

impl Serialize for Status {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Ok(name.parse().unwrap_or(Self::Unknown))
    }
}

impl schemars::JsonSchema for Status {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Status".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_table_and_names_round_trip() {
        for (code, status) in Status::all().enumerate() {
            assert_eq!(usize::from(status.code()), code);
            assert_eq!(status.name().parse(), Ok(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
        }
    }

    #[test]
    fn an_unknown_name_reads_as_unknown() {
        let read: Status = serde_json::from_value("BROKEN_PIPE".into()).unwrap();

        assert_eq!(read, Status::Unknown);
        assert!("BROKEN_PIPE".parse::<Status>().is_err());
    }

    #[test]
    fn http_codes_follow_the_reference() {
        let codes: Vec<u16> = Status::all().map(Status::http_status).collect();

        assert_eq!(
            codes,
            [
                200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401
            ]
        );
    }
}
