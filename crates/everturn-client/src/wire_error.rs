//! The error formats of servers of this protocol.
//!
//! | server | outside a stream |
//! |---|---|
//! | Everturn, Express, fetch | `{"status":…,"message":…,"details":…}` |
//! | Next.js | `{"error":{…}}` |
//! | FastAPI | `{"detail":…}`, or an empty body |
//! | Go | the message as plain text; the status's label if the message is private |
//! | a proxy | an HTML page |

use bytes::Bytes;
use everturn_core::{Error, Status};
use reqwest::StatusCode;
use serde_json::Value;

/// Parses the error of a server. `fallback` is the status if the response has none.
pub(crate) fn error_in(mut value: Value, fallback: Status) -> Error {
    while let Value::Object(fields) = &mut value
        && let Some(inner) = fields.get_mut("error")
    {
        value = inner.take();
    }
    let Value::Object(mut fields) = value else {
        let text = match value {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        return named(None, fallback, &text);
    };
    let status = fields.get("status").and_then(Value::as_str).and_then(status_of);
    let message = ["message", "detail"].iter().find_map(|key| fields.get(*key));
    let message = match message {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let error = named(status, fallback, &message);
    match fields.shift_remove("details") {
        Some(Value::Null) | None => error,
        Some(details) => error.with_details(details),
    }
}

/// Returns an error with the status in the response, or the one that JavaScript puts before the message.
fn named(status: Option<Status>, fallback: Status, message: &str) -> Error {
    let prefixed = message
        .split_once(": ")
        .and_then(|(name, rest)| Some((name.parse().ok()?, rest)));
    let (prefix, message) = prefixed.map_or((None, message), |(prefix, rest)| (Some(prefix), rest));
    let status = status.or(prefix).unwrap_or(fallback);
    // An error whose status is `OK` is still an error.
    let status = if status == Status::Ok {
        Status::Internal
    } else {
        status
    };
    match message.trim() {
        "" => Error::new(status, status.label()),
        message => Error::new(status, message),
    }
}

/// Parses the name of a status, in any of the known spellings.
fn status_of(name: &str) -> Option<Status> {
    name.replace([' ', '-'], "_").to_uppercase().parse().ok()
}

/// Returns the error in a rejected HTTP request.
pub(crate) fn refusal(code: StatusCode, is_page: bool, body: &Bytes) -> Error {
    let fallback = match Status::from_http(code.as_u16()) {
        Status::Ok => Status::Internal,
        status => status,
    };
    let plain = || Error::new(fallback, format!("the server answered {code}"));
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.is_empty() || is_page {
        return plain();
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) if fields.is_empty() => plain(),
        Ok(value) => error_in(value, fallback),
        // Several statuses share a code; the label distinguishes them.
        Err(_) => Status::all()
            .find(|status| status.http_status() == code.as_u16() && status.label() == text)
            .map_or_else(|| named(None, fallback, text), |status| Error::new(status, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, body: &str) -> String {
        let code = StatusCode::from_u16(code).unwrap();
        format!(
            "{:?}",
            refusal(
                code,
                body.starts_with('<'),
                &Bytes::copy_from_slice(body.as_bytes())
            )
        )
    }

    #[test]
    fn every_server_is_understood() {
        assert_eq!(
            refused(
                404,
                r#"{"details":{"a":1},"status":"NOT_FOUND","message":"nope"}"#
            ),
            r#"NOT_FOUND: nope {"a":1}"#
        );
        assert_eq!(
            refused(409, r#"{"error":{"status":"ALREADY_EXISTS","message":"taken"}}"#),
            "ALREADY_EXISTS: taken"
        );
        assert_eq!(
            refused(422, r#"{"detail":[{"loc":["body"]}]}"#),
            r#"UNKNOWN: [{"loc":["body"]}]"#
        );
        assert_eq!(
            refused(400, "failed precondition\n"),
            "FAILED_PRECONDITION: failed precondition"
        );
        assert_eq!(
            refused(400, "no such field 'x'\n"),
            "INVALID_ARGUMENT: no such field 'x'"
        );
        assert_eq!(
            refused(400, r#"{"message":"no body","status":"INVALID ARGUMENT"}"#),
            "INVALID_ARGUMENT: no body"
        );
        assert_eq!(
            refused(400, r#""FAILED_PRECONDITION: no store""#),
            "FAILED_PRECONDITION: no store"
        );
        assert_eq!(refused(404, ""), "NOT_FOUND: the server answered 404 Not Found");
        // Routes that do not exist on the server.
        assert_eq!(
            refused(404, r#"{"message":"nothing is served at this path"}"#),
            "NOT_FOUND: nothing is served at this path"
        );
        assert_eq!(refused(404, r#"{"detail":"Not Found"}"#), "NOT_FOUND: Not Found");
        assert_eq!(
            refused(404, "404 page not found"),
            "NOT_FOUND: 404 page not found"
        );
        assert_eq!(
            refused(503, "<html>down</html>"),
            "UNAVAILABLE: the server answered 503 Service Unavailable"
        );
        assert_eq!(
            refused(500, "{}"),
            "INTERNAL: the server answered 500 Internal Server Error"
        );
    }

    #[test]
    fn an_error_never_claims_success() {
        assert_eq!(refused(500, r#"{"status":"OK","message":"?"}"#), "INTERNAL: ?");
    }

    #[test]
    fn a_message_contains_its_status_once() {
        let value = serde_json::json!({"status": "INVALID_ARGUMENT", "message": "INVALID_ARGUMENT: wrong"});

        assert_eq!(
            format!("{:?}", error_in(value, Status::Unknown)),
            "INVALID_ARGUMENT: wrong"
        );
    }
}
