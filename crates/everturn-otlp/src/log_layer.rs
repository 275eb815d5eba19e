//! A layer that exports log lines.

use std::fmt;

use everturn_core::LogLine;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::queue::Queue;
use crate::worker::is_worker;

/// A layer for a program's own subscriber that exports log lines, from `INFO` up, each with its span; created
/// by [`Telemetry::log_layer`](crate::Telemetry::log_layer).
#[derive(Clone)]
pub struct LogLayer(pub(crate) Queue);

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        // Exporting the exporter's own lines would never end.
        if *event.metadata().level() > Level::INFO || is_worker() {
            return;
        }
        self.0.log(LogLine::of(event));
    }
}

impl fmt::Debug for LogLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogLayer")
    }
}
