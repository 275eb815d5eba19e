//! A layer that exports log lines.

use std::fmt::{self, Write as _};
use std::time::SystemTime;

use everturn_core::SpanRecorder;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::log_line::LogLine;
use crate::queue::Queue;
use crate::worker::is_worker;

/// A layer for a program's own subscriber that exports log lines, from `INFO` up, with the span they were logged in; made by
/// [`Telemetry::log_layer`](crate::Telemetry::log_layer).
#[derive(Clone)]
pub struct LogLayer(pub(crate) Queue);

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        // A line of the exporting itself would be exported, and so on for ever.
        if *metadata.level() > Level::INFO || is_worker() {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.log(LogLine {
            at: SystemTime::now(),
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            text: fields.message,
            fields: fields.others,
            ids: SpanRecorder::current().ids(),
        });
    }
}

impl fmt::Debug for LogLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogLayer")
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.others.push((field.name(), value.to_owned()));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string does not fail.
            let _ = write!(self.message, "{value:?}");
        } else {
            self.others.push((field.name(), format!("{value:?}")));
        }
    }
}
