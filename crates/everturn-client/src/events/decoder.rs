//! Assembling lines into records.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::lines::Lines;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One record of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The kind of the record on the wire.
    pub kind: RecordKind,
    /// The content of the record.
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

/// Decodes the records in the bytes of a stream as they arrive.
///
/// It accepts standard event streams and the variants that servers of this protocol send: `error:` lines, and
/// objects on separate lines without a field name. No published decoder accepts these variants. The
/// boundaries at which the bytes arrive make no difference.
#[derive(Debug)]
pub struct Decoder {
    lines: Lines,
    assembly: Assembly,
}

impl Decoder {
    /// Creates a decoder for one stream, whose lines and records are limited to `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            lines: Lines::new(max_bytes),
            assembly: Assembly {
                open: None,
                id: None,
                complete: VecDeque::new(),
                has_begun: false,
                max_bytes,
            },
        }
    }

    /// Adds bytes to the decoder; [`Decoder::pop`] then returns the complete records.
    ///
    /// # Errors
    /// If a line or a record is too large. Records completed before it remain; later ones are dropped.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        let Self { lines, assembly } = self;
        lines.feed(bytes, |line| assembly.take(line))
    }

    /// Ends the input. An incomplete record is accepted, because some servers omit the end of the last one.
    ///
    /// # Errors
    /// As [`Decoder::feed`].
    pub fn finish(&mut self) -> Result<(), TooLarge> {
        let rest = self.lines.rest();
        if !rest.is_empty() {
            self.assembly.take(&rest)?;
        }
        self.assembly.close();
        Ok(())
    }

    /// Removes and returns the next complete record.
    pub fn pop(&mut self) -> Option<Record> {
        self.assembly.complete.pop_front()
    }
}

/// The record that is being assembled, and the complete ones.
#[derive(Debug)]
struct Assembly {
    open: Option<(RecordKind, Vec<u8>)>,
    id: Option<Arc<str>>,
    complete: VecDeque<Record>,
    has_begun: bool,
    max_bytes: usize,
}

impl Assembly {
    fn take(&mut self, line: &[u8]) -> Result<(), TooLarge> {
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(stripped) if !self.has_begun => stripped,
            _ => line,
        };
        self.has_begun = true;
        if line.is_empty() {
            self.close();
            return Ok(());
        }
        // No field name begins with a brace, so this is an object without one.
        if line.starts_with(b"{") {
            self.close();
            self.open = Some((RecordKind::Data, line.to_vec()));
            self.close();
            return Ok(());
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => self.add(RecordKind::Data, value),
            b"error" => self.add(RecordKind::Error, value),
            b"id" => {
                let id = std::str::from_utf8(value)
                    .ok()
                    // An id that cannot be sent back in a header resets the position, as an empty one does.
                    .filter(|id| !id.is_empty() && !id.contains('\0'));
                self.id = id.map(Arc::from);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Adds a line to the open record, or starts a record; a line of the other kind ends the open one.
    fn add(&mut self, kind: RecordKind, line: &[u8]) -> Result<(), TooLarge> {
        if self.open.as_ref().is_some_and(|(open, _)| *open != kind) {
            self.close();
        }
        match &mut self.open {
            Some((_, data)) => {
                if data.len() + 1 + line.len() > self.max_bytes {
                    return Err(TooLarge);
                }
                data.push(b'\n');
                data.extend_from_slice(line);
            }
            None => self.open = Some((kind, line.to_vec())),
        }
        Ok(())
    }

    fn close(&mut self) {
        let Some((kind, data)) = self.open.take() else {
            return;
        };
        // Servers send records without content as keep-alives.
        if kind == RecordKind::Data && data.is_empty() {
            return;
        }
        let id = self.id.clone();
        self.complete.push_back(Record { kind, data, id });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(stream: &str) -> Vec<(RecordKind, String)> {
        let mut decoder = Decoder::new(1000);
        decoder.feed(stream.as_bytes()).unwrap();
        decoder.finish().unwrap();
        std::iter::from_fn(|| decoder.pop())
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
        decoder
            .feed(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n\nid\ndata: d\n\n")
            .unwrap();

        let ids: Vec<_> = std::iter::from_fn(|| decoder.pop())
            .map(|record| record.id)
            .collect();

        assert_eq!(ids, [Some("1".into()), Some("1".into()), Some("2".into()), None]);
    }

    #[test]
    fn a_record_that_is_too_large_ends_the_stream_after_the_records_before_it() {
        let mut long_line = Decoder::new(10);
        let mut long_record = Decoder::new(10);

        assert_eq!(long_line.feed(b"data: a\n\ndata: 12345678"), Err(TooLarge));
        assert_eq!(
            long_record.feed(b"data: a\n\ndata: 1\ndata: 2\ndata: 3\ndata: 4\ndata: 5\ndata: 6\n"),
            Err(TooLarge)
        );

        assert_eq!(long_line.pop().unwrap().data, b"a");
        assert_eq!(long_record.pop().unwrap().data, b"a");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_name() {
        assert_eq!(decoded("\u{feff}data: a\n\n"), [data("a")]);
    }
}
