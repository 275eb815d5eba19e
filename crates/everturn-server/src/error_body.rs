//! Failures as responses, all of one JSON shape: `{"status"?, "message", "details"?}`.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use everturn_core::{Error, Exposure, RequestId, RuntimeError, Status};

use crate::correlation::log_failed_call;

/// A failed request: the error, and the HTTP code and headers that go with it.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    error: Error,
    code: StatusCode,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// Returns a failure with its own HTTP code.
    pub(crate) fn new(code: StatusCode, error: Error) -> Self {
        Self {
            error: error.with_public(),
            code,
            header: None,
        }
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some((name, value));
        self
    }

    /// Tells the operator of the failure.
    pub(crate) fn log(&self, path: &str, request: Option<RequestId>) {
        log_failed_call(path, &request.unwrap_or_else(RequestId::current), &self.error);
    }

    /// Returns the HTTP code.
    pub(crate) fn code(&self) -> StatusCode {
        self.code
    }

    /// Returns the error as the caller may see it.
    pub(crate) fn wire(&self, exposure: Exposure) -> RuntimeError {
        self.error.to_wire(exposure)
    }

    /// Returns the response. Private text is withheld unless `exposure` allows it.
    pub(crate) fn respond(&self, exposure: Exposure) -> Response<Body> {
        let mut response = json_response(self.code, &self.error.to_wire(exposure));
        if let Some((name, value)) = &self.header {
            response.headers_mut().insert(name, value.clone());
        }
        response
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let code = http_status(&error.to_wire(Exposure::Public));
        let header = match error.status() {
            Status::Unauthenticated => Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Status::ResourceExhausted => Some((header::RETRY_AFTER, HeaderValue::from_static("1"))),
            _ => None,
        };
        Self { error, code, header }
    }
}

/// Returns the answer for a path without a route.
///
/// It has no `status`: clients of optional routes take a 404 with a status for the answer of an action that
/// found nothing, and one without for a route that this server does not have.
pub(crate) fn no_such_path() -> Response<Body> {
    let body = RuntimeError {
        status: None,
        message: "nothing is served at this path".to_owned(),
        details: None,
    };
    json_response(StatusCode::NOT_FOUND, &body)
}

/// Returns the HTTP code of a status, by the protocol's table, which includes the unofficial 499.
pub(crate) fn http_status(error: &RuntimeError) -> StatusCode {
    let status = error.status.unwrap_or(Status::Unknown);
    StatusCode::from_u16(status.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Creates a response with a JSON body.
///
/// # Panics
/// If the body has no JSON form.
pub fn json_response(code: StatusCode, body: &impl serde::Serialize) -> Response<Body> {
    json_text(
        code,
        serde_json::to_vec(body).expect("what is answered is plain data"),
    )
}

/// Returns an answer whose body is written already.
pub(crate) fn json_text(code: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
