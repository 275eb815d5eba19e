//! Reading any bytes of a client returns a value or an error, and never panics.

use proptest::prelude::*;

use crate::fuzz_entry::{read_body, read_frame, read_position, read_token, read_wish};

/// Pieces of which bodies and frames are made, and of which they should not be.
fn json() -> impl Strategy<Value = Vec<u8>> {
    let pieces: [&[u8]; 18] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"\"data\"",
        b"\"init\"",
        b"\"input\"",
        b"\"close\"",
        b"\"abort\"",
        b"true",
        b"null",
        b"-1e308",
        b"\"\\ud800\"",
        b" ",
        b"\xff",
        b"0",
    ];
    let piece = prop_oneof![
        8 => prop::sample::select(pieces.to_vec()).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    let broken = prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat());
    let envelope = ("[a-z]{0,4}", any::<f64>()).prop_map(|(text, number)| {
        serde_json::json!({ "data": { text: number }, "init": [number] })
            .to_string()
            .into_bytes()
    });
    prop_oneof![3 => broken, 1 => envelope]
}

proptest! {
    #[test]
    fn any_body_is_read_or_refused(bytes in json()) {
        read_body(&bytes);
    }

    #[test]
    fn any_frame_is_read_or_refused(bytes in json()) {
        read_frame(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_position_is_read_or_refused(id in prop::collection::vec(any::<u8>(), 0..300), position in "[0-9+ -]{0,24}|.{0,8}") {
        read_position(&id, position.as_bytes());
        read_position(b"abc", position.as_bytes());
    }

    #[test]
    fn any_wish_for_a_stream_is_read_or_refused(target in "/[a?&=%#ü]{0,8}(stream)?=?(true|0|x)?", accept in "[a-z/;,*]{0,24}") {
        read_wish(&target, accept.as_bytes());
    }

    #[test]
    fn no_forged_token_is_taken(header in json(), claims in json(), rest in prop::collection::vec(any::<u8>(), 0..70)) {
        let encoded = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let token = format!("Bearer {}.{}.{}", encoded(&header), encoded(&claims), encoded(&rest));

        read_token(&String::from_utf8_lossy(&header), token.as_bytes());
        read_token(r#"{"keys":[]}"#, &rest);
    }
}
