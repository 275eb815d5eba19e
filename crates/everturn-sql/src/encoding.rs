//! The encoding of JSON text: long strings are cut out, and large values are compressed.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Display;

use everturn_core::{Error, Result};
use zstd::bulk::{Compressor, Decompressor};

use crate::body::strings;
use crate::{Fault, Outcome};

/// The compression level. Higher levels save about one percent more on values of a few kilobytes.
const LEVEL: i32 = 1;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// How a store encodes values.
///
/// Changing it affects new values only: a store reads values of every encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an encoding has no effect until it is set on the options of a store"]
pub struct Encoding {
    blob_threshold: usize,
    compress_over: Option<usize>,
}

impl Default for Encoding {
    fn default() -> Self {
        Self {
            blob_threshold: 16 * 1024,
            compress_over: Some(256),
        }
    }
}

/// A text without its long strings, and those strings, each with its offset in the remaining text.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut<'a> {
    /// The remaining text, which is valid JSON.
    pub text: Cow<'a, str>,
    /// The strings, still escaped.
    pub pieces: Vec<(usize, &'a str)>,
}

impl Encoding {
    everturn_core::setters! {
        /// Sets the length in bytes from which a string, such as an inline image, is stored once by its hash;
        /// 16 KiB by default.
        pub fn blob_threshold(mut self, bytes: usize) { self.blob_threshold = bytes }

        /// Sets the length in bytes from which a value is compressed if that makes it smaller; 256 by
        /// default.
        pub fn compress_over(mut self, bytes: usize) { self.compress_over = Some(bytes) }

        /// Turns compression off. Values that are already compressed can still be read.
        pub fn without_compression(mut self) { self.compress_over = None }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a `blob_threshold` of zero.
    pub fn check(&self) -> Result<()> {
        if self.blob_threshold == 0 {
            return Err(Error::invalid_argument(
                "blob_threshold is 0 and must be at least 1",
            ));
        }
        Ok(())
    }

    /// Cuts the long strings out of a JSON text.
    pub fn cut(self, text: &str) -> Cut<'_> {
        let mut cut = Cut {
            text: Cow::Borrowed(text),
            pieces: Vec::new(),
        };
        if text.len() < self.blob_threshold {
            return cut;
        }
        let (mut left, mut copied) = (String::new(), 0);
        for (start, end) in strings(text) {
            if end - start >= self.blob_threshold {
                left.push_str(&text[copied..start]);
                cut.pieces.push((left.len(), &text[start..end]));
                copied = end;
            }
        }
        if !cut.pieces.is_empty() {
            left.push_str(&text[copied..]);
            cut.text = Cow::Owned(left);
        }
        cut
    }

    /// Compresses a text; `None` if it is too small or compression saves less than a tenth of it.
    ///
    /// # Errors
    /// [`Fault::Refused`] if the compressor fails.
    pub fn compress(self, text: &str) -> Outcome<Option<Vec<u8>>> {
        if self.compress_over.is_none_or(|least| text.len() < least) {
            return Ok(None);
        }
        let frame = COMPRESSOR.with_borrow_mut(|compressor| {
            let compressor = match compressor {
                Some(compressor) => compressor,
                none => none.insert(Compressor::new(LEVEL)?),
            };
            compressor.compress(text.as_bytes())
        });
        let frame = frame.map_err(Error::from)?;
        Ok((frame.len() < text.len() - text.len() / 10).then_some(frame))
    }
}

/// Clears the buffer and decompresses a frame of up to `max_bytes` into it.
///
/// # Errors
/// [`Fault::Damaged`] for an invalid frame, and for one that claims to be larger.
pub fn decompress(frame: &[u8], max_bytes: u64, buffer: &mut Vec<u8>) -> Outcome<()> {
    let damaged = |why: &dyn Display| Fault::damaged(format!("a compressed body cannot be read: {why}"));
    let size = match zstd::zstd_safe::get_frame_content_size(frame) {
        Ok(Some(size)) if size <= max_bytes => usize::try_from(size).map_err(|error| damaged(&error))?,
        _ => return Err(damaged(&"its length is wrong")),
    };
    buffer.clear();
    buffer.reserve(size);
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let decompressor = match decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(Error::from)?),
        };
        decompressor
            .decompress_to_buffer(frame, buffer)
            .map_err(|error| damaged(&error))?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::{splice, write};

    fn encoding(blob_threshold: usize) -> Encoding {
        Encoding::default()
            .blob_threshold(blob_threshold)
            .compress_over(64)
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![".{0,40}", "[\"\\\\\n]{0,30}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            text.prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((".{0,30}", inner), 0..5)
                    .prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_cut_and_compressed_text_is_restored(value in value(), threshold in 1_usize..40) {
            let encoding = encoding(threshold);
            let text = write(&value).unwrap();

            let cut = encoding.cut(&text);
            let frame = encoding.compress(&cut.text).unwrap();

            let mut buffer = Vec::new();
            let left = match &frame {
                Some(frame) => {
                    decompress(frame, 1 << 30, &mut buffer).unwrap();
                    std::str::from_utf8(&buffer).unwrap()
                }
                None => &cut.text,
            };
            prop_assert!(serde_json::from_str::<Value>(left).is_ok(), "a text with cuts is still JSON");
            let pieces: Vec<_> = cut.pieces.iter().map(|(offset, piece)| (*offset, (*piece).to_owned())).collect();
            prop_assert_eq!(&splice(left, &pieces).unwrap(), &text);
            prop_assert!(cut.pieces.iter().all(|(_, piece)| piece.len() >= threshold));
        }
    }

    #[test]
    fn a_truncated_frame_is_damaged() {
        let text = "leeks and potatoes ".repeat(40);
        let mut frame = encoding(1_000_000).compress(&text).unwrap().unwrap();
        frame.truncate(frame.len() - 3);

        let outcome = decompress(&frame, 1 << 30, &mut Vec::new());

        assert!(matches!(outcome, Err(Fault::Damaged(_))), "{outcome:?}");
    }
}
