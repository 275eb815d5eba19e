//! Names in the stream log.

use everturn_agent::store::Scope;
use everturn_core::Context;
use everturn_core::stream_log::{StreamKey, StreamSubject};

/// The streams of one caller: nobody finds those of another.
#[derive(Debug, Clone)]
pub(crate) struct CallersStreams {
    scope: Scope,
}

impl CallersStreams {
    pub(crate) fn of(context: &Context) -> Self {
        let scope = context.extension::<Scope>();
        Self {
            scope: scope.map(|scope| Scope::clone(&scope)).unwrap_or_default(),
        }
    }

    /// Returns the key of a stream that is erased with the caller's sessions.
    pub(crate) fn key(&self, kind: &str, id: &str) -> StreamKey {
        StreamKey::new(format!("{}/openai/{kind}", self.scope.as_str()), id)
            .owned_by(self.scope.as_str())
            .about(StreamSubject::tenant(self.scope.as_str()))
    }

    /// Returns the subject of streams that are erased with a session.
    pub(crate) fn session(&self, id: &str) -> StreamSubject {
        StreamSubject::session(self.scope.as_str(), id)
    }
}
