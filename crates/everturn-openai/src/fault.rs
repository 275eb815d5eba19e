//! Errors in the form of OpenAI's API: `{"error": {"message", "type", "param", "code"}}`.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use everturn_core::{Error, Exposure, RuntimeError, Status};
use everturn_server::json_response;
use serde_json::{Value, json};

/// A request that is answered with an error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    pub(crate) code: StatusCode,
    pub(crate) message: String,
    pub(crate) kind: &'static str,
    /// The error code in the body.
    pub(crate) reason: Option<String>,
    /// The request's field at fault.
    pub(crate) param: Option<String>,
    /// Whether a client may retry the request.
    pub(crate) retry: Retry,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Retry {
    /// The client decides by the HTTP code.
    Unsaid,
    /// The client may retry soon: nothing ran.
    Soon,
    Never,
}

impl Fault {
    /// Returns the fault of an invalid request.
    pub(crate) fn invalid(reason: &str, param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: StatusCode::BAD_REQUEST,
            message: message.into(),
            kind: "invalid_request_error",
            reason: Some(reason.into()),
            param: Some(param.into()),
            retry: Retry::Unsaid,
        }
    }

    /// Returns the fault of a value that is valid and not supported here.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid("unsupported_value", param, message)
    }

    /// Returns the fault of a value that is not valid.
    pub(crate) fn wrong_value(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid("invalid_value", param, message)
    }

    /// Returns the fault of a field that the agent does not accept. `permission` is the method that allows
    /// it.
    pub(crate) fn not_permitted(param: &str, agent: &str, permission: &str) -> Self {
        Self::invalid(
            "unsupported_parameter",
            param,
            format!(
                "The agent '{agent}' does not accept '{param}' from clients: leave it out, or define the agent with \
                 `ClientPermissions::{permission}`."
            ),
        )
    }

    /// Returns the fault of a field that is missing.
    pub(crate) fn missing(param: &str) -> Self {
        Self::invalid(
            "missing_required_parameter",
            param,
            format!("Missing required parameter: '{param}'."),
        )
    }

    /// Returns the fault of a field whose value is of a wrong type.
    pub(crate) fn wrong_type(param: impl Into<String>, wanted: &str) -> Self {
        let param = param.into();
        let message = format!("Invalid type for '{param}': expected {wanted}.");
        Self::invalid("invalid_type", param, message)
    }

    /// Returns the fault of a name that does not exist.
    pub(crate) fn not_found(reason: &str, message: impl Into<String>) -> Self {
        Self {
            code: StatusCode::NOT_FOUND,
            param: None,
            ..Self::invalid(reason, "", message)
        }
    }

    /// Returns the fault of a turn that ran and failed. Clients must not retry it automatically.
    pub(crate) fn failed_turn(error: &RuntimeError) -> Self {
        Self {
            retry: Retry::Never,
            ..Self::of_runtime_error(error)
        }
    }

    /// Returns the fault of an error in its public form.
    pub(crate) fn of_runtime_error(error: &RuntimeError) -> Self {
        let status = error.status.unwrap_or(Status::Unknown);
        let code = StatusCode::from_u16(status.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::of(code, status, error.message.clone())
    }

    /// Returns the fault of a status with this HTTP code.
    pub(crate) fn of(code: StatusCode, status: Status, message: String) -> Self {
        let lower = status.name().to_ascii_lowercase();
        let (kind, reason, retry) = match status {
            Status::Unauthenticated => (
                "authentication_error",
                "invalid_api_key".to_owned(),
                Retry::Unsaid,
            ),
            Status::Aborted => (
                "invalid_request_error",
                "conversation_busy".to_owned(),
                Retry::Soon,
            ),
            Status::ResourceExhausted => ("rate_limit_error", lower, Retry::Soon),
            Status::Unavailable => ("server_error", lower, Retry::Soon),
            _ if code.is_server_error() => ("server_error", lower, Retry::Unsaid),
            _ => ("invalid_request_error", lower, Retry::Unsaid),
        };
        Self {
            code,
            message,
            kind,
            reason: Some(reason),
            param: None,
            retry,
        }
    }

    /// Returns the fault of an error.
    pub(crate) fn of_error(error: &Error, exposure: Exposure) -> Self {
        Self::of_runtime_error(&error.to_wire(exposure))
    }

    /// Sets the field at fault.
    pub(crate) fn at(self, param: &str) -> Self {
        Self {
            param: Some(param.into()),
            ..self
        }
    }

    /// Renames the field at fault for Chat Completions, where the conversation is under `messages`.
    pub(crate) fn in_messages(self) -> Self {
        match self.param.as_deref() {
            Some("input") => self.at("messages"),
            _ => self,
        }
    }

    /// Returns the object under `error`.
    pub(crate) fn object(&self) -> Value {
        json!({
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.reason,
        })
    }

    /// Returns the response.
    pub(crate) fn respond(&self) -> Response<Body> {
        let mut response = json_response(self.code, &json!({ "error": self.object() }));
        let headers = response.headers_mut();
        match self.retry {
            Retry::Unsaid => {}
            Retry::Soon => {
                headers.insert(
                    HeaderName::from_static("retry-after-ms"),
                    HeaderValue::from_static("500"),
                );
            }
            Retry::Never => {
                headers.insert(
                    HeaderName::from_static("x-should-retry"),
                    HeaderValue::from_static("false"),
                );
            }
        }
        if self.code == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
