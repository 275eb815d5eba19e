//! Spans as listeners receive them.

use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use everturn_core::{ListeningToSpans, SpanId, SpanListener, SpanRecord, listen_to_spans};
use serde_json::Value;

/// Observes every span of this thread until it is dropped. Each test runs on a separate thread.
pub(crate) struct Traces {
    received: Arc<Received>,
    _listening: ListeningToSpans,
}

struct Received {
    thread: ThreadId,
    ended: Mutex<Vec<Arc<SpanRecord>>>,
}

impl SpanListener for Received {
    fn started(&self, _span: &SpanRecord) {}

    fn ended(&self, span: &Arc<SpanRecord>) {
        if std::thread::current().id() == self.thread {
            self.ended
                .lock()
                .expect("no test panics here")
                .push(Arc::clone(span));
        }
    }
}

impl Traces {
    pub(crate) fn listen() -> Self {
        let received = Arc::new(Received {
            thread: std::thread::current().id(),
            ended: Mutex::default(),
        });
        Self {
            _listening: listen_to_spans(received.clone()),
            received,
        }
    }

    /// The spans that have ended, in the order they did.
    pub(crate) fn ended(&self) -> Vec<Exported> {
        let ended = self.received.ended.lock().expect("no test panics here");
        ended.iter().map(|span| Exported::new(span)).collect()
    }

    /// The one ended span of that name.
    #[track_caller]
    pub(crate) fn span(&self, name: &str) -> Exported {
        let mut named = self.ended();
        named.retain(|span| span.name == name);
        assert_eq!(named.len(), 1, "spans named '{name}'");
        named.remove(0)
    }
}

/// A span that has ended.
#[derive(Debug)]
pub(crate) struct Exported {
    pub(crate) name: String,
    pub(crate) id: SpanId,
    pub(crate) parent: Option<SpanId>,
    pub(crate) failure: Option<String>,
    attributes: Vec<(String, String)>,
}

impl Exported {
    fn new(span: &SpanRecord) -> Self {
        let attributes = span.attributes.iter().map(|(name, value)| {
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            (name.clone(), text)
        });
        Self {
            attributes: attributes.collect(),
            name: span.name.clone(),
            id: span.ids.span,
            parent: span.parent,
            failure: span.failure.clone(),
        }
    }

    /// The attribute of that name, without its `genkit:`.
    pub(crate) fn get(&self, attribute: &str) -> Option<&str> {
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|(name, _)| name.strip_prefix("genkit:") == Some(attribute));
        found.map(|(_, value)| value.as_str())
    }

    /// Every attribute of ours, without its `genkit:`, sorted.
    pub(crate) fn all(&self) -> Vec<(&str, &str)> {
        let ours = self.attributes.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("genkit:")?;
            Some((name, value.as_str()))
        });
        let mut all: Vec<_> = ours.collect();
        all.sort_unstable();
        all
    }
}
