//! The streams that adapters write to the stream log.

use std::sync::Arc;

use everturn_core::stream_log::{StreamKey, StreamLog, StreamSubject};
use everturn_core::{Context, Scope};

/// The stream log of a server; an extension of the context in which adapters handle requests.
#[derive(Debug, Clone)]
pub struct ServerStreamLog(pub(crate) Arc<dyn StreamLog>);

impl ServerStreamLog {
    /// Returns the log of the server that serves a call with this context; `None` if the server has no log.
    pub fn of(context: &Context) -> Option<Arc<dyn StreamLog>> {
        let log = context.extension::<Self>()?;
        Some(Arc::clone(&log.0))
    }
}

/// Names the streams of one caller and one protocol in a stream log. Other callers cannot name them.
#[derive(Debug, Clone)]
pub struct CallerStreams {
    protocol: &'static str,
    scope: Scope,
}

impl CallerStreams {
    /// Returns the streams of the caller whose call has this context.
    pub fn of(protocol: &'static str, context: &Context) -> Self {
        let scope = context.extension::<Scope>();
        Self {
            protocol,
            scope: scope.map(|scope| Scope::clone(&scope)).unwrap_or_default(),
        }
    }

    /// Returns the key of a stream that is erased with the caller's sessions.
    pub fn key(&self, kind: &str, id: &str) -> StreamKey {
        let scope = self.scope.as_str();
        StreamKey::new(format!("{scope}/{}/{kind}", self.protocol), id)
            .owned_by(scope)
            .about(StreamSubject::tenant(scope))
    }

    /// Returns the subject of streams that are erased with a session.
    pub fn session(&self, id: &str) -> StreamSubject {
        StreamSubject::session(self.scope.as_str(), id)
    }
}
