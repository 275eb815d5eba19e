//! The checksum of a file, written as whitespace after its JSON.
//!
//! Other runtimes read and rewrite the files. They keep unknown fields, so a checksum in a field would
//! outlive the content that it was computed from. Whitespace after a document means nothing to any parser and
//! is never kept. A file without a checksum is another runtime's or an earlier version's, and gets one when
//! it is next written.

/// The bytes of a seal: a line break, and a space or a tab for each bit.
const SEAL: usize = 33;

/// Appends the checksum to the content of a file.
pub(crate) fn seal(content: &mut Vec<u8>) {
    content.extend(seal_of(content));
}

/// Returns the checksum of a text as it is written after it.
fn seal_of(text: &[u8]) -> [u8; SEAL] {
    let checksum = crc32fast::hash(text);
    let mut seal = [b'\n'; SEAL];
    for (bit, byte) in seal[1..].iter_mut().enumerate() {
        *byte = if checksum >> (31 - bit) & 1 == 0 {
            b' '
        } else {
            b'\t'
        };
    }
    seal
}

/// The result of comparing a file with its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seal {
    /// The content is what was written.
    Whole,
    /// The file has no checksum.
    Absent,
    /// The content is not what was written.
    Broken,
}

impl Seal {
    pub(crate) fn of(content: &[u8]) -> Self {
        let text = content.trim_ascii_end();
        let after = &content[text.len()..];
        // Editors end a file with a line break.
        if after.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            return Self::Absent;
        }
        if after == seal_of(text) {
            Self::Whole
        } else {
            Self::Broken
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_text_is_whole_and_still_json() {
        let mut content = br#"{"soup": "leek"}"#.to_vec();
        seal(&mut content);

        assert_eq!(Seal::of(&content), Seal::Whole);
        assert!(serde_json::from_slice::<serde_json::Value>(&content).is_ok());
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let mut content = br#"{"soup": "leek"}"#.to_vec();
        seal(&mut content);

        for bit in 0..content.len() * 8 {
            let mut flipped = content.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let accepted = serde_json::from_slice::<serde_json::Value>(&flipped).is_ok()
                && Seal::of(&flipped) != Seal::Broken;
            assert!(!accepted, "bit {bit}: {:?}", String::from_utf8_lossy(&flipped));
        }
    }

    #[test]
    fn a_file_of_another_program_has_no_seal() {
        for content in ["{}", "{}\n", "{}\r\n", ""] {
            assert_eq!(Seal::of(content.as_bytes()), Seal::Absent, "{content:?}");
        }
    }
}
