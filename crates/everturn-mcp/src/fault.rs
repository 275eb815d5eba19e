//! Conversion between MCP errors and [`Error`](everturn_core::Error).

use std::error::Error as StdError;

use everturn_core::{Error, Exposure, Status};
use rmcp::ServiceError;
use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::{AuthRequiredError, HttpStatusError, InsufficientScopeError};
use serde_json::json;

/// Returns the error of a server to which no connection could be made.
pub(crate) fn not_connected(server: &str, error: &ClientInitializeError) -> Error {
    let (status, why) = match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            return not_connected(server, fallback);
        }
        ClientInitializeError::JsonRpcError(error) => (status_of(error.code), error.to_string()),
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            (Status::FailedPrecondition, error.to_string())
        }
        ClientInitializeError::TransportError { error, .. } => {
            let cause = error.error.as_ref();
            (transport_status(cause), chain(cause))
        }
        other => (Status::Unavailable, chain(other)),
    };
    Error::new(status, format!("MCP server '{server}' cannot be reached: {why}"))
}

/// Returns the error of a failed request.
pub(crate) fn request_failed(server: &str, error: &ServiceError) -> Error {
    match error {
        ServiceError::McpError(error) => protocol_error(server, error),
        ServiceError::TransportClosed => Error::unavailable(format!(
            "MCP server '{server}' went away before it answered; the next call connects again"
        )),
        ServiceError::TransportSend(error) => {
            let cause = error.error.as_ref();
            Error::new(
                transport_status(cause),
                format!("MCP server '{server}': {}", chain(cause)),
            )
        }
        ServiceError::Timeout { .. } => Error::deadline_exceeded(format!("MCP server '{server}': {error}")),
        ServiceError::Cancelled { .. } => Error::cancelled(format!("MCP server '{server}': {error}")),
        other => Error::internal(format!("MCP server '{server}': {}", chain(other))),
    }
}

/// Returns the error of a server's error response.
pub(crate) fn protocol_error(server: &str, error: &ErrorData) -> Error {
    Error::new(
        status_of(error.code),
        format!("MCP server '{server}': {}", error.message),
    )
    .with_details(json!({ "code": error.code.0, "data": error.data }))
}

/// Returns the error of a response of the wrong kind.
pub(crate) fn unexpected(server: &str, what: &str) -> Error {
    Error::internal(format!(
        "MCP server '{server}' answered with something else than {what}"
    ))
}

/// Returns whether the connection can no longer be used.
pub(crate) fn is_disconnected(error: &ServiceError) -> bool {
    matches!(
        error,
        ServiceError::TransportClosed | ServiceError::TransportSend(_)
    )
}

/// Returns whether the server requires authentication.
pub(crate) fn is_unauthorized(error: &ServiceError) -> bool {
    matches!(error, ServiceError::TransportSend(error)
        if transport_status(error.error.as_ref()) == Status::Unauthenticated)
}

fn status_of(code: ErrorCode) -> Status {
    match code {
        ErrorCode::INVALID_PARAMS | ErrorCode::INVALID_REQUEST => Status::InvalidArgument,
        ErrorCode::METHOD_NOT_FOUND | ErrorCode::RESOURCE_NOT_FOUND => Status::NotFound,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY => {
            Status::FailedPrecondition
        }
        _ => Status::Internal,
    }
}

/// Returns the status of an HTTP failure; other failures mean that the server is unreachable.
fn transport_status(error: &(dyn StdError + 'static)) -> Status {
    let mut causes = std::iter::successors(Some(error), |error| (*error).source());
    causes
        .find_map(|cause| {
            if cause.is::<AuthRequiredError>() {
                return Some(Status::Unauthenticated);
            }
            if cause.is::<InsufficientScopeError>() {
                return Some(Status::PermissionDenied);
            }
            if let Some(http) = cause.downcast_ref::<HttpStatusError>() {
                return (http.status == 429).then_some(Status::ResourceExhausted);
            }
            let text = cause.to_string();
            if text.contains("HTTP 401") {
                return Some(Status::Unauthenticated);
            }
            text.contains("HTTP 403").then_some(Status::PermissionDenied)
        })
        .unwrap_or(Status::Unavailable)
}

/// Returns an error and its causes in one line, without repetitions.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Returns the error response to a request that failed.
pub(crate) fn to_protocol(error: &Error, exposure: Exposure) -> ErrorData {
    let code = match error.status() {
        Status::InvalidArgument | Status::NotFound | Status::OutOfRange | Status::FailedPrecondition => {
            ErrorCode::INVALID_PARAMS
        }
        Status::Unimplemented => ErrorCode::METHOD_NOT_FOUND,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    let wire = error.to_wire(exposure);
    let data = json!({ "status": wire.status, "details": wire.details });
    ErrorData::new(code, wire.message, Some(data))
}
