//! The records of a stream do not depend on the boundaries at which its bytes arrive.

use proptest::prelude::*;

use crate::fuzz_entry::{assert_cuts_do_not_matter, decode, read_reply};

/// Pieces of valid and invalid streams.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(b"data: ".to_vec()),
        2 => Just(b"error: ".to_vec()),
        1 => Just(b"id: 7".to_vec()),
        1 => Just(b"id".to_vec()),
        1 => Just(b": comment".to_vec()),
        1 => Just(b"event:x".to_vec()),
        1 => Just("\u{feff}".as_bytes().to_vec()),
        3 => Just(br#"{"message":{"text":"gr"#.to_vec()),
        3 => Just("ü\u{1F600}".as_bytes().to_vec()),
        4 => Just(br#""}}"#.to_vec()),
        6 => Just(b"\n".to_vec()),
        3 => Just(b"\r\n".to_vec()),
        2 => Just(b"\r".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn cuts_do_not_matter(stream in stream(), cuts in prop::collection::vec(0_usize..300, 0..20), limit in 1_usize..60) {
        assert_cuts_do_not_matter(&stream, &cuts, limit);
        assert_cuts_do_not_matter(&stream, &cuts, usize::MAX);
    }

    #[test]
    fn what_was_written_is_read(texts in prop::collection::vec("[^\r\n\u{0}]{1,20}", 0..10), end in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")]) {
        let stream = texts.iter().map(|text| format!("data: {text}{end}{end}")).collect::<Vec<_>>().concat();

        let (records, overflow) = decode(&[stream.as_bytes()], usize::MAX);

        prop_assert!(!overflow);
        let read: Vec<String> = records.into_iter().map(|record| String::from_utf8(record.data).unwrap()).collect();
        prop_assert_eq!(read, texts);
    }

    #[test]
    fn any_reply_is_read_or_refused(code in 100_u16..1000, body in stream(), error in "[\\[{}\\]:, a\"0]{0,16}") {
        read_reply(code, &body);
        read_reply(code, format!(r#"{{"error":{error},"status":{error}}}"#).as_bytes());
        read_reply(code, format!(r#"{{"error":{{"status":"OK","message":"{error}"}}}}"#).as_bytes());
    }
}
