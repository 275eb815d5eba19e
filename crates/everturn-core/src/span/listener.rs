//! Listeners: code of this process that is told of every span, whatever subscriber `tracing` has.
//!
//! Developer tools need whole inputs and outputs, live and with ids of their own. A log or an exporter should have none of
//! that, so it does not travel in the fields of `tracing`'s spans.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use parking_lot::RwLock;
use serde_json::{Map, Value};

use super::TraceParent;

/// The id of a trace: all spans of one invocation and of what it called. It prints as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(u128);

/// The id of a span. It prints as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(u64);

impl TraceId {
    // Zero is no id in the formats that traces are exported in.
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

/// A span with all that was recorded so far, content included if any listener wants it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SpanRecord {
    /// The ids of the span and of its trace.
    pub ids: SpanIds,
    /// The span in which this one began; `None` for the outermost one of this program.
    pub parent: Option<SpanId>,
    /// The span of another program that called this one; only the outermost span of an invocation has it.
    pub remote_parent: Option<SpanId>,
    /// Whether the trace is to be exported; the program that began the trace may have decided against it.
    pub is_sampled: bool,
    /// The name of the action or step.
    pub name: String,
    /// The time at which the work began.
    pub started_at: SystemTime,
    /// The time at which the work ended; `None` while it runs.
    pub ended_at: Option<SystemTime>,
    /// The attributes, under the names that the developer tools read. Values are texts, booleans, numbers and lists.
    pub attributes: Map<String, Value>,
    /// Spans elsewhere that this one has to do with.
    pub links: Vec<SpanLink>,
    /// What happened meanwhile.
    pub events: Vec<SpanEvent>,
    /// The operator's message of the error that the work ended with.
    pub failure: Option<String>,
}

impl SpanRecord {
    /// The names of the attributes that hold what a call was given or answered.
    pub const CONTENT: [&str; 4] = [
        "genkit:input",
        "genkit:init",
        "genkit:output",
        "genkit:metadata:context",
    ];

    /// Returns about how many bytes the span holds.
    pub fn size(&self) -> usize {
        let values = self.attributes.values();
        let texts = values.map(|value| value.as_str().map_or(8, str::len));
        256 + self.name.len() + texts.sum::<usize>()
    }

    /// Returns the record that late writers find in place of one that was handed on.
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

/// A span elsewhere that a span has to do with, without being inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanLink {
    /// The other span.
    pub to: TraceParent,
    /// How the two are related, in a word: `takeover`, `watch`.
    pub relation: String,
}

/// Something that happened while a span ran.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SpanEvent {
    /// The time at which it happened.
    pub at: SystemTime,
    /// What happened, in a word.
    pub name: String,
    /// More about it.
    pub attributes: Map<String, Value>,
}

/// The parts of spans that a listener needs. Parts that nobody needs are not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanInterest {
    /// Whether [`SpanListener::started`] is to be called.
    pub beginnings: bool,
    /// Whether inputs and outputs are to be recorded, which cost as much as they are long.
    pub content: bool,
}

/// Code that is told of every span of this process when it begins and when it ends; see [`listen_to_spans`].
///
/// Both methods are called by the task that does the work and must not block.
pub trait SpanListener: Send + Sync + 'static {
    /// Tells that a span has begun, and once more when the session that it belongs to is known. Listeners that did not ask
    /// for it may be told nonetheless.
    fn started(&self, span: &SpanRecord);

    /// Tells that a span has ended, well or not.
    fn ended(&self, span: &Arc<SpanRecord>);

    /// Returns the parts of spans that the listener needs, which must not change; all of them by default.
    fn interest(&self) -> SpanInterest {
        SpanInterest {
            beginnings: true,
            content: true,
        }
    }
}

/// Attributes for the outermost span of an invocation; an extension of the context.
#[derive(Debug, Clone, Default)]
pub struct SpanLabels(pub Map<String, Value>);

static LISTENERS: RwLock<Vec<Arc<dyn SpanListener>>> = RwLock::new(Vec::new());

/// The number of listeners, so that a span costs one load where nobody listens; and of those that need beginnings and
/// content.
static LISTENING: AtomicUsize = AtomicUsize::new(0);
static WANTING_BEGINNINGS: AtomicUsize = AtomicUsize::new(0);
static WANTING_CONTENT: AtomicUsize = AtomicUsize::new(0);

fn count(listeners: &[Arc<dyn SpanListener>]) {
    let wanting = |part: fn(SpanInterest) -> bool| {
        let wanting = listeners.iter().filter(|listener| part(listener.interest()));
        wanting.count()
    };
    WANTING_BEGINNINGS.store(wanting(|interest| interest.beginnings), Ordering::Relaxed);
    WANTING_CONTENT.store(wanting(|interest| interest.content), Ordering::Relaxed);
    LISTENING.store(listeners.len(), Ordering::Relaxed);
}

/// Tells `listener` of all spans that begin from now on in this process, until the returned guard is dropped.
pub fn listen_to_spans(listener: Arc<dyn SpanListener>) -> ListeningToSpans {
    let mut listeners = LISTENERS.write();
    listeners.push(Arc::clone(&listener));
    count(&listeners);
    ListeningToSpans(listener)
}

/// Keeps a listener told of spans; dropping it ends that.
#[must_use = "the listener is told of spans only while this is kept"]
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

impl fmt::Debug for ListeningToSpans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListeningToSpans")
    }
}

/// Returns whether anybody listens.
pub(super) fn anybody() -> bool {
    LISTENING.load(Ordering::Relaxed) > 0
}

/// Returns whether anybody needs the beginnings of spans.
pub(super) fn anybody_wants_beginnings() -> bool {
    WANTING_BEGINNINGS.load(Ordering::Relaxed) > 0
}

/// Returns whether anybody needs the content of calls.
pub(super) fn anybody_wants_content() -> bool {
    WANTING_CONTENT.load(Ordering::Relaxed) > 0
}

/// Calls `tell` with each listener. The list is copied, so that no lock is held while a listener runs.
pub(super) fn each(tell: impl Fn(&dyn SpanListener)) {
    let listeners = LISTENERS.read().clone();
    for listener in listeners {
        tell(listener.as_ref());
    }
}
