//! The limit on the size of a session's state.

use std::sync::Arc;

use everturn_ai::{MessageStats, json_heap_size};
use everturn_core::{Error, Reason, Result};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{Artifact, SessionState};

/// A session's state has grown beyond its agent's limit.
pub const STATE_TOO_LARGE: Reason = Reason::new("state-too-large");

/// The limit on the size of a session's state, unless the agent sets another.
pub(crate) const MAX_STATE_BYTES: u64 = 64 * 1024 * 1024;

/// How much memory a state may take for each byte of its limit. Text takes little more than its length, and a
/// JSON value of a few characters takes hundreds of bytes.
const MEMORY_PER_BYTE: u64 = 4;

/// Measures the state of one session against a limit. Documents that have not changed are not measured again.
#[derive(Debug)]
pub(crate) struct StateLimit {
    most: u64,
    measured: Mutex<Measured>,
}

#[derive(Debug, Default)]
struct Measured {
    custom: Option<(Arc<Value>, Size)>,
    artifacts: Option<(Arc<Vec<Artifact>>, Size)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Size {
    json: u64,
    memory: u64,
}

impl Size {
    fn new(json: u64, memory: usize) -> Self {
        let memory = memory as u64;
        Self { json, memory }
    }
}

impl StateLimit {
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most,
            measured: Mutex::default(),
        }
    }

    /// # Errors
    /// `RESOURCE_EXHAUSTED` with [`STATE_TOO_LARGE`] if the state is larger than the limit.
    pub(crate) fn check(&self, state: &SessionState) -> Result<()> {
        let messages = Size::new(state.messages.stats().bytes, state.messages.heap_size());
        let sizes = [messages, self.custom(state), self.artifacts(state)];
        let (json, memory) = sizes.iter().fold((0, 0), |(json, memory), size| {
            (json + size.json, memory + size.memory)
        });
        let most_memory = self.most.saturating_mul(MEMORY_PER_BYTE);
        let (has, may_have) = if json > self.most {
            (format!("{json} bytes"), self.most)
        } else if memory > most_memory {
            (format!("{memory} bytes of memory"), most_memory)
        } else {
            return Ok(());
        };
        let message = format!(
            "the session has {has} and may have {may_have}: begin another session, or let the agent keep more with \
             max_state_bytes",
        );
        Err(Error::resource_exhausted(message)
            .with_reason(STATE_TOO_LARGE)
            .with_public())
    }

    fn custom(&self, state: &SessionState) -> Size {
        let Some(custom) = &state.custom else {
            return Size::default();
        };
        size_of(&mut self.measured.lock().custom, custom, |custom| {
            Size::new(MessageStats::bytes_of_json(custom), json_heap_size(custom))
        })
    }

    fn artifacts(&self, state: &SessionState) -> Size {
        size_of(
            &mut self.measured.lock().artifacts,
            &state.artifacts,
            |artifacts| {
                let memory = artifacts.iter().map(Artifact::heap_size).sum();
                Size::new(artifacts_bytes(artifacts), memory)
            },
        )
    }
}

/// Returns the size of a document, which is measured only if it is another than the one before.
fn size_of<T>(known: &mut Option<(Arc<T>, Size)>, document: &Arc<T>, measure: impl Fn(&T) -> Size) -> Size {
    match known {
        Some((seen, size)) if Arc::ptr_eq(seen, document) => *size,
        _ => {
            let size = measure(document);
            *known = Some((Arc::clone(document), size));
            size
        }
    }
}

/// Returns about how many bytes artifacts have as JSON.
fn artifacts_bytes(artifacts: &[Artifact]) -> u64 {
    let bytes = |artifact: &Artifact| {
        let metadata = artifact.metadata.iter().flatten();
        let metadata: u64 = metadata
            .map(|(key, value)| key.len() as u64 + MessageStats::bytes_of_json(value))
            .sum();
        let name = artifact.name.as_ref().map_or(0, |name| name.len() as u64);
        MessageStats::of_content(&artifact.parts).bytes + name + metadata
    };
    artifacts.iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use everturn_ai::{History, Message, Part};
    use everturn_core::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_custom_state_and_artifacts_count_together() {
        let limit = StateLimit::new(10_000);
        let long = "x".repeat(4_000);
        let mut state = SessionState {
            messages: History::from_iter([Message::user(long.clone())]),
            custom: Some(Arc::new(json!({ "note": long }))),
            ..SessionState::default()
        };

        limit.check(&state).unwrap();
        state.artifacts = Arc::new(vec![Artifact::text("menu", long)]);
        let error = limit.check(&state).unwrap_err();

        assert_eq!(error.status(), Status::ResourceExhausted);
        assert!(
            error.public_message().unwrap().contains("max_state_bytes"),
            "{error}"
        );
    }

    #[test]
    fn small_values_count_by_the_memory_that_they_take() {
        let limit = StateLimit::new(10_000);
        let many: Vec<_> = (0..400).map(|_| json!({"": 0})).collect();
        let states = [
            SessionState {
                messages: History::from_iter([Message::user(Part::data(json!(many)))]),
                ..SessionState::default()
            },
            SessionState {
                custom: Some(Arc::new(json!(many))),
                ..SessionState::default()
            },
            SessionState {
                artifacts: Arc::new(vec![Artifact::new("menu", Part::data(json!(many)))]),
                ..SessionState::default()
            },
        ];

        for state in states {
            let error = limit.check(&state).unwrap_err();
            assert!(error.public_message().unwrap().contains("of memory"), "{error}");
        }
    }
}
