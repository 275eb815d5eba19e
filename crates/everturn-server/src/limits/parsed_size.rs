//! Estimating the memory of a request's values before they are parsed.

use everturn_core::{Error, Result};

use super::Limits;

/// The size of a text below which nothing is estimated: its values take little in any case.
const SMALL: usize = 64 * 1024;

/// About how many bytes a value takes, and how many more an object with members.
const VALUE: usize = 80;
const OBJECT: usize = 512;

impl Limits {
    /// Returns about how many bytes of memory the values of a JSON text will take; 0 for a small text.
    ///
    /// Fails with `INVALID_ARGUMENT` if they are more than allowed, naming the limit and how to raise it.
    pub(crate) fn check_parsed_size(&self, text: &[u8]) -> Result<usize> {
        if text.len() < SMALL {
            return Ok(0);
        }
        let bytes = estimate(text);
        if bytes > self.json_bytes {
            let message = format!(
                "the values of the request would take about {bytes} bytes of memory and may take {}: send fewer, or let the server allow \
                 more with Limits::json_bytes",
                self.json_bytes
            );
            return Err(Error::invalid_argument(message).with_public());
        }
        Ok(bytes)
    }
}

/// Counts the values of a text by the characters that begin or separate them, outside strings.
fn estimate(text: &[u8]) -> usize {
    let (mut bytes, mut values, mut objects) = (text.len(), 0_usize, 0_usize);
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => {
                while let Some(byte) = rest.next() {
                    match byte {
                        b'\\' => drop(rest.next()),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            b'{' => objects += 1,
            b'[' | b',' | b':' => values += 1,
            _ => {}
        }
    }
    bytes += VALUE * values + (VALUE + OBJECT) * objects;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_many_small_values_are_larger_than_long_strings() {
        let objects = format!("[{}]", vec![r#"{"":0}"#; 20_000].join(","));
        let string = format!(r#"["{}"]"#, r#"{[,:\"]}"#.repeat(20_000));

        assert!(estimate(objects.as_bytes()) > 70 * objects.len());
        assert!(estimate(string.as_bytes()) < string.len() + 200);
    }

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
