//! Deciding which callers are sent the fields that Everturn adds to Genkit's protocol.
//!
//! Kept streams hold every field. Fields that a caller did not ask for are removed here, on their way to that caller.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use everturn_agent::PlainProtocol;
use everturn_core::stream_log::StreamEvent;
use everturn_core::{ActionType, Error, Result};
use serde_json::Value;

use crate::event::Event;

/// Asks for the added fields.
pub(crate) const EXTENSIONS: HeaderName = HeaderName::from_static("x-everturn-extensions");

/// Asks for the added fields as a subprotocol of a WebSocket: pages cannot set headers there.
const SUBPROTOCOL: &str = "everturn.extensions";

/// The form in which one caller is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerForm(Option<PlainProtocol>);

impl AnswerForm {
    /// The form with every field.
    pub(crate) const COMPLETE: Self = Self(None);

    /// Returns the form that a request to an action asks for.
    ///
    /// Fails with `INVALID_ARGUMENT` if the header is neither on nor off.
    pub(crate) fn of(headers: &HeaderMap, action_type: &ActionType) -> Result<Self> {
        let asked = is_asked_for(headers)?;
        Ok(Self(PlainProtocol::of(action_type).filter(|_| !asked)))
    }

    pub(crate) fn output(self, output: Value) -> Value {
        match self.0 {
            Some(plain) => plain.output(output),
            None => output,
        }
    }

    /// Returns the event for the caller; `None` if it is not sent. Outputs are in their form already.
    pub(crate) fn event(self, event: Event) -> Option<Event> {
        let Some(plain) = self.0 else {
            return Some(event);
        };
        Some(match event {
            Event::Message(chunk) => Event::Message(plain.chunk(chunk)?),
            end @ (Event::Result(_) | Event::Error(_)) => end,
        })
    }

    /// Returns the event of a kept stream for the caller; `None` if it is not sent.
    pub(crate) fn kept(self, event: StreamEvent) -> Option<StreamEvent> {
        let Some(plain) = self.0 else {
            return Some(event);
        };
        Some(match event {
            StreamEvent::Chunk(chunk) => StreamEvent::Chunk(plain.chunk(chunk)?),
            StreamEvent::Done(output) => StreamEvent::Done(plain.output_text(output)),
            failed @ StreamEvent::Failed(_) => failed,
        })
    }
}

fn is_asked_for(headers: &HeaderMap) -> Result<bool> {
    match headers.get(EXTENSIONS).map(HeaderValue::as_bytes) {
        Some(b"1" | b"true") => Ok(true),
        Some(b"0" | b"false") => Ok(false),
        Some(other) => Err(Error::invalid_argument(format!(
            "the header 'X-Everturn-Extensions' must be '1' or '0', and is '{}'",
            other.escape_ascii()
        ))
        .with_public()),
        None => {
            let offers = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
            let mut offers = offers
                .filter_map(|offer| offer.to_str().ok())
                .flat_map(|offer| offer.split(','));
            Ok(offers.any(|offer| offer.trim() == SUBPROTOCOL))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &'static str, value: &'static str) -> Result<bool> {
        is_asked_for(&HeaderMap::from_iter([(
            HeaderName::from_static(name),
            value.parse().unwrap(),
        )]))
    }

    #[test]
    fn the_added_fields_are_asked_for_by_header_or_subprotocol() {
        assert!(!is_asked_for(&HeaderMap::new()).unwrap());
        assert!(asked("x-everturn-extensions", "1").unwrap());
        assert!(asked("x-everturn-extensions", "true").unwrap());
        assert!(!asked("x-everturn-extensions", "0").unwrap());
        assert!(asked("sec-websocket-protocol", "everturn.v1, everturn.extensions").unwrap());
        assert!(!asked("sec-websocket-protocol", "everturn.v1").unwrap());
    }

    #[test]
    fn a_value_that_is_neither_on_nor_off_is_refused() {
        let error = asked("x-everturn-extensions", "all").unwrap_err();

        assert!(error.public_message().unwrap().contains("'all'"));
    }
}
