//! The limit on the size of a session's state.

use std::sync::Arc;

use everturn_ai::MessageStats;
use everturn_core::{Error, Reason, Result};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{Artifact, SessionState};

/// A session's state has grown beyond its agent's limit.
pub const STATE_TOO_LARGE: Reason = Reason::new("state-too-large");

/// The limit on the size of a session's state, unless the agent sets another.
pub(crate) const MAX_STATE_BYTES: u64 = 64 * 1024 * 1024;

/// Measures the state of one session against a limit. Documents that have not changed are not measured again.
#[derive(Debug)]
pub(crate) struct StateLimit {
    most: u64,
    measured: Mutex<Measured>,
}

#[derive(Debug, Default)]
struct Measured {
    custom: Option<(Arc<Value>, u64)>,
    artifacts: Option<(Arc<Vec<Artifact>>, u64)>,
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
        let bytes = state.messages.stats().bytes + self.documents(state);
        if bytes <= self.most {
            return Ok(());
        }
        let message = format!(
            "the session has {bytes} bytes and may have {}: begin another session, or let the agent keep more with \
             max_state_bytes",
            self.most
        );
        Err(Error::resource_exhausted(message)
            .with_reason(STATE_TOO_LARGE)
            .with_public())
    }

    fn documents(&self, state: &SessionState) -> u64 {
        let mut measured = self.measured.lock();
        let custom = state.custom.as_ref().map_or(0, |custom| {
            size_of(&mut measured.custom, custom, MessageStats::bytes_of_json)
        });
        custom
            + size_of(&mut measured.artifacts, &state.artifacts, |artifacts| {
                artifacts_bytes(artifacts)
            })
    }
}

/// Returns the size of a document, which is measured only if it is another than the one before.
fn size_of<T>(known: &mut Option<(Arc<T>, u64)>, document: &Arc<T>, measure: impl Fn(&T) -> u64) -> u64 {
    match known {
        Some((seen, bytes)) if Arc::ptr_eq(seen, document) => *bytes,
        _ => {
            let bytes = measure(document);
            *known = Some((Arc::clone(document), bytes));
            bytes
        }
    }
}

/// Returns about how many bytes artifacts have as JSON.
pub(crate) fn artifacts_bytes(artifacts: &[Artifact]) -> u64 {
    let bytes = |artifact: &Artifact| {
        let metadata = artifact.metadata.iter().flatten();
        let metadata: u64 = metadata
            .map(|(key, value)| key.len() as u64 + MessageStats::bytes_of_json(value))
            .sum();
        MessageStats::of_content(&artifact.parts).bytes + metadata
    };
    artifacts.iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use everturn_ai::{History, Message};
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
}
