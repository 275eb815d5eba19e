//! Splitting bytes into lines.

use super::TooLarge;

/// Splits bytes into lines, which end with LF, CRLF or CR, at any boundaries of the input.
///
/// Works on bytes, not on text, so that a character split over two inputs is complete before it is decoded.
#[derive(Debug)]
pub(super) struct Lines {
    partial: Vec<u8>,
    after_cr: bool,
    max_bytes: usize,
}

impl Lines {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            partial: Vec::new(),
            after_cr: false,
            max_bytes,
        }
    }

    /// Adds bytes and passes every complete line to `take`.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), TooLarge>,
    ) -> Result<(), TooLarge> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                return self.keep(bytes);
            };
            self.after_cr = bytes[end] == b'\r';
            let line = &bytes[..end];
            if self.partial.is_empty() {
                self.check(line.len())?;
                take(line)?;
            } else {
                self.keep(line)?;
                take(&std::mem::take(&mut self.partial))?;
            }
            bytes = &bytes[end + 1..];
        }
        Ok(())
    }

    /// Returns the last, unterminated line.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        self.check(self.partial.len() + bytes.len())?;
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn check(&self, bytes: usize) -> Result<(), TooLarge> {
        if bytes > self.max_bytes {
            return Err(TooLarge);
        }
        Ok(())
    }
}
