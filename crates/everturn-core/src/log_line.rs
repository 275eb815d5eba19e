//! Log lines with the span that they belong to, for exporters.

use std::fmt::{self, Write as _};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use crate::{SpanIds, SpanRecorder};

/// A line that the program logged.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LogLine {
    /// When the line was logged.
    pub at: SystemTime,
    /// How severe it is.
    pub level: Level,
    /// The target that the event names, usually a module.
    pub target: String,
    /// The message.
    pub text: String,
    /// The other fields, each with its value as text.
    pub fields: Vec<(&'static str, String)>,
    /// The span in which the line was logged.
    pub ids: Option<SpanIds>,
}

impl LogLine {
    /// Creates a line from an event, with the current time and span; for the `on_event` of a layer.
    pub fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut line = Self {
            at: SystemTime::now(),
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            text: String::new(),
            fields: Vec::new(),
            ids: SpanRecorder::current().ids(),
        };
        event.record(&mut line);
        line
    }

    /// Returns the approximate size of the line in bytes.
    pub fn size(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| name.len() + value.len());
        128 + self.text.len() + fields.sum::<usize>()
    }
}

impl Visit for LogLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.text.push_str(value);
        } else {
            self.fields.push((field.name(), value.to_owned()));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string does not fail.
            let _ = write!(self.text, "{value:?}");
        } else {
            self.fields.push((field.name(), format!("{value:?}")));
        }
    }
}
