//! A decoder for server-sent events.
//!
//! Hand-written, because providers deviate from the standard in ways that no published crate accepts: the
//! last event may lack its empty line, comments occur inside events, and lines may contain an image and must
//! still be limited.

/// The longest line: images and audio are sent in one line.
const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    /// The value of `event:`. It is a hint: the type in the JSON decides.
    pub(crate) name: String,
    /// The values of `data:`, joined by line feeds.
    pub(crate) data: Vec<u8>,
}

/// A line or an event is longer than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Decodes events from bytes, however the bytes are split.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    /// The processed part of the buffer.
    start: usize,
    /// The part of the buffer without a line end.
    scanned: usize,
    /// Whether the last line ended with CR, which LF may complete.
    skips_line_feed: bool,
    has_begun: bool,
    open: Event,
    has_data: bool,
}

impl Decoder {
    /// Appends bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete event, if there is one yet.
    ///
    /// # Errors
    /// If a line or an event is too long.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, TooLong> {
        while let Some(line) = self.line()? {
            if let Some(event) = self.take(line)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Returns the incomplete event at the end of the stream.
    ///
    /// # Errors
    /// If it is too long.
    pub(crate) fn finish(&mut self) -> Result<Option<Event>, TooLong> {
        let rest = self.start..self.buffer.len();
        self.start = self.buffer.len();
        self.scanned = self.start;
        if !rest.is_empty()
            && let Some(event) = self.take(rest)?
        {
            return Ok(Some(event));
        }
        Ok(self.close())
    }

    /// Returns the range of the next complete line.
    fn line(&mut self) -> Result<Option<std::ops::Range<usize>>, TooLong> {
        if self.skips_line_feed && self.start < self.buffer.len() {
            self.skips_line_feed = false;
            if self.buffer[self.start] == b'\n' {
                self.start += 1;
                self.scanned = self.scanned.max(self.start);
            }
        }
        let unseen = &self.buffer[self.scanned..];
        let Some(length) = unseen.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            self.scanned = self.buffer.len();
            return if self.scanned - self.start > MAX_LINE_BYTES {
                Err(TooLong)
            } else {
                Ok(None)
            };
        };
        let end = self.scanned + length;
        let line = self.start..end;
        self.skips_line_feed = self.buffer[end] == b'\r';
        self.start = end + 1;
        self.scanned = self.start;
        Ok(Some(line))
    }

    /// Processes a line, and returns the event that it ends.
    fn take(&mut self, line: std::ops::Range<usize>) -> Result<Option<Event>, TooLong> {
        let mut line = &self.buffer[line];
        if !self.has_begun {
            self.has_begun = true;
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(self.close());
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => {
                let data = &mut self.open.data;
                if data.len() + value.len() > MAX_LINE_BYTES {
                    return Err(TooLong);
                }
                if self.has_data {
                    data.push(b'\n');
                }
                data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => self.open.name = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
        Ok(None)
    }

    fn close(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.open);
        let has_data = std::mem::take(&mut self.has_data);
        // An event without data is a keep-alive.
        (has_data && !event.data.is_empty()).then_some(event)
    }
}

/// Decodes the JSON events of a stream that arrives in pieces.
#[cfg(test)]
pub(crate) fn values<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<serde_json::Value> {
    let mut decoder = Decoder::default();
    let mut values = Vec::new();
    for piece in pieces {
        decoder.feed(piece);
        while let Ok(Some(event)) = decoder.next() {
            values.push(serde_json::from_slice(&event.data).expect("the events of the stream are JSON"));
        }
    }
    values
}

/// Splits a stream into pieces of these sizes, repeatedly.
#[cfg(test)]
pub(crate) fn pieces<'a>(stream: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = stream;
    sizes.iter().cycle().map_while(move |size| {
        let (piece, others) = rest.split_at_checked(*size).unwrap_or((rest, &[]));
        rest = others;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<(String, String)> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            decoder.feed(piece.as_ref());
            while let Some(event) = decoder.next().unwrap() {
                events.push(event);
            }
        }
        events.extend(decoder.finish().unwrap());
        let text = |event: Event| (event.name, String::from_utf8(event.data).unwrap());
        events.into_iter().map(text).collect()
    }

    fn data(text: &str) -> Vec<String> {
        decoded([text]).into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn every_way_to_end_a_line_is_one() {
        let stream = "data: a\r\n\r\ndata: b\r\rdata: c\n\ndata: d\r\n\n";

        assert_eq!(data(stream), ["a", "b", "c", "d"]);
    }

    #[test]
    fn lines_of_one_event_are_joined_and_others_skipped() {
        let stream =
            ": comment\nevent: x\n:in between\nid: 1\nretry: 2\nother\ndata:a\ndata:  b\n\ndata\n\ndata:\n\n";

        assert_eq!(decoded([stream]), [("x".to_owned(), "a\n b".to_owned())]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_the_last_event_needs_no_end() {
        assert_eq!(data("\u{feff}data: a\n\ndata: b"), ["a", "b"]);
    }

    #[test]
    fn a_line_separator_of_unicode_ends_no_line() {
        assert_eq!(data("data: a\u{2028}b\n\n"), ["a\u{2028}b"]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut decoder = Decoder::default();
        decoder.feed(&vec![b'a'; MAX_LINE_BYTES + 1]);

        assert_eq!(decoder.next(), Err(TooLong));
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(
            lines in prop::collection::vec("(data: ?|event: |: |)[a-zäß€🥕]{0,6}(\n|\r\n|\r|\n\n|\r\n\r\n)", 0..20),
            cuts in prop::collection::vec(1_usize..9, 1..40),
        ) {
            let stream = lines.concat().into_bytes();

            prop_assert_eq!(decoded(pieces(&stream, &cuts)), decoded([&stream]));
        }
    }
}
