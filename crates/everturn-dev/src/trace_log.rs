//! Recent traces in memory, for a page of the program itself.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use everturn_core::{SpanId, SpanListener, SpanRecord, TraceId};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::trace_format;

/// The maximum number of traces.
const MAX_TRACES: usize = 500;

/// The maximum number of bytes of all traces.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Recent traces: at most 500, of at most 32 MiB together. The oldest are dropped first. Cloning is cheap.
///
/// It answers two requests with JSON, independent of the server:
///
/// | path | answer |
/// |---|---|
/// | `traces?sessionId=…&snapshotId=…&limit=…` | `{"traces": […]}`, newest first |
/// | `traces/{id}` | the trace with its spans, in the format of the tools' trace server |
///
/// A trace in the list has its id, name, times, state, session and snapshots.
#[derive(Clone, Default)]
pub struct TraceLog(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    traces: HashMap<TraceId, Trace>,
    oldest_first: VecDeque<TraceId>,
    bytes: usize,
}

#[derive(Default)]
struct Trace {
    spans: BTreeMap<SpanId, Arc<SpanRecord>>,
    bytes: usize,
}

impl TraceLog {
    /// Answers a request, given its path below the log's route and its query; `None` for an unknown path.
    pub fn answer(&self, path: &str) -> Option<Value> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        match path.trim_matches('/').split_once('/') {
            None if path.trim_matches('/') == "traces" => Some(self.list(query)),
            Some(("traces", id)) => self.get(id),
            _ => None,
        }
    }

    fn get(&self, id: &str) -> Option<Value> {
        let kept = self.0.lock();
        let (_, trace) = kept.traces.iter().find(|(trace, _)| trace.to_string() == id)?;
        let spans: Vec<_> = trace.spans.values().map(Arc::as_ref).collect();
        Some(trace_format::trace(&spans))
    }

    fn list(&self, query: &str) -> Value {
        let query: HashMap<_, _> = form_urlencoded::parse(query.as_bytes()).collect();
        let limit = query
            .get("limit")
            .and_then(|limit| limit.parse().ok())
            .unwrap_or(50);
        let kept = self.0.lock();
        let newest_first = kept.oldest_first.iter().rev();
        let shown: Vec<_> = newest_first
            .filter_map(|id| kept.traces.get(id))
            .filter(|trace| {
                let has = |filter: &str, attribute: &str| {
                    query
                        .get(filter)
                        .is_none_or(|wanted| trace.values(attribute).any(|value| value == wanted))
                };
                has("sessionId", SESSION) && has("snapshotId", SNAPSHOT)
            })
            .filter_map(Trace::summary)
            .take(limit)
            .collect();
        json!({ "traces": shown })
    }

    fn keep(&self, span: Arc<SpanRecord>) {
        // A page that polls sessions must not push out the traces that it shows.
        if span.parent.is_none() && is_reading(&span) {
            return;
        }
        let mut kept = self.0.lock();
        let id = span.ids.trace;
        if !kept.traces.contains_key(&id) {
            kept.oldest_first.push_back(id);
        }
        let trace = kept.traces.entry(id).or_default();
        let before = trace.spans.get(&span.ids.span).map_or(0, |span| span.size());
        let after = span.size();
        trace.spans.insert(span.ids.span, span);
        trace.bytes = trace.bytes + after - before;
        kept.bytes = kept.bytes + after - before;
        // A single trace that is too large is dropped, too.
        while kept.traces.len() > MAX_TRACES || kept.bytes > MAX_BYTES {
            let Some(oldest) = kept.oldest_first.pop_front() else {
                break;
            };
            if let Some(expired) = kept.traces.remove(&oldest) {
                kept.bytes -= expired.bytes;
            }
        }
    }
}

/// Returns whether a span is a read or maintenance call on sessions, by the type of its action.
fn is_reading(span: &SpanRecord) -> bool {
    let kind = span.attributes.get("genkit:metadata:subtype");
    kind.and_then(Value::as_str)
        .is_some_and(|kind| kind.starts_with("agent-"))
}

const SESSION: &str = "genkit:metadata:agent:sessionId";
const SNAPSHOT: &str = "genkit:metadata:agent:snapshotId";

impl Trace {
    /// Returns the texts of an attribute over all spans.
    fn values(&self, attribute: &str) -> impl Iterator<Item = &str> {
        let spans = self.spans.values();
        spans.filter_map(move |span| span.attributes.get(attribute)?.as_str())
    }

    /// Returns the list entry of a trace, once its outermost span has begun.
    fn summary(&self) -> Option<Value> {
        let outermost = self.spans.values().find(|span| span.parent.is_none())?;
        let mut line = trace_format::trace(&[outermost]);
        let line = line.as_object_mut()?;
        line.shift_remove("spans");
        let attribute = |name: &str| outermost.attributes.get(name).cloned();
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                line.insert(name.to_owned(), value);
            }
        };
        add("type", attribute("genkit:metadata:subtype"));
        add("state", attribute("genkit:state"));
        add("error", outermost.failure.clone().map(Value::from));
        add("sessionId", self.values(SESSION).next().map(Value::from));
        let snapshots: Vec<_> = self.values(SNAPSHOT).collect();
        add("snapshotIds", Some(json!(snapshots)));
        Some(Value::Object(Map::clone(line)))
    }
}

impl SpanListener for TraceLog {
    fn started(&self, span: &SpanRecord) {
        self.keep(Arc::new(span.clone()));
    }

    fn ended(&self, span: &Arc<SpanRecord>) {
        self.keep(Arc::clone(span));
    }
}

everturn_core::opaque_debug!(TraceLog);
