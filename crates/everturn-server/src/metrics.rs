//! The metrics of a server, in the text format of Prometheus.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use everturn_agent::{EndedTurn, TurnObserver, UnfinishedCall};
use everturn_core::Status;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::Route;

/// The histogram buckets for the duration of calls, in seconds: from a look-up to an agent that works for
/// minutes.
const DURATIONS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0,
];

/// The end of every text of metrics.
const END: &str = "# EOF\n";

/// The label that names a route. Only mounted routes are labelled, so clients cannot create labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    route: String,
    kind: &'static str,
    status: u16,
}

/// The labels of a turn. Agents are defined by the program, so clients cannot create labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TurnLabels {
    agent: String,
    finish_reason: &'static str,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentLabels {
    agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    agent: String,
    kind: &'static str,
}

/// Adds a metric to the registry and returns it.
fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// Adds a new metric to the registry and returns it.
fn registered<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    add(registry, name, help, M::default())
}

/// The counters of agents' turns. A clone shares them.
#[derive(Clone, Default)]
struct Turns {
    ended: Family<TurnLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    seconds: Family<AgentLabels, Counter<f64, AtomicU64>>,
    model_seconds: Family<AgentLabels, Counter<f64, AtomicU64>>,
    tool_seconds: Family<AgentLabels, Counter<f64, AtomicU64>>,
    calls: Family<TokenLabels, Counter>,
    cost: Family<AgentLabels, Counter<f64, AtomicU64>>,
    refused: Family<AgentLabels, Counter>,
    unknown: Family<AgentLabels, Counter>,
}

impl Turns {
    fn registered(registry: &mut Registry) -> Self {
        Self {
            ended: registered(
                registry,
                "turns",
                "Turns of agents that ended, in the foreground and in the background, by how they ended",
            ),
            tokens: registered(registry, "tokens", "Tokens that models counted"),
            seconds: registered(registry, "turn_seconds", "The time that turns took, added up"),
            model_seconds: registered(
                registry,
                "model_seconds",
                "The time that model calls took, added up",
            ),
            tool_seconds: registered(
                registry,
                "tool_seconds",
                "The time that tool calls took, added up",
            ),
            calls: registered(
                registry,
                "agent_calls",
                "Calls of models and tools, and rounds of both",
            ),
            cost: registered(
                registry,
                "cost",
                "The cost of model calls, in the currency of the application's prices",
            ),
            refused: registered(registry, "limits_reached", "Turns that a limit ended"),
            unknown: registered(
                registry,
                "unknown_outcomes",
                "Tool calls that ended a turn, or whose turn died, and of which it is unknown whether they took effect",
            ),
        }
    }
}

impl TurnObserver for Turns {
    fn turn_ended(&self, turn: &EndedTurn<'_>) {
        let agent = || turn.agent.to_owned();
        let labels = TurnLabels {
            agent: agent(),
            finish_reason: turn.finish_reason.as_str(),
            status: turn.failure.unwrap_or(Status::Ok).name(),
        };
        self.ended.get_or_create(&labels).inc();
        let usage = &turn.usage;
        let tokens = [
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cached", usage.cached_content_tokens),
            ("reasoning", usage.thoughts_tokens),
        ];
        let calls = [
            ("model", usage.model_calls),
            ("tool", usage.tool_calls),
            ("round", usage.rounds),
        ];
        for (counters, counts) in [(&self.tokens, &tokens[..]), (&self.calls, &calls)] {
            for (kind, count) in counts.iter().filter(|(_, count)| *count > 0) {
                let labels = TokenLabels { agent: agent(), kind };
                counters.get_or_create(&labels).inc_by(*count);
            }
        }
        let labels = AgentLabels { agent: agent() };
        if !usage.cost.is_zero() {
            self.cost.get_or_create(&labels).inc_by(usage.cost.as_units());
        }
        if turn.limit_reached {
            self.refused.get_or_create(&labels).inc();
        }
        if turn.unknown_outcomes > 0 {
            let unknown = self.unknown.get_or_create(&labels);
            unknown.inc_by(turn.unknown_outcomes as u64);
        }
        for (seconds, time) in [
            (&self.seconds, turn.took),
            (&self.model_seconds, usage.model_time),
            (&self.tool_seconds, usage.tool_time),
        ] {
            seconds.get_or_create(&labels).inc_by(time.as_secs_f64());
        }
    }

    fn call_found(&self, call: &UnfinishedCall) {
        let agent = call.agent.clone();
        self.unknown.get_or_create(&AgentLabels { agent }).inc();
    }
}

/// The metrics of one server. A clone shares them.
#[derive(Clone)]
pub(crate) struct Metrics {
    requests: Family<ResponseLabels, Counter>,
    in_flight: Family<RouteLabels, Gauge>,
    streams: Family<RouteLabels, Gauge>,
    chunks: Family<RouteLabels, Counter<u64, AtomicU64>>,
    not_kept: Family<RouteLabels, Counter>,
    durations: Family<RouteLabels, Histogram, fn() -> Histogram>,
    turns: Turns,
    registry: Arc<Registry>,
    others: Arc<[OtherMetrics]>,
}

/// Returns the metrics of another part of the program as text.
pub(crate) type OtherMetrics = Arc<dyn Fn() -> String + Send + Sync>;

impl Metrics {
    /// Creates the metrics of a server, which are shown together with those of other parts of the program.
    pub(crate) fn new(others: &[OtherMetrics]) -> Self {
        let mut registry = Registry::with_prefix("everturn");
        let durations: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATIONS));
        Self {
            requests: registered(
                &mut registry,
                "http_requests",
                "Requests answered, by route and status",
            ),
            in_flight: registered(
                &mut registry,
                "calls_in_flight",
                "Calls under way, streams included",
            ),
            streams: registered(&mut registry, "streams_open", "Streams that clients are reading"),
            chunks: registered(&mut registry, "stream_chunks", "Chunks handed to clients"),
            not_kept: registered(
                &mut registry,
                "streams_not_kept",
                "Streams that the stream log had no room for, or could not keep to their end",
            ),
            durations: add(
                &mut registry,
                "call_duration_seconds",
                "How long calls took, from the first byte read to the last one handed on",
                durations,
            ),
            turns: Turns::registered(&mut registry),
            registry: registry.into(),
            others: others.into(),
        }
    }

    /// Returns the observer that counts turns of agents.
    pub(crate) fn turns(&self) -> Arc<dyn TurnObserver> {
        Arc::new(self.turns.clone())
    }

    /// Returns the metrics of one route, which are looked up once and updated many times.
    pub(crate) fn of(&self, route: &Route) -> RouteMetrics {
        let (kind, route) = (route.kind.name(), route.path.clone());
        let labels = RouteLabels {
            route: route.clone(),
            kind,
        };
        let succeeded = ResponseLabels {
            route,
            kind,
            status: StatusCode::OK.as_u16(),
        };
        RouteMetrics(Arc::new(Counters {
            in_flight: self.in_flight.get_or_create(&labels).clone(),
            streams: self.streams.get_or_create(&labels).clone(),
            chunks: self.chunks.get_or_create(&labels).clone(),
            not_kept: self.not_kept.get_or_create(&labels).clone(),
            durations: self.durations.get_or_create(&labels).clone(),
            ok: self.requests.get_or_create(&succeeded).clone(),
            requests: self.requests.clone(),
            labels,
        }))
    }

    /// Returns all metrics as text.
    pub(crate) fn respond(&self) -> Response<Body> {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        if !self.others.is_empty() {
            // The mark comes after all metrics.
            text.truncate(text.len() - END.len());
            for other in self.others.iter() {
                let other = other();
                let lines = other.strip_suffix(END).unwrap_or(&other);
                text.push_str(lines);
                if !lines.is_empty() && !lines.ends_with('\n') {
                    text.push('\n');
                }
            }
            text.push_str(END);
        }
        let mut response = Response::new(Body::from(text));
        let openmetrics =
            HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, openmetrics);
        response
    }
}

everturn_core::opaque_debug!(Metrics);

/// The metrics of one route. A clone shares them.
#[derive(Clone)]
pub(crate) struct RouteMetrics(Arc<Counters>);

struct Counters {
    labels: RouteLabels,
    in_flight: Gauge,
    streams: Gauge,
    chunks: Counter<u64, AtomicU64>,
    not_kept: Counter,
    durations: Histogram,
    /// The counter of the most frequent answer.
    ok: Counter,
    requests: Family<ResponseLabels, Counter>,
}

impl RouteMetrics {
    /// Counts an answer.
    pub(crate) fn answered(&self, status: StatusCode) {
        let Counters {
            labels, ok, requests, ..
        } = &*self.0;
        if status == StatusCode::OK {
            ok.inc();
            return;
        }
        let labels = ResponseLabels {
            route: labels.route.clone(),
            kind: labels.kind,
            status: status.as_u16(),
        };
        requests.get_or_create(&labels).inc();
    }

    /// Counts a stream that the log does not keep.
    pub(crate) fn stream_not_kept(&self) {
        self.0.not_kept.inc();
    }

    /// Counts a call as running until the returned value is dropped.
    pub(crate) fn call(&self) -> CallMeter {
        self.0.in_flight.inc();
        CallMeter {
            counters: Arc::clone(&self.0),
            is_streamed: false,
            begun: Instant::now(),
        }
    }
}

/// One call, counted as running while this exists.
pub(crate) struct CallMeter {
    counters: Arc<Counters>,
    is_streamed: bool,
    begun: Instant,
}

impl CallMeter {
    /// Counts the call as streamed to a client from now on.
    pub(crate) fn stream_opened(&mut self) {
        if !std::mem::replace(&mut self.is_streamed, true) {
            self.counters.streams.inc();
        }
    }

    pub(crate) fn chunk(&self) {
        self.counters.chunks.inc();
    }
}

impl Drop for CallMeter {
    fn drop(&mut self) {
        self.counters.in_flight.dec();
        if self.is_streamed {
            self.counters.streams.dec();
        }
        self.counters
            .durations
            .observe(self.begun.elapsed().as_secs_f64());
    }
}
