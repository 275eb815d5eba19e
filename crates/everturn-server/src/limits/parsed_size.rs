//! Estimating the memory of a request's values before they are parsed.

use bytes::Bytes;
use everturn_core::offload::{HEAVY, offload, parsed_size};
use everturn_core::{Error, Result};

use super::Limits;

/// The size of a text below which nothing is estimated: its values take little in any case.
const SMALL: usize = 64 * 1024;

impl Limits {
    /// As [`Limits::check_parsed_size`], on a thread that may be held up if the text is long.
    pub(crate) async fn parsed_size(&self, text: &Bytes) -> Result<usize> {
        if text.len() <= HEAVY {
            return self.check_parsed_size(text);
        }
        let (text, limits) = (text.clone(), self.clone());
        offload(move || limits.check_parsed_size(&text)).await
    }

    /// Returns about how many bytes of memory the values of a JSON text will take; 0 for a small text.
    ///
    /// Fails with `INVALID_ARGUMENT` if they are more than allowed, naming the limit and how to raise it.
    fn check_parsed_size(&self, text: &[u8]) -> Result<usize> {
        if text.len() < SMALL {
            return Ok(0);
        }
        let bytes = parsed_size(text);
        if bytes > self.json_bytes {
            let message = format!(
                "the values of the request would take about {bytes} bytes of memory and may take {}: send fewer, \
                 or let the server allow more with Limits::json_bytes",
                self.json_bytes
            );
            return Err(Error::invalid_argument(message).with_public());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_would_take_too_much_is_refused_and_the_limit_named() {
        let limits = Limits::default().json_bytes(1_000_000);
        let objects = format!("[{}]", vec![r#"{"":0}"#; 20_000].join(","));

        let error = limits.check_parsed_size(objects.as_bytes()).unwrap_err();

        assert!(
            error.public_message().unwrap().contains("Limits::json_bytes"),
            "{error}"
        );
        assert_eq!(
            limits.check_parsed_size(&objects.as_bytes()[..60_000]).unwrap(),
            0
        );
        let text = vec![b'x'; 500_000];
        assert_eq!(limits.check_parsed_size(&text).unwrap(), 500_000);
    }
}
