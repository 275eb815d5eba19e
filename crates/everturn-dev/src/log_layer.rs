//! Log lines for the tools.

use std::fmt;

use everturn_core::LogLine;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::exporter::Exporter;

/// A layer for a program's own subscriber that sends log lines, from `INFO` up, to the developer tools, each
/// with its span; created by [`DevTools::log_layer`](crate::DevTools::log_layer).
#[derive(Clone)]
pub struct LogLayer(pub(crate) Exporter);

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if *event.metadata().level() <= Level::INFO {
            self.0.log(LogLine::of(event));
        }
    }
}

impl fmt::Debug for LogLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogLayer")
    }
}
