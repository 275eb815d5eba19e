//! The decoders of client input by themselves, for fuzzing and property tests without a server.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde_json::{Value, json};

use crate::logged_calls::Reconnection;
use crate::request_body::Envelope;
use crate::{event, websocket};

/// Parses a body; `None` if it is refused.
pub fn body(bytes: &[u8]) -> Option<Value> {
    let Envelope { data, init } = Envelope::parse(bytes).ok()?;
    Some(json!({ "data": data, "init": init }))
}

/// Returns whether a client may send this text on a WebSocket.
pub fn is_frame(text: &str) -> bool {
    websocket::is_frame(text)
}

/// Parses the stream and the position that headers name; `None` if they name none or are refused.
pub fn position(headers: &[(&'static str, &[u8])]) -> Option<(String, u64)> {
    let headers: HeaderMap = headers
        .iter()
        // Values that HTTP cannot carry never reach the decoder.
        .filter_map(|(name, value)| {
            Some((
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value).ok()?,
            ))
        })
        .collect();
    let Reconnection { id, after } = Reconnection::of(&headers).ok()??;
    Some((id, after.number()))
}

/// Returns whether a request with this target and this `Accept` asks for a stream; `None` if it is refused.
pub fn wants_stream(target: &str, accept: &[u8]) -> Option<bool> {
    let uri: Uri = target.parse().ok()?;
    let accept = HeaderValue::from_bytes(accept).ok()?;
    let headers = HeaderMap::from_iter([(axum::http::header::ACCEPT, accept)]);
    event::is_stream_requested(&uri, &headers).ok()
}

/// Identifies the caller with this `Authorization`, where tokens are signed with these keys; `None` if it is
/// refused.
#[cfg(feature = "jwt")]
pub fn caller(keys: &str, authorization: &[u8]) -> Option<String> {
    use axum::http::Method;
    use futures::FutureExt;

    use crate::{CallRequest, ContextProvider, Jwks, JwtTokens};

    let tokens = JwtTokens::new(Jwks::from_json(keys).ok()?, "kitchen");
    let authorization = HeaderValue::from_bytes(authorization).ok()?;
    let headers = HeaderMap::from_iter([(axum::http::header::AUTHORIZATION, authorization)]);
    let request = CallRequest::new(&Method::POST, "/", &headers);
    // Given keys need no request, so the future is ready at once.
    let provided = tokens.provide(&request).now_or_never()?.ok()?;
    Some(format!("{:?}", provided.principal))
}
