//! A failed call: its status, the provider's message, and whether a retry can help.

use std::time::Duration;

use everturn_ai::{JsonObject, reason};
use everturn_core::{Error, Status};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::key::ApiKey;

/// The length to which a body of another form is quoted.
pub(crate) const MAX_SAMPLE_CHARS: usize = 200;

/// Error codes of limits that only a payment or a higher quota removes.
const EXHAUSTED: [&str; 4] = [
    "insufficient_quota",
    "billing_error",
    "billing_hard_limit_reached",
    "billing_not_active",
];

/// Error codes of requests with more tokens than the model accepts.
const TOO_LONG_CODES: [&str; 4] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_context_window_exceeded",
    "string_above_max_length",
];

/// Lower-case phrases of providers without such codes. Each is in a message of a provider or of a server for
/// open models about a request with too many tokens.
const TOO_LONG_WORDS: [&str; 10] = [
    "prompt is too long",
    "input is too long",
    "maximum context length",
    "maximum prompt length",
    "exceed context limit",
    "exceeds the available context size",
    "exceeds the context length",
    "exceeds the maximum number of tokens allowed",
    "reduce the length of the messages",
    "exceeds the model's context window",
];

/// Corrects the classification by HTTP status. The value is the body, or `null` if it is not JSON.
pub(crate) type Classify = fn(&mut Failure, &Value);

/// A call that failed, before it becomes an [`Error`].
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// The provider's message.
    pub(crate) message: String,
    /// Whether the same request may succeed later.
    pub(crate) is_retryable: bool,
    /// Whether the request has more tokens than the model accepts.
    pub(crate) is_too_long: bool,
    pub(crate) http_status: Option<u16>,
    /// The provider's error code.
    pub(crate) code: Option<String>,
    pub(crate) request_id: Option<String>,
    /// The delay that the provider requests.
    pub(crate) retry_after: Option<Duration>,
    pub(super) rate_limit: JsonObject,
}

impl Failure {
    /// A failure of the connection or of the protocol.
    pub(crate) fn new(status: Status, is_retryable: bool, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            is_retryable,
            is_too_long: false,
            http_status: None,
            code: None,
            request_id: None,
            retry_after: None,
            rate_limit: JsonObject::new(),
        }
    }

    /// Returns the failure that an HTTP response reports.
    pub(super) fn answered(http_status: u16, headers: &HeaderMap, body: &[u8], classify: Classify) -> Self {
        let (status, is_retryable) = meaning(http_status);
        let text = String::from_utf8_lossy(body);
        let body = serde_json::from_str(text.trim()).unwrap_or(Value::Null);
        let mut failure = Self {
            message: message_in(&body).unwrap_or_else(|| sample(&text)),
            http_status: Some(http_status),
            code: code_in(&body),
            request_id: request_id(headers).or_else(|| text_at(&body, "/request_id")),
            retry_after: retry_after(headers, Timestamp::now()),
            rate_limit: rate_limit(headers),
            ..Self::new(status, is_retryable, "")
        };
        if (300..400).contains(&http_status) {
            let location = header(headers, "location").unwrap_or("an address it does not name");
            failure.message = format!("it redirects to {location}: use that as the base URL");
        }
        failure.correct(&body, classify);
        match header(headers, "x-should-retry") {
            Some("true") => failure.is_retryable = true,
            Some("false") => failure.is_retryable = false,
            _ => {}
        }
        failure
    }

    /// Returns the failure that an object describes: an event of a stream, or the body of a successful
    /// response. A number as its code is an HTTP status.
    pub(super) fn reported(body: &Value, classify: Classify) -> Self {
        let code = code_in(body);
        let number = code.as_deref().and_then(|code| code.parse().ok());
        let http_status = number.filter(|status| (400..600).contains(status));
        let (status, is_retryable) = http_status.map_or((Status::Internal, true), meaning);
        let mut failure = Self {
            message: message_in(body).unwrap_or_else(|| sample(&body.to_string())),
            code,
            request_id: text_at(body, "/request_id"),
            ..Self::new(status, is_retryable, "")
        };
        failure.correct(body, classify);
        failure
    }

    fn correct(&mut self, body: &Value, classify: Classify) {
        let kind = text_at(body, "/error/type");
        let is_exhausted =
            |name: &Option<String>| name.as_deref().is_some_and(|name| EXHAUSTED.contains(&name));
        if is_exhausted(&self.code) || is_exhausted(&kind) {
            self.is_retryable = false;
        }
        classify(self, body);
        if self.reports_too_long() {
            self.is_too_long = true;
            self.is_retryable = false;
            self.status = Status::InvalidArgument;
        }
    }

    /// Returns whether the provider rejects the length of the request.
    fn reports_too_long(&self) -> bool {
        // A rate limit may be about tokens too, and waiting helps against it.
        if !matches!(self.http_status, None | Some(400 | 413 | 422 | 500)) {
            return false;
        }
        let code = self.code.as_deref().unwrap_or_default();
        let message = self.message.to_lowercase();
        TOO_LONG_CODES.contains(&code) || TOO_LONG_WORDS.iter().any(|words| message.contains(words))
    }

    /// Returns the error for callers. It contains none of the keys.
    pub(crate) fn into_error<'a>(self, provider: &str, keys: impl IntoIterator<Item = &'a ApiKey>) -> Error {
        let mut message = match self.http_status {
            Some(status) if self.message.is_empty() => format!("{provider} answered {status}"),
            Some(status) => format!("{provider} answered {status}: {}", self.message),
            None => format!("{provider}: {}", self.message),
        };
        if let Some(id) = &self.request_id {
            message = format!("{message} (request {id})");
        }
        let mut code = self.code;
        for key in keys {
            message = key.hidden_in(&message);
            code = code.map(|code| key.hidden_in(&code));
        }
        let mut details = JsonObject::new();
        details.insert("provider".to_owned(), provider.into());
        details.insert("retryable".to_owned(), self.is_retryable.into());
        let optional = [
            ("httpStatus", self.http_status.map(Value::from)),
            ("code", code.map(Value::from)),
            ("requestId", self.request_id.map(Value::from)),
            ("retryAfterMs", self.retry_after.map(milliseconds)),
            (
                "rateLimit",
                (!self.rate_limit.is_empty()).then(|| json!(self.rate_limit)),
            ),
        ];
        let given = optional
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        details.extend(given);
        let error = Error::new(self.status, message).with_details(details);
        if self.is_too_long {
            error.with_reason(reason::REQUEST_TOO_LONG)
        } else {
            error
        }
    }
}

/// Returns the status for an HTTP status, and whether the same request may succeed later.
fn meaning(http_status: u16) -> (Status, bool) {
    match http_status {
        401 => (Status::Unauthenticated, false),
        402 => (Status::FailedPrecondition, false),
        403 => (Status::PermissionDenied, false),
        404 => (Status::NotFound, false),
        408 | 504 => (Status::DeadlineExceeded, true),
        409 => (Status::Aborted, true),
        429 => (Status::ResourceExhausted, true),
        498 | 503 | 529 => (Status::Unavailable, true),
        501 => (Status::Unimplemented, false),
        500..=599 => (Status::Internal, true),
        _ => (Status::InvalidArgument, false),
    }
}

/// The first of `error.message`, `error`, `message` and `detail`.
fn message_in(body: &Value) -> Option<String> {
    ["/error/message", "/error", "/message", "/detail"]
        .iter()
        .find_map(|pointer| text_at(body, pointer))
        .or_else(|| body.get("detail").map(ToString::to_string))
}

fn code_in(body: &Value) -> Option<String> {
    ["/error/code", "/error/type", "/error/status", "/code", "/type"]
        .iter()
        .find_map(|pointer| match body.pointer(pointer)? {
            Value::String(code) if !code.is_empty() => Some(code.clone()),
            Value::Number(code) => Some(code.to_string()),
            _ => None,
        })
}

fn text_at(body: &Value, pointer: &str) -> Option<String> {
    let text = body.pointer(pointer)?.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the start of a text, on one line.
pub(crate) fn sample(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let joined = words.join(" ");
    match joined.char_indices().nth(MAX_SAMPLE_CHARS) {
        Some((end, _)) => format!("{}…", &joined[..end]),
        None => joined,
    }
}

pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = header(headers, "x-request-id").or_else(|| header(headers, "request-id"))?;
    Some(id.to_owned())
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the requested delay: `retry-after-ms`, else `retry-after` in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let seconds = |text: &str, unit: f64| {
        let number: f64 = text.trim().parse().ok()?;
        Duration::try_from_secs_f64(number * unit).ok()
    };
    if let Some(wait) = header(headers, "retry-after-ms").and_then(|text| seconds(text, 0.001)) {
        return Some(wait);
    }
    let text = header(headers, "retry-after")?;
    seconds(text, 1.0).or_else(|| {
        let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
    })
}

fn rate_limit(headers: &HeaderMap) -> JsonObject {
    let is_limit = |name: &str| name.starts_with("x-ratelimit-") || name.starts_with("anthropic-ratelimit-");
    headers
        .iter()
        .filter(|(name, _)| is_limit(name.as_str()))
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.into())))
        .collect()
}

#[expect(clippy::cast_possible_truncation, reason = "no wait is that long")]
fn milliseconds(wait: Duration) -> Value {
    Value::from(wait.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(entries: &[(&'static str, &'static str)]) -> HeaderMap {
        let header = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        entries.iter().map(header).collect()
    }

    fn answered(http_status: u16, entries: &[(&'static str, &'static str)], body: &str) -> Failure {
        Failure::answered(http_status, &headers(entries), body.as_bytes(), |_, _| {})
    }

    #[test]
    fn providers_that_find_a_request_too_long_are_understood() {
        let complaints = [
            (
                400,
                r#"{"error": {"message": "no", "code": "context_length_exceeded"}}"#,
            ),
            (
                400,
                r#"{"error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            ),
            (
                400,
                r#"{"error": {"status": "INVALID_ARGUMENT", "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}}"#,
            ),
            (
                400,
                r#"{"error": {"code": 400, "type": "exceed_context_size_error", "message": "request (9000 tokens) exceeds the available context size (4096 tokens)"}}"#,
            ),
            (500, r#"{"error": "the input length exceeds the context length"}"#),
            (
                400,
                r#"{"object": "error", "message": "This model's maximum context length is 4096 tokens."}"#,
            ),
        ];
        for (status, body) in complaints {
            let error = answered(status, &[], body).into_error("p", []);

            assert!(error.is(reason::REQUEST_TOO_LONG), "{body}");
            assert_eq!(error.status(), Status::InvalidArgument, "{body}");
        }
        for (status, body) in [
            (
                429,
                r#"{"error": {"message": "Request too large: reduce the length of the messages"}}"#,
            ),
            (400, r#"{"error": {"message": "a tool's name is too long"}}"#),
        ] {
            assert!(!answered(status, &[], body).is_too_long, "{body}");
        }
        let event = serde_json::json!({"error": {"code": "context_length_exceeded", "message": "no"}});
        let failure = Failure::reported(&event, |_, _| {});
        assert!(failure.is_too_long && !failure.is_retryable);
    }

    #[test]
    fn every_known_form_of_an_error_gives_its_message() {
        let forms = [
            r#"{"error": {"message": "no"}}"#,
            r#"{"error": "no"}"#,
            r#"{"object": "error", "message": "no", "code": 40303}"#,
            r#"{"detail": "no"}"#,
            "\n no \n",
        ];
        for form in forms {
            assert_eq!(answered(400, &[], form).message, "no", "{form}");
        }
        let page = answered(502, &[], &"<html> ".repeat(100));
        assert_eq!(page.message.chars().count(), MAX_SAMPLE_CHARS + 1);
    }

    #[test]
    fn an_exhausted_quota_is_not_tried_again() {
        let body = r#"{"error": {"message": "pay", "type": "insufficient_quota", "code": null}}"#;
        let error = answered(429, &[("x-request-id", "r1")], body).into_error("openai", None);

        assert_eq!(error.status(), Status::ResourceExhausted);
        assert_eq!(error.message(), "openai answered 429: pay (request r1)");
        let details = json!({
            "provider": "openai", "retryable": false, "httpStatus": 429,
            "code": "insufficient_quota", "requestId": "r1",
        });
        assert_eq!(error.details(), Some(&details));
    }

    #[test]
    fn the_server_has_the_last_word_on_trying_again() {
        assert!(answered(400, &[("x-should-retry", "true")], "").is_retryable);
        assert!(!answered(500, &[("x-should-retry", "false")], "").is_retryable);
    }

    #[test]
    fn every_form_of_a_wait_is_read() {
        let now = "1994-11-06T08:49:07Z".parse().unwrap();
        let wait = |entries: &[(&'static str, &'static str)]| retry_after(&headers(entries), now);

        let both = [("retry-after-ms", "20"), ("retry-after", "9")];
        assert_eq!(wait(&both), Some(Duration::from_millis(20)));
        assert_eq!(wait(&[("retry-after", "1.5")]), Some(Duration::from_millis(1500)));
        let date = [("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")];
        assert_eq!(wait(&date), Some(Duration::from_secs(30)));
        let past = [("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")];
        assert_eq!(wait(&past), Some(Duration::ZERO));
        assert_eq!(wait(&[("retry-after", "soon")]), None);
    }

    #[test]
    fn a_number_in_a_reported_error_is_an_http_status() {
        let error = Failure::reported(&json!({"error": {"code": 429, "message": "slow"}}), |_, _| {});

        assert_eq!(error.status, Status::ResourceExhausted);
        assert!(error.is_retryable);
    }

    #[test]
    fn a_redirect_is_named_and_not_followed() {
        let failure = answered(302, &[("location", "https://elsewhere/v1")], "");

        assert_eq!(failure.status, Status::InvalidArgument);
        assert!(failure.message.contains("https://elsewhere/v1"));
    }
}
