//! Listeners: code of this process that receives every span, independently of the `tracing` subscriber.
//!
//! Developer tools need complete inputs and outputs, live and with their own ids. Logs and exporters
//! should not contain them, so they are not fields of `tracing`'s spans.
//!
//! No call waits for an exporter: a listener puts records into a bounded queue, which drops and counts what
//! does not fit, and another task or thread sends them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use parking_lot::RwLock;
use serde_json::{Map, Value};

use super::TraceParent;

/// The id of a trace: all spans of one invocation and of the calls it made. Its text has 32 hexadecimal
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(u128);

/// The id of a span. Its text has 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(u64);

impl TraceId {
    // Zero is invalid in the formats in which traces are exported.
    pub(super) fn random() -> Self {
        Self(fastrand::u128(1..))
    }

    pub(super) fn new(id: u128) -> Option<Self> {
        (id != 0).then_some(Self(id))
    }

    /// Returns the id as bytes, the most significant first.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl SpanId {
    pub(super) fn random() -> Self {
        Self(fastrand::u64(1..))
    }

    pub(super) fn new(id: u64) -> Option<Self> {
        (id != 0).then_some(Self(id))
    }

    /// Returns the id as bytes, the most significant first.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The ids of a span and of its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanIds {
    /// The id of the trace.
    pub trace: TraceId,
    /// The id of the span.
    pub span: SpanId,
}

/// A span with everything recorded so far, including content if a listener requests it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SpanRecord {
    /// The ids of the span and of its trace.
    pub ids: SpanIds,
    /// The parent span in this program; `None` for the outermost one.
    pub parent: Option<SpanId>,
    /// The span of another program that called this one; only the outermost span of an invocation has it.
    pub remote_parent: Option<SpanId>,
    /// Whether the trace is sampled; the program that started the trace decides.
    pub is_sampled: bool,
    /// The name of the action or step.
    pub name: String,
    /// The time at which the work began.
    pub started_at: SystemTime,
    /// The time at which the work ended; `None` while it runs.
    pub ended_at: Option<SystemTime>,
    /// The attributes, under the names that the developer tools read. Values are texts, booleans, numbers and
    /// lists.
    pub attributes: Map<String, Value>,
    /// Related spans in other traces.
    pub links: Vec<SpanLink>,
    /// The events during the span.
    pub events: Vec<SpanEvent>,
    /// The operator's message of the error that the work ended with.
    pub failure: Option<String>,
}

impl SpanRecord {
    /// The names of the attributes that hold a call's input and output.
    pub const CONTENT: [&str; 4] = [
        "genkit:input",
        "genkit:init",
        "genkit:output",
        "genkit:metadata:context",
    ];

    /// Returns the approximate size of the span in bytes.
    pub fn size(&self) -> usize {
        let values = self.attributes.values();
        let texts = values.map(|value| value.as_str().map_or(8, str::len));
        256 + self.name.len() + texts.sum::<usize>()
    }

    /// Returns the record that late writers find in place of one that was handed to listeners.
    pub(super) fn remains(&self) -> Self {
        Self {
            name: String::new(),
            attributes: Map::new(),
            links: Vec::new(),
            events: Vec::new(),
            failure: None,
            ..*self
        }
    }
}

/// A link to a related span that is not a parent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanLink {
    /// The other span.
    pub to: TraceParent,
    /// The relation, in a word: `takeover`, `watch`.
    pub relation: String,
}

/// An event while a span ran.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SpanEvent {
    /// The time of the event.
    pub at: SystemTime,
    /// The name of the event.
    pub name: String,
    /// The attributes of the event.
    pub attributes: Map<String, Value>,
}

/// The parts of spans that a listener needs. Parts that no listener needs are not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanInterest {
    /// Whether [`SpanListener::started`] is to be called.
    pub starts: bool,
    /// Whether inputs and outputs are to be recorded. Recording costs time in proportion to their size.
    pub content: bool,
}

/// Receives every span of this process when it starts and when it ends; see [`listen_to_spans`].
///
/// Both methods are called by the task that does the work and must not block.
pub trait SpanListener: Send + Sync + 'static {
    /// Called when a span starts, and again when its session is known. It may also be called for listeners
    /// that did not request it.
    fn started(&self, span: &SpanRecord);

    /// Called when a span has ended, successfully or not.
    fn ended(&self, span: &Arc<SpanRecord>);

    /// Returns the parts of spans that the listener needs, which must not change; all of them by default.
    fn interest(&self) -> SpanInterest {
        SpanInterest {
            starts: true,
            content: true,
        }
    }
}

/// Attributes for the outermost span of an invocation; an extension of the context.
#[derive(Debug, Clone, Default)]
pub struct SpanLabels(pub Map<String, Value>);

static LISTENERS: RwLock<Vec<Arc<dyn SpanListener>>> = RwLock::new(Vec::new());

/// The numbers of all listeners, of those that need starts and of those that need content. A span costs one
/// load if there is no listener.
static LISTENING: AtomicUsize = AtomicUsize::new(0);
static NEEDING_STARTS: AtomicUsize = AtomicUsize::new(0);
static WANTING_CONTENT: AtomicUsize = AtomicUsize::new(0);

fn count(listeners: &[Arc<dyn SpanListener>]) {
    let wanting = |part: fn(SpanInterest) -> bool| {
        let wanting = listeners.iter().filter(|listener| part(listener.interest()));
        wanting.count()
    };
    NEEDING_STARTS.store(wanting(|interest| interest.starts), Ordering::Relaxed);
    WANTING_CONTENT.store(wanting(|interest| interest.content), Ordering::Relaxed);
    LISTENING.store(listeners.len(), Ordering::Relaxed);
}

/// Passes all spans that start from now on in this process to `listener`, until the returned guard is
/// dropped.
pub fn listen_to_spans(listener: Arc<dyn SpanListener>) -> ListeningToSpans {
    let mut listeners = LISTENERS.write();
    listeners.push(Arc::clone(&listener));
    count(&listeners);
    ListeningToSpans(listener)
}

/// Keeps a listener registered until it is dropped.
#[must_use = "the listener receives spans only while this guard is kept"]
pub struct ListeningToSpans(Arc<dyn SpanListener>);

impl Drop for ListeningToSpans {
    fn drop(&mut self) {
        let mut listeners = LISTENERS.write();
        if let Some(index) = listeners
            .iter()
            .position(|listener| Arc::ptr_eq(listener, &self.0))
        {
            listeners.swap_remove(index);
        }
        count(&listeners);
    }
}

crate::opaque_debug!(ListeningToSpans);

/// Returns whether there is a listener.
pub(super) fn has_listeners() -> bool {
    LISTENING.load(Ordering::Relaxed) > 0
}

/// Returns whether a listener needs the starts of spans.
pub(super) fn listeners_need_starts() -> bool {
    NEEDING_STARTS.load(Ordering::Relaxed) > 0
}

/// Returns whether a listener needs the content of calls.
pub(super) fn listeners_need_content() -> bool {
    WANTING_CONTENT.load(Ordering::Relaxed) > 0
}

/// Calls `notify` with each listener. The list is copied, so that no lock is held while a listener runs.
pub(super) fn each(call: impl Fn(&dyn SpanListener)) {
    let listeners = LISTENERS.read().clone();
    for listener in listeners {
        call(listener.as_ref());
    }
}
