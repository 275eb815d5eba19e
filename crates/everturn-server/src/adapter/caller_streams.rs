//! The streams that adapters write to the stream log.

use std::sync::Arc;

use everturn_core::stream_log::{JsonText, StreamKey, StreamLog, StreamSubject, StreamWriter};
use everturn_core::{Context, Scope};
use serde::Serialize;

/// The stream log of a server; an extension of the context in which adapters handle requests.
#[derive(Debug, Clone)]
pub struct ServerStreamLog(pub(crate) Arc<dyn StreamLog>);

impl ServerStreamLog {
    /// Returns the log of the server that serves a call with this context; `None` if the server has no log.
    pub fn of(context: &Context) -> Option<Arc<dyn StreamLog>> {
        let log = context.extension::<Self>()?;
        Some(Arc::clone(&log.0))
    }

    /// Returns the log of the server that serves a call with this context, or else the adapter's own.
    pub fn or_own(own: &Arc<dyn StreamLog>, context: &Context) -> Arc<dyn StreamLog> {
        Self::of(context).unwrap_or_else(|| Arc::clone(own))
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

/// A stream that an adapter records in the log. A log without room ends the recording and not the turn.
#[derive(Debug, Default)]
pub struct RecordedStream(Option<Box<dyn StreamWriter>>);

impl RecordedStream {
    /// Opens a stream, which is not recorded if the log has no room for it.
    pub async fn open(log: &dyn StreamLog, key: &StreamKey) -> Self {
        Self(log.open(key).await.ok())
    }

    /// Returns whether the stream is recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Records events.
    pub async fn append(&mut self, events: impl Iterator<Item = JsonText> + Send) {
        for event in events {
            let Some(writer) = &self.0 else { return };
            if writer.append(event).await.is_err() {
                self.0 = None;
            }
        }
    }

    /// Ends the stream. A stream that is dropped before counts as broken off.
    pub async fn finish(&mut self, end: &(impl Serialize + Sync)) {
        if let (Some(writer), Ok(end)) = (self.0.take(), JsonText::of(end)) {
            // The log has every event; only the mark of the end is lost.
            let _ = writer.finish(Ok(end)).await;
        }
    }
}
