//! Every published crate has metadata for docs.rs, and this crate re-exports all types that users need.

use std::fs;
use std::path::Path;

use everturn::agent::Timestamp;
use everturn::core::{BoxFuture, BoxStream, CancellationToken, Stream, async_trait};
use everturn::prelude::*;

#[test]
fn every_published_crate_documents_all_its_features() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut published = 0;
    for entry in fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else {
            continue;
        };
        if manifest.contains("publish = false") {
            continue;
        }
        // A program is documented by its `--help`.
        let Ok(library) = fs::read_to_string(folder.join("src/lib.rs")) else {
            continue;
        };
        published += 1;
        let at = folder.display();
        assert!(
            manifest.contains("[package.metadata.docs.rs]\nall-features = true"),
            "{at}"
        );
        assert!(
            manifest.contains("rustdoc-args = [\"--cfg\", \"docsrs\"]"),
            "{at}"
        );
        assert!(library.contains("#![cfg_attr(docsrs, feature(doc_cfg))]"), "{at}");
    }

    assert!(published >= 12, "{published}");
}

/// A trait with an async method, written like the framework's own traits.
#[async_trait]
trait Waiter {
    async fn wait(&self, until: &CancellationToken) -> Timestamp;
}

struct Patient;

#[async_trait]
impl Waiter for Patient {
    async fn wait(&self, until: &CancellationToken) -> Timestamp {
        until.cancelled().await;
        Timestamp::UNIX_EPOCH
    }
}

#[tokio::test]
async fn types_of_other_crates_in_signatures_are_reached_through_this_one() {
    let context = Context::new().with_cancellation(CancellationToken::new());
    context.cancellation().cancel();

    let waiting: BoxFuture<'_, Timestamp> = Box::pin(Patient.wait(context.cancellation()));
    let nothing: Option<BoxStream<'static, u8>> = None;

    assert_eq!(waiting.await, Timestamp::UNIX_EPOCH);
    assert!(
        nothing
            .as_ref()
            .is_none_or(|stream| stream.size_hint() == (0, None))
    );
    assert_eq!(everturn::serde_json::json!(1), json!(1));
    assert_eq!(everturn::server::axum::http::Method::GET.as_str(), "GET");
}
