//! The entry points of the fuzz target and the property tests: bytes are decoded whole and in pieces, with
//! the same result. Nothing may panic, and memory is bounded by the input.

#![allow(dead_code, reason = "each user drives its part of this")]

use everturn_client::framing;
use everturn_core::Status;
use everturn_core::sse::{Decoder, Record, RecordKind};

/// Decodes these pieces: the records, and whether something was too large.
pub(crate) fn decode(pieces: &[&[u8]], max_bytes: usize) -> (Vec<Record>, bool) {
    let mut decoder = Decoder::new(max_bytes).with_variants();
    let mut records = Vec::new();
    for piece in pieces {
        decoder.feed(piece);
        records.extend(std::iter::from_fn(|| decoder.pop().ok().flatten()));
        if decoder.pop().is_err() {
            return (records, true);
        }
    }
    decoder.finish();
    records.extend(std::iter::from_fn(|| decoder.pop().ok().flatten()));
    (records, decoder.pop().is_err())
}

/// Decodes `stream` whole, byte by byte, and cut at `cuts`.
pub(crate) fn assert_cuts_do_not_matter(stream: &[u8], cuts: &[usize], max_bytes: usize) {
    let whole = decode(&[stream], max_bytes);

    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(decode(&bytes, max_bytes), whole);

    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
    assert_eq!(decode(&pieces, max_bytes), whole);

    let size: usize = whole.0.iter().map(|record| record.data.len()).sum();
    assert!(size <= stream.len());
    assert!(whole.0.iter().all(|record| record.data.len() <= max_bytes));
}

/// Reads the body of a response in every supported way.
pub(crate) fn read_reply(code: u16, body: &[u8]) {
    for kind in [RecordKind::Data, RecordKind::Error] {
        let _ = framing::is_event(&Record {
            kind,
            name: String::new(),
            data: body.to_vec(),
            id: None,
        });
    }
    let _ = framing::is_frame(&String::from_utf8_lossy(body));
    let errors = [
        framing::result(body).err(),
        framing::refusal(code, false, body),
        framing::refusal(code, true, body),
    ];
    for error in errors.into_iter().flatten() {
        assert_ne!(error.status(), Status::Ok, "an error never claims success");
        assert!(!error.message().is_empty(), "an error says something");
    }
}
