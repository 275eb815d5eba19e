//! Entry points of the fuzz targets and the property tests: arbitrary bytes in place of client input. Nothing
//! may panic, and parsed input must survive a round trip through the server's encoding.

#![allow(dead_code, reason = "each user drives its part of this")]

use everturn_server::decoders;

pub(crate) fn read_body(bytes: &[u8]) {
    let Some(understood) = decoders::body(bytes) else {
        return;
    };
    let again = decoders::body(understood.to_string().as_bytes());

    assert!(again.is_some(), "{understood}");
}

pub(crate) fn read_frame(text: &str) {
    if decoders::is_frame(text) {
        assert!(text.trim_start().starts_with('{'), "{text}");
    }
}

pub(crate) fn read_position(id: &[u8], position: &[u8]) {
    let headers = [("x-genkit-stream-id", id), ("last-event-id", position)];
    let Some((id, position)) = decoders::position(&headers) else {
        return;
    };
    let text = position.to_string();
    let headers = [
        ("x-genkit-stream-id", id.as_bytes()),
        ("last-event-id", text.as_bytes()),
    ];

    assert_eq!(decoders::position(&headers), Some((id.clone(), position)));
}

pub(crate) fn read_wish(target: &str, accept: &[u8]) {
    if decoders::wants_stream(target, accept) == Some(true) {
        let said = [target.as_bytes(), accept].concat().to_ascii_lowercase();
        let has = |word: &[u8]| said.windows(word.len()).any(|window| window == word);
        assert!(has(b"stream"), "nobody asked for a stream: {target}");
    }
}

/// A public key without a known private key.
const KEYS: &str =
    r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

pub(crate) fn read_token(keys: &str, authorization: &[u8]) {
    // Arbitrary bytes may be a valid key.
    let _ = decoders::caller(keys, authorization);

    assert_eq!(
        decoders::caller(KEYS, authorization),
        None,
        "a forged token is taken"
    );
}
