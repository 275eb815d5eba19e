//! Estimating the memory of values before they are parsed.

/// The approximate memory of a value in bytes, and the additional memory of an object with members.
const VALUE: usize = 80;
const OBJECT: usize = 512;

/// Returns the approximate memory in bytes that the values of a JSON text take once they are parsed. A text
/// of many small objects grows a hundredfold.
pub fn parsed_size(text: &[u8]) -> usize {
    // Values are counted by the characters that begin or separate them, outside strings.
    let (mut values, mut objects) = (0, 0);
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
    text.len() + VALUE * values + (VALUE + OBJECT) * objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_many_small_values_are_larger_than_long_strings() {
        let objects = format!("[{}]", vec![r#"{"":0}"#; 20_000].join(","));
        let string = format!(r#"["{}"]"#, r#"{[,:\"]}"#.repeat(20_000));

        assert!(parsed_size(objects.as_bytes()) > 70 * objects.len());
        assert!(parsed_size(string.as_bytes()) < string.len() + 200);
    }
}
