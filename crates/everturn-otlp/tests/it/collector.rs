//! A collector for tests, which decodes the received data.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// Listeners receive all spans of the process, so tests that inspect spans run one after the other.
pub(crate) static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[derive(Clone, Default)]
pub(crate) struct Collector {
    received: Arc<Mutex<Received>>,
    pub(crate) url: String,
}

#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    lines: Vec<LogRecord>,
    resource: BTreeMap<String, String>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let collector = Self::default();
        let (traces, logs) = (collector.clone(), collector.clone());
        let app = Router::new()
            .route(
                "/v1/traces",
                post(move |body: Bytes| async move {
                    traces.take_spans(&body);
                    StatusCode::OK
                }),
            )
            .route(
                "/v1/logs",
                post(move |body: Bytes| async move {
                    logs.take_lines(&body);
                    StatusCode::OK
                }),
            );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, ..collector }
    }

    fn take_spans(&self, body: &Bytes) {
        let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
        let mut received = self.received.lock().unwrap();
        for resource in request.resource_spans {
            received.resource = texts(&resource.resource.unwrap().attributes);
            for scope in resource.scope_spans {
                received.spans.extend(scope.spans);
            }
        }
    }

    fn take_lines(&self, body: &Bytes) {
        let request = ExportLogsServiceRequest::decode(body.clone()).unwrap();
        let mut received = self.received.lock().unwrap();
        for resource in request.resource_logs {
            for scope in resource.scope_logs {
                received.lines.extend(scope.log_records);
            }
        }
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.received.lock().unwrap().spans.clone()
    }

    pub(crate) fn lines(&self) -> Vec<LogRecord> {
        self.received.lock().unwrap().lines.clone()
    }

    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        self.received.lock().unwrap().resource.clone()
    }

    /// The spans of that name, in the order in which they ended.
    pub(crate) fn named(&self, name: &str) -> Vec<Span> {
        let spans = self.spans();
        spans.into_iter().filter(|span| span.name == name).collect()
    }

    /// The only span of that name.
    #[track_caller]
    pub(crate) fn span(&self, name: &str) -> Span {
        let mut named = self.named(name);
        assert_eq!(named.len(), 1, "{name}");
        named.remove(0)
    }
}

pub(crate) fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::ArrayValue(items)) => {
            let items: Vec<_> = items.values.iter().map(|item| text(Some(item))).collect();
            items.join(",")
        }
        other => format!("{other:?}"),
    }
}

pub(crate) fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    attributes
        .iter()
        .map(|pair| (pair.key.clone(), text(pair.value.as_ref())))
        .collect()
}

/// The attributes of a span.
pub(crate) fn attributes(span: &Span) -> BTreeMap<String, String> {
    texts(&span.attributes)
}
