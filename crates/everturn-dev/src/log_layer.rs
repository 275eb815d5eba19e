//! Log lines for the tools.

use std::fmt::{self, Write as _};
use std::time::SystemTime;

use everturn_core::SpanRecorder;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::exporter::Exporter;
use crate::trace_format::LogLine;

/// A layer for a program's own subscriber that shows log lines, from `INFO` up, to the developer tools beside the span
/// they were logged in; made by [`DevTools::log_layer`](crate::DevTools::log_layer).
#[derive(Clone)]
pub struct LogLayer(pub(crate) Exporter);

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.log(LogLine {
            time: SystemTime::now(),
            level: *metadata.level(),
            text: fields.message,
            attributes: fields.others,
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
