//! Log lines in the format of OpenTelemetry's exporters.

use everturn_core::LogLine;
use opentelemetry::logs::{AnyValue, LogRecord as _, Logger, LoggerProvider as _, Severity};
use opentelemetry::trace::{SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::logs::{SdkLogRecord, SdkLogger, SdkLoggerProvider};
use tracing::Level;

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
