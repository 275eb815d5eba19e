//! Cutting content into chunks, as a model would stream it.

use std::time::Duration;

use everturn_ai::{ModelResponseChunk, Part, PartKind};
use everturn_core::{Emitter, Result};

/// Splits content into chunks: text word by word, each with the space after it, other parts whole.
pub(crate) fn chunks(content: &[Part]) -> Vec<ModelResponseChunk> {
    content
        .iter()
        .flat_map(|part| match part.kind() {
            PartKind::Text(text) => words(text).map(ModelResponseChunk::from).collect(),
            _ => vec![ModelResponseChunk::from(part.clone())],
        })
        .collect()
}

/// Sends content in chunks, pausing before each.
pub(crate) async fn stream(
    content: &[Part],
    pace: Duration,
    emitter: &Emitter<ModelResponseChunk>,
) -> Result<()> {
    if !emitter.is_streaming() {
        return Ok(());
    }
    for chunk in chunks(content) {
        if !pace.is_zero() {
            tokio::time::sleep(pace).await;
        }
        emitter.send(chunk).await?;
    }
    Ok(())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_is_cut_after_its_spaces() {
        assert_eq!(
            words("Leek soup,\nwarm").collect::<Vec<_>>(),
            ["Leek ", "soup,\n", "warm"]
        );
        assert_eq!(words("").count(), 0);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_between_words(text in ".*") {
            prop_assert_eq!(words(&text).collect::<String>(), text);
        }
    }
}
