//! Spans as an OpenTelemetry pipeline exports them.

use std::collections::HashMap;

use opentelemetry::trace::{SpanId, Status, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

/// Listens to every span of this thread while it lives.
pub(crate) struct Traces {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _listening: DefaultGuard,
}

impl Traces {
    pub(crate) fn listen() -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
        let subscriber = tracing_subscriber::registry().with(layer);
        Self {
            exporter,
            _provider: provider,
            _listening: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The spans that have ended, in the order they did.
    pub(crate) fn ended(&self) -> Vec<Exported> {
        let finished = self
            .exporter
            .get_finished_spans()
            .expect("the exporter is in memory");
        finished.into_iter().map(Exported::new).collect()
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
    pub(crate) parent: SpanId,
    pub(crate) status: Status,
    attributes: HashMap<String, String>,
}

impl Exported {
    fn new(span: SpanData) -> Self {
        let attributes = span
            .attributes
            .iter()
            .map(|pair| (pair.key.to_string(), pair.value.to_string()));
        Self {
            attributes: attributes.collect(),
            name: span.name.into_owned(),
            id: span.span_context.span_id(),
            parent: span.parent_span_id,
            status: span.status,
        }
    }

    /// The attribute of that name, without its `genkit:`.
    pub(crate) fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes
            .get(&format!("genkit:{attribute}"))
            .map(String::as_str)
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
