//! A model that streams without end is not kept in memory.

use everturn_ai::{Generate, ModelInfo, ModelResponse, ModelResponseChunk, define_model};
use everturn_core::Registry;

use crate::alone;

const CHUNKS: usize = 100_000;
const CHUNK_BYTES: usize = 4096;

/// The memory of the process, where the system reports it.
fn resident_bytes() -> Option<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split_whitespace().nth(1)?.parse::<usize>().ok()? * 4096)
}

fn talkative() -> (Registry, Generate) {
    let registry = Registry::new();
    define_model(
        &registry,
        "talker",
        ModelInfo::default(),
        |_request, emitter, _context| async move {
            let text = "x".repeat(CHUNK_BYTES);
            for _ in 0..CHUNKS {
                emitter.send(ModelResponseChunk::from(text.as_str())).await?;
            }
            Ok(ModelResponse::text_of("that was all"))
        },
    )
    .unwrap();
    let generate = Generate::new(&registry).model("talker").prompt("go on");
    (registry, generate)
}

#[tokio::test]
async fn a_hundred_thousand_chunks_take_no_more_memory_than_a_few() {
    let _alone = alone();
    let (_registry, generate) = talkative();
    let mut stream = generate.stream();
    stream.next().await.unwrap().unwrap();
    let before = resident_bytes();

    let mut received = 1;
    while let Some(chunk) = stream.next().await {
        received += usize::from(chunk.unwrap().text().len() == CHUNK_BYTES);
    }

    assert_eq!(received, CHUNKS);
    assert_eq!(stream.response().await.unwrap().text(), "that was all");
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        let grown = after.saturating_sub(before);
        assert!(
            grown < CHUNKS * CHUNK_BYTES / 20,
            "the process grew by {grown} bytes"
        );
    }
}

#[tokio::test]
async fn the_model_waits_for_a_consumer_that_does_not_read() {
    let _alone = alone();
    let (_registry, generate) = talkative();
    let mut stream = generate.stream();

    let first = stream.next().await.unwrap().unwrap();
    tokio::task::yield_now().await;
    let response = stream.response().await.unwrap();

    assert_eq!(first.index, Some(0));
    assert_eq!(response.text(), "that was all");
}
