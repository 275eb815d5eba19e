//! JSON out of a model's text.

/// Extracts the first JSON object or array from a text in pieces. Models without structured output often put
/// it into a sentence or a code fence, and clients parse the whole text.
#[derive(Debug, Default)]
pub(crate) struct JsonCut {
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    is_over: bool,
}

impl JsonCut {
    /// Returns the part of a whole text that is JSON.
    pub(crate) fn of(text: &str) -> &str {
        Self::default().next(text)
    }

    /// Returns the part of the next piece that is JSON.
    pub(crate) fn next<'a>(&mut self, piece: &'a str) -> &'a str {
        if self.is_over {
            return "";
        }
        let start = match self.depth {
            0 => piece.find(['{', '[']).unwrap_or(piece.len()),
            _ => 0,
        };
        let piece = &piece[start..];
        for (index, byte) in piece.bytes().enumerate() {
            if self.is_escaped {
                self.is_escaped = false;
                continue;
            }
            match byte {
                b'\\' if self.is_in_string => self.is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                _ if self.is_in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.is_over = true;
                        return &piece[..=index];
                    }
                }
                _ => {}
            }
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_and_fences_around_a_value_are_cut_off() {
        for (text, json) in [
            (r#"{"a": [1, 2]}"#, r#"{"a": [1, 2]}"#),
            ("Sure!\n```json\n{\"a\": 1}\n```\nEnjoy.", r#"{"a": 1}"#),
            (r#"[{"a": "}\"]"}] and more {}"#, r#"[{"a": "}\"]"}]"#),
            (r#"{"cut": "off"#, r#"{"cut": "off"#),
            ("Let me look.", ""),
        ] {
            assert_eq!(JsonCut::of(text), json);
        }
    }

    proptest! {
        #[test]
        fn the_pieces_of_a_text_give_what_the_whole_gives(pieces in prop::collection::vec(r#"[a"{}\[\]\\ü]{0,4}"#, 0..12)) {
            let mut cut = JsonCut::default();
            let cut_in_pieces: String = pieces.iter().map(|piece| cut.next(piece)).collect();

            let whole = pieces.concat();
            prop_assert_eq!(cut_in_pieces, JsonCut::of(&whole));
        }
    }
}
