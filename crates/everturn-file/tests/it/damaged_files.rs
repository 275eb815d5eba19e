//! Using a store with any bytes in its files returns results or errors, and never panics.

use proptest::prelude::*;
use tokio::runtime::Builder;

use crate::fuzz_entry::use_files;

const ROW: &str = r#"{"snapshotId":"r","sessionId":"s","parentId":"p","createdAt":"2026-01-01T00:00:00Z","status":"pending","state":{"messages":[{"role":"user","content":[{"text":"leeks"}]}]}}"#;
const POINTER: &str = r#"{"currentSnapshotId":"r","currentCreatedAt":"2026-01-01T00:00:00Z"}"#;
const MARK: &str = r#"{"scope":"global","snapshotId":"r"}"#;

/// A text of which a part was overwritten, moved or lost.
fn damaged(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let replacement = prop_oneof![
        prop::sample::select(vec![
            &b"null"[..],
            b"1",
            b"\"\"",
            b"{}",
            b"\"../r\"",
            b"\"-9999-01-01T00:00:00Z\"",
            b"\xff",
            b""
        ])
        .prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    (0..=text.len(), 0..12_usize, replacement).prop_map(move |(at, length, replacement)| {
        let end = (at + length).min(text.len());
        [&text.as_bytes()[..at], &replacement, &text.as_bytes()[end..]].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_file_is_read_refused_or_passed_over(row in damaged(ROW), pointer in damaged(POINTER), mark in damaged(MARK)) {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();

        runtime.block_on(use_files(folder.path(), &row, &pointer, &mark));
    }
}
