//! What the fuzz target and the property tests drive: bytes are decoded whole and cut to pieces, and the same has to
//! come out. Nothing may panic, and nothing may grow beyond what arrived.

use everturn_client::framing::{Decoder, Record};

/// Decodes what arrives in these pieces: the records, and whether something was too large.
pub(crate) fn decode(pieces: &[&[u8]], max_bytes: usize) -> (Vec<Record>, bool) {
    let mut decoder = Decoder::new(max_bytes);
    let mut records = Vec::new();
    for piece in pieces {
        let fed = decoder.feed(piece);
        records.extend(std::iter::from_fn(|| decoder.pop()));
        if fed.is_err() {
            return (records, true);
        }
    }
    let finished = decoder.finish();
    records.extend(std::iter::from_fn(|| decoder.pop()));
    (records, finished.is_err())
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
