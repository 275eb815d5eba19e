//! Hexadecimal digits, which encode texts in the ids of adapters.

use std::fmt::Write;

/// Returns bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the text whose bytes these digits are; `None` if they are those of no text.
pub fn text_of_hex(digits: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    String::from_utf8(bytes?).ok()
}
