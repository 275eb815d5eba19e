//! Listeners: code of this process that is told of every span, whatever subscriber `tracing` has.
//!
//! Developer tools need whole inputs and outputs, live and with ids of their own. A log or an exporter should have none of
//! that, so it does not travel in the fields of `tracing`'s spans.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use serde_json::{Map, Value};

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
}

impl SpanId {
    pub(super) fn random() -> Self {
        Self(fastrand::u64(1..))
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

/// A span with all that was recorded so far, content included.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SpanRecord {
    /// The ids of the span and of its trace.
    pub ids: SpanIds,
    /// The span in which this one began; `None` for the outermost of a trace.
    pub parent: Option<SpanId>,
    /// The name of the action or step.
    pub name: String,
    /// The time at which the work began.
    pub started_at: SystemTime,
    /// The time at which the work ended; `None` while it runs.
    pub ended_at: Option<SystemTime>,
    /// The attributes, under the names that the developer tools read. Values are texts and booleans.
    pub attributes: Map<String, Value>,
    /// The operator's message of the error that the work ended with.
    pub failure: Option<String>,
}

/// Code that is told of every span of this process when it begins and when it ends; see [`listen_to_spans`].
///
/// Both methods are called by the task that does the work and must not block.
pub trait SpanListener: Send + Sync + 'static {
    /// Tells that a span has begun.
    fn started(&self, span: &SpanRecord);

    /// Tells that a span has ended, well or not.
    fn ended(&self, span: &SpanRecord);
}

/// Attributes for the outermost span of an invocation; an extension of the context.
#[derive(Debug, Clone, Default)]
pub struct SpanLabels(pub Map<String, Value>);

static LISTENERS: RwLock<Vec<Arc<dyn SpanListener>>> = RwLock::new(Vec::new());

/// The number of listeners, so that a span costs one load where nobody listens.
static LISTENING: AtomicUsize = AtomicUsize::new(0);

/// Tells `listener` of all spans that begin from now on in this process, until the returned guard is dropped.
pub fn listen_to_spans(listener: Arc<dyn SpanListener>) -> ListeningToSpans {
    let mut listeners = LISTENERS.write().unwrap_or_else(PoisonError::into_inner);
    listeners.push(Arc::clone(&listener));
    LISTENING.store(listeners.len(), Ordering::Relaxed);
    ListeningToSpans(listener)
}

/// Keeps a listener told of spans; dropping it ends that.
#[must_use = "the listener is told of spans only while this is kept"]
pub struct ListeningToSpans(Arc<dyn SpanListener>);

impl Drop for ListeningToSpans {
    fn drop(&mut self) {
        let mut listeners = LISTENERS.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = listeners
            .iter()
            .position(|listener| Arc::ptr_eq(listener, &self.0))
        {
            listeners.swap_remove(index);
        }
        LISTENING.store(listeners.len(), Ordering::Relaxed);
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

/// Calls `tell` with each listener. The list is copied, so that no lock is held while a listener runs.
pub(super) fn each(tell: impl Fn(&dyn SpanListener)) {
    let listeners = LISTENERS.read().unwrap_or_else(PoisonError::into_inner).clone();
    for listener in listeners {
        tell(listener.as_ref());
    }
}
