//! Decoding server-sent events, for clients of models and of remote agents.
//!
//! Hand-written, because servers deviate from the standard in ways that no published decoder accepts: the
//! last event may lack its empty line, comments occur inside events, errors have lines of their own, and
//! lines may contain an image and must still be limited.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One record of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The kind of the record on the wire.
    pub kind: RecordKind,
    /// The value of `event:`; empty if the record has none.
    pub name: String,
    /// The content of the record: the values of its lines, joined by line feeds.
    pub data: Vec<u8>,
    /// The last event id, in this record or an earlier one.
    pub id: Option<Arc<str>>,
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// `data:`, or no field name.
    Data,
    /// `error:`.
    Error,
}

/// The error for a line or a record that is larger than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event is larger than allowed")
    }
}

impl std::error::Error for TooLarge {}

/// Decodes the records in the bytes of a stream as they arrive. The boundaries at which the bytes arrive make
/// no difference.
#[derive(Debug)]
pub struct Decoder {
    /// The last line, which is not terminated. A character that is split over two inputs is complete in it.
    partial: Vec<u8>,
    after_cr: bool,
    assembly: Assembly,
}

/// The record that is being assembled, and the complete ones.
#[derive(Debug)]
struct Assembly {
    open: Option<(RecordKind, Vec<u8>)>,
    name: String,
    id: Option<Arc<str>>,
    complete: VecDeque<Record>,
    has_begun: bool,
    /// Whether a line or a record was too large. No line after it is taken.
    is_too_large: bool,
    max_bytes: usize,
    accepts_variants: bool,
}

impl Decoder {
    /// Creates a decoder for one stream, whose lines and records are limited to `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            partial: Vec::new(),
            after_cr: false,
            assembly: Assembly {
                open: None,
                name: String::new(),
                id: None,
                complete: VecDeque::new(),
                has_begun: false,
                is_too_large: false,
                max_bytes,
                accepts_variants: false,
            },
        }
    }

    /// Also accepts the variants that servers of Genkit's protocol send: `error:` lines, and objects on
    /// separate lines without a field name.
    #[must_use]
    pub fn with_variants(mut self) -> Self {
        self.assembly.accepts_variants = true;
        self
    }

    /// Adds bytes to the decoder; [`Decoder::pop`] then returns the complete records.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.partial.len() + piece.len() > self.assembly.max_bytes {
                self.assembly.is_too_large = true;
            }
            if self.assembly.is_too_large {
                return;
            }
            let Some(end) = end else {
                self.partial.extend_from_slice(piece);
                return;
            };
            self.after_cr = bytes[end] == b'\r';
            if self.partial.is_empty() {
                self.assembly.take(piece);
            } else {
                self.partial.extend_from_slice(piece);
                self.assembly.take(&std::mem::take(&mut self.partial));
            }
            bytes = &bytes[end + 1..];
        }
    }

    /// Ends the input. An incomplete record is accepted, because some servers omit the end of the last one.
    pub fn finish(&mut self) {
        let rest = std::mem::take(&mut self.partial);
        if self.assembly.is_too_large {
            return;
        }
        if !rest.is_empty() {
            self.assembly.take(&rest);
        }
        self.assembly.close();
    }

    /// Removes and returns the next complete record.
    ///
    /// # Errors
    /// If a line or a record is too large, after the records that were completed before it.
    pub fn pop(&mut self) -> Result<Option<Record>, TooLarge> {
        match self.assembly.complete.pop_front() {
            None if self.assembly.is_too_large => Err(TooLarge),
            record => Ok(record),
        }
    }
}

impl Assembly {
    fn take(&mut self, line: &[u8]) {
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(stripped) if !self.has_begun => stripped,
            _ => line,
        };
        self.has_begun = true;
        if line.is_empty() {
            return self.close();
        }
        // No field name begins with a brace, so this is an object without one.
        if self.accepts_variants && line.starts_with(b"{") {
            self.close();
            self.open = Some((RecordKind::Data, line.to_vec()));
            return self.close();
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => self.add(RecordKind::Data, value),
            b"error" if self.accepts_variants => self.add(RecordKind::Error, value),
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            b"id" => {
                let id = std::str::from_utf8(value)
                    .ok()
                    // An id that cannot be sent back in a header resets the position, as an empty one does.
                    .filter(|id| !id.is_empty() && !id.contains('\0'));
                self.id = id.map(Arc::from);
            }
            _ => {}
        }
    }

    /// Adds a line to the open record, or starts a record; a line of the other kind ends the open one.
    fn add(&mut self, kind: RecordKind, line: &[u8]) {
        if self.open.as_ref().is_some_and(|(open, _)| *open != kind) {
            self.close();
        }
        match &mut self.open {
            Some((_, data)) if data.len() + 1 + line.len() > self.max_bytes => {
                self.open = None;
                self.is_too_large = true;
            }
            Some((_, data)) => {
                data.push(b'\n');
                data.extend_from_slice(line);
            }
            None => self.open = Some((kind, line.to_vec())),
        }
    }

    fn close(&mut self) {
        let name = std::mem::take(&mut self.name);
        let Some((kind, data)) = self.open.take() else {
            return;
        };
        // Servers send records without content as keep-alives.
        if kind == RecordKind::Data && data.is_empty() {
            return;
        }
        let id = self.id.clone();
        self.complete.push_back(Record { kind, name, data, id });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(stream: &str) -> Vec<(RecordKind, String)> {
        let mut decoder = Decoder::new(1000).with_variants();
        decoder.feed(stream.as_bytes());
        decoder.finish();
        std::iter::from_fn(|| decoder.pop().unwrap())
            .map(|record| (record.kind, String::from_utf8(record.data).unwrap()))
            .collect()
    }

    fn data(text: &str) -> (RecordKind, String) {
        (RecordKind::Data, text.to_owned())
    }

    #[test]
    fn lines_of_one_record_are_joined_and_unknown_ones_ignored() {
        let records = decoded(": hello\nevent: x\nretry: 10\ndata: a\ndata:b\ndata:  c\n\nEND\n\ndata\n\n");

        assert_eq!(records, [data("a\nb\n c")]);
    }

    #[test]
    fn every_way_to_end_a_line_is_one() {
        assert_eq!(
            decoded("data: a\r\n\r\ndata: b\r\rdata: c\n\ndata: d\r\n\n"),
            [data("a"), data("b"), data("c"), data("d")]
        );
    }

    #[test]
    fn an_object_on_a_line_of_its_own_is_a_record() {
        assert_eq!(
            decoded("{\"a\":1}\n{\"b\":2}\ndata: c\n{\"d\":4}"),
            [data("{\"a\":1}"), data("{\"b\":2}"), data("c"), data("{\"d\":4}")]
        );
    }

    #[test]
    fn an_error_line_is_an_error_even_without_a_blank_line_before_it() {
        assert_eq!(
            decoded("data: a\nerror: b\n\n"),
            [data("a"), (RecordKind::Error, "b".to_owned())]
        );
    }

    #[test]
    fn an_id_holds_until_the_next_one() {
        let mut decoder = Decoder::new(100);
        decoder.feed(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n\nid\ndata: d\n\n");

        let ids: Vec<_> = std::iter::from_fn(|| decoder.pop().unwrap())
            .map(|record| record.id)
            .collect();

        assert_eq!(ids, [Some("1".into()), Some("1".into()), Some("2".into()), None]);
    }

    #[test]
    fn a_record_that_is_too_large_ends_the_stream_after_the_records_before_it() {
        let mut long_line = Decoder::new(10);
        let mut long_record = Decoder::new(10);

        long_line.feed(b"data: a\n\ndata: 12345678");
        long_record.feed(b"data: a\n\ndata: 1\ndata: 2\ndata: 3\ndata: 4\ndata: 5\ndata: 6\n");

        for mut decoder in [long_line, long_record] {
            assert_eq!(decoder.pop().unwrap().unwrap().data, b"a");
            assert_eq!(decoder.pop(), Err(TooLarge));
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_name() {
        assert_eq!(decoded("\u{feff}data: a\n\n"), [data("a")]);
    }

    #[test]
    fn variants_are_no_part_of_the_standard() {
        let mut decoder = Decoder::new(100);

        decoder.feed(b"{\"a\":1}\nerror: b\nevent: x\ndata: c\n\ndata: d\n\n");

        let events = std::iter::from_fn(|| decoder.pop().unwrap());
        let events: Vec<_> = events.map(|record| (record.name, record.data)).collect();
        assert_eq!(
            events,
            [("x".to_owned(), b"c".to_vec()), (String::new(), b"d".to_vec())]
        );
    }
}
