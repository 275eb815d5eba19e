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

/// Decodes hexadecimal digits into text; returns `None` if they are not the digits of UTF-8 text.
pub fn text_of_hex(digits: &str) -> Option<String> {
    // `from_str_radix` accepts a sign.
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let bytes: Option<Vec<u8>> = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_of_digits_are_decoded() {
        assert_eq!(text_of_hex(&hex("é".as_bytes())).as_deref(), Some("é"));
        for invalid in ["+5", "a", "zz", "ff"] {
            assert_eq!(text_of_hex(invalid), None, "{invalid}");
        }
    }
}
