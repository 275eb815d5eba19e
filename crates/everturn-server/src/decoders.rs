//! What reads the words of clients, by itself: fuzzing and property tests drive it without a server.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::durable::Resumption;
use crate::envelope::Envelope;
use crate::websocket;

/// A body as it was understood; nothing if it is refused.
pub fn body(bytes: &[u8]) -> Option<Value> {
    let Envelope { data, init } = Envelope::parse(bytes).ok()?;
    Some(json!({ "data": data, "init": init }))
}

/// Whether the text is something that a client may say on a WebSocket.
pub fn is_frame(text: &str) -> bool {
    websocket::is_frame(text)
}

/// The stream and the position in it that headers name; nothing if they name none or are refused.
pub fn position(headers: &[(&'static str, &[u8])]) -> Option<(String, u64)> {
    let headers: HeaderMap = headers
        .iter()
        // What HTTP itself cannot carry never gets as far as this.
        .filter_map(|(name, value)| {
            Some((
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value).ok()?,
            ))
        })
        .collect();
    let Resumption { id, after } = Resumption::of(&headers).ok()??;
    Some((id, after.number()))
}
