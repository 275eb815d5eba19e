//! Encodes log entries as events of a response.

use bytes::Bytes;
use everturn_core::stream_log::{Entries, Entry, StreamEvent};
use everturn_core::{Exposure, Result};
use futures::{Stream, StreamExt};

use crate::answer_form::AnswerForm;
use crate::event::Event;

/// How one client reads a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// Whether each event carries its position.
    pub(crate) ids: bool,
    pub(crate) form: AnswerForm,
    pub(crate) exposure: Exposure,
}

/// Encodes entries, each with whether it is a chunk. Entries that the client did not ask for are left out.
pub(crate) fn frames(entries: Entries, reading: Reading) -> impl Stream<Item = (Bytes, bool)> {
    let Reading { ids, form, exposure } = reading;
    entries.filter_map(move |entry| {
        let entry = match entry {
            Ok(Entry { position, event }) => form.recorded(event).map(|event| Ok(Entry { position, event })),
            Err(error) => Some(Err(error)),
        };
        std::future::ready(entry.map(|entry| {
            let is_chunk = entry.as_ref().is_ok_and(|entry| !entry.event.is_end());
            (frame(entry, ids, exposure), is_chunk)
        }))
    })
}

fn frame(entry: Result<Entry>, ids: bool, exposure: Exposure) -> Bytes {
    let Entry { position, event } = match entry {
        Ok(entry) => entry,
        // A failure of the log has no position: a client reattaches after the last event that has one.
        Err(error) => return Event::Error(error.to_wire(exposure)).encode(),
    };
    let data = match event {
        StreamEvent::Chunk(chunk) => Event::Message(chunk).encode(),
        StreamEvent::Done(output) => Event::Result(output).encode(),
        StreamEvent::Failed(error) => Event::Error(error.to_wire(exposure)).encode(),
    };
    if ids {
        [format!("id: {position}\n").as_bytes(), &data].concat().into()
    } else {
        data
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Error;
    use everturn_core::stream_log::{JsonText, Position};
    use serde_json::json;

    use super::*;

    fn entry(event: StreamEvent) -> Entry {
        Entry {
            position: Position::new(7),
            event,
        }
    }

    #[test]
    fn an_entry_is_written_as_the_event_it_was() {
        let value = json!({"text": "a\nb", "n": 1.10});
        let text = JsonText::of(&value).unwrap();

        let chunk = frame(
            Ok(entry(StreamEvent::Chunk(text.clone()))),
            false,
            Exposure::Public,
        );
        let output = frame(
            Ok(entry(StreamEvent::Done(text.clone()))),
            false,
            Exposure::Public,
        );

        assert_eq!(chunk, Event::Message(text.clone()).encode());
        assert_eq!(output, Event::Result(text).encode());
    }

    #[test]
    fn an_id_goes_before_the_data_and_private_text_stays_inside() {
        let error = Error::internal("row 17");

        let framed = frame(Ok(entry(StreamEvent::Failed(error))), true, Exposure::Public);

        assert_eq!(
            framed,
            "id: 7\ndata: {\"error\":{\"status\":\"INTERNAL\",\"message\":\"internal error\"}}\n\n"
        );
    }
}
