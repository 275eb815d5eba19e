//! Log lines: the layer that exports them, and their format in OpenTelemetry's exporters.

use std::cell::Cell;

use everturn_core::LogLine;
use opentelemetry::logs::{AnyValue, LogRecord as _, Logger, LoggerProvider as _, Severity};
use opentelemetry::trace::{SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::logs::{SdkLogRecord, SdkLogger, SdkLoggerProvider};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::queue::Queue;

thread_local! {
    /// Whether this is the exporting thread, whose own lines are not exported.
    pub(crate) static EXPORTS: Cell<bool> = const { Cell::new(false) };
}

/// Creates records of log lines.
pub(crate) struct Records(SdkLogger);

impl Records {
    pub(crate) fn new() -> Self {
        // Only a logger creates records; the provider of this one has no exporter.
        Self(SdkLoggerProvider::builder().build().logger("everturn"))
    }

    pub(crate) fn record(&self, line: LogLine) -> SdkLogRecord {
        let (severity, name) = match line.level {
            Level::TRACE => (Severity::Trace, "TRACE"),
            Level::DEBUG => (Severity::Debug, "DEBUG"),
            Level::INFO => (Severity::Info, "INFO"),
            Level::WARN => (Severity::Warn, "WARN"),
            Level::ERROR => (Severity::Error, "ERROR"),
        };
        let mut record = self.0.create_log_record();
        record.set_timestamp(line.at);
        record.set_observed_timestamp(line.at);
        record.set_severity_number(severity);
        record.set_severity_text(name);
        record.set_target(line.target);
        record.set_body(AnyValue::String(line.text.into()));
        for (name, value) in line.fields {
            record.add_attribute(name, value);
        }
        if let Some(ids) = line.ids {
            record.set_trace_context(
                TraceId::from_bytes(ids.trace.to_bytes()),
                SpanId::from_bytes(ids.span.to_bytes()),
                Some(TraceFlags::SAMPLED),
            );
        }
        record
    }
}

/// A layer for a program's own subscriber that exports log lines, from `INFO` up, each with its span; created
/// by [`Telemetry::log_layer`](crate::Telemetry::log_layer).
#[derive(Clone)]
pub struct LogLayer(pub(crate) Queue);

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        // Exporting the exporter's own lines would never end.
        if *event.metadata().level() > Level::INFO || EXPORTS.get() {
            return;
        }
        self.0.log(LogLine::of(event));
    }
}

everturn_core::opaque_debug!(LogLayer);
