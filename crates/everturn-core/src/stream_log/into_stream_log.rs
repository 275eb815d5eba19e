//! Conversion into a shared stream log.

use std::sync::Arc;

use super::StreamLog;

/// A value that serves as a stream log: a log, or a shared one.
pub trait IntoStreamLog {
    /// Converts the value into a shared log.
    fn into_stream_log(self) -> Arc<dyn StreamLog>;
}

impl<T: StreamLog> IntoStreamLog for T {
    fn into_stream_log(self) -> Arc<dyn StreamLog> {
        Arc::new(self)
    }
}

impl<T: StreamLog> IntoStreamLog for Arc<T> {
    fn into_stream_log(self) -> Arc<dyn StreamLog> {
        self
    }
}

impl IntoStreamLog for Arc<dyn StreamLog> {
    fn into_stream_log(self) -> Arc<dyn StreamLog> {
        self
    }
}
