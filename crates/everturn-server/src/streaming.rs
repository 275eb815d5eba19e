//! Deciding whether a caller asks for a stream.

use axum::http::{HeaderMap, Uri, header};
use everturn_core::{Error, Result};

/// Returns whether a request asks for a stream, by `Accept: text/event-stream` or by `?stream=true`.
///
/// Fails with `INVALID_ARGUMENT` if `stream` is neither true nor false.
pub(crate) fn is_wanted(uri: &Uri, headers: &HeaderMap) -> Result<bool> {
    let parameter = uri.query().and_then(|query| {
        query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .find_map(|(name, value)| (name == "stream").then_some(value))
    });
    let asked = match parameter {
        None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
        Some(_) => {
            let message = "the query parameter 'stream' must be 'true' or 'false'";
            return Err(Error::invalid_argument(message).with_public());
        }
    };
    let accepted = headers.get_all(header::ACCEPT).iter().any(|value| {
        value
            .to_str()
            .is_ok_and(|value| value.to_ascii_lowercase().contains("text/event-stream"))
    });
    Ok(asked || accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(uri: &str, accept: Option<&str>) -> Result<bool> {
        let mut headers = HeaderMap::new();
        if let Some(accept) = accept {
            headers.insert(header::ACCEPT, accept.parse().unwrap());
        }
        is_wanted(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn a_stream_is_asked_for_by_header_or_by_query() {
        for word in ["1", "t", "T", "true", "TRUE", "True"] {
            assert!(wanted(&format!("/a?x=1&stream={word}"), None).unwrap(), "{word}");
        }
        assert!(wanted("/a", Some("application/json, Text/Event-Stream;q=0.9")).unwrap());
        assert!(wanted("/a?stream=false", Some("text/event-stream")).unwrap());
        assert!(!wanted("/a?stream=0", Some("application/json")).unwrap());
        assert!(!wanted("/a", None).unwrap());
    }

    #[test]
    fn a_word_that_is_neither_true_nor_false_is_refused() {
        for word in ["yes", "", "tRUE"] {
            let error = wanted(&format!("/a?stream={word}"), None).unwrap_err();

            assert!(error.public_message().is_some());
        }
    }
}
