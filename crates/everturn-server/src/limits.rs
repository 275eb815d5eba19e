//! How much of everything a client may ask for.

use std::time::Duration;

/// What a server takes from its clients. Every limit has a default; none can be turned off by accident.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Limits {
    pub(crate) body_bytes: usize,
    pub(crate) body_time: Duration,
    pub(crate) header_time: Duration,
    pub(crate) request_time: Option<Duration>,
    pub(crate) calls_per_principal: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 4 * 1024 * 1024,
            body_time: Duration::from_secs(30),
            header_time: Duration::from_secs(30),
            request_time: None,
            calls_per_principal: 256,
        }
    }
}

impl Limits {
    /// How large a body may be; 4 MiB by default. A larger one is answered with `413`.
    ///
    /// How deeply its JSON may be nested is fixed: [`everturn_core::MAX_DEPTH`].
    pub fn body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// How long a body may take to arrive; 30 seconds by default. A slower one is answered with `408`.
    pub fn body_time(mut self, time: Duration) -> Self {
        self.body_time = time;
        self
    }

    /// How long the head of a request may take to arrive, and how long a connection may wait for one; 30 seconds by
    /// default. A slower connection is closed.
    pub fn header_time(mut self, time: Duration) -> Self {
        self.header_time = time;
        self
    }

    /// How long a call may take; without end by default. One that takes longer fails with `DEADLINE_EXCEEDED`.
    pub fn request_time(mut self, time: Duration) -> Self {
        self.request_time = Some(time);
        self
    }

    /// How many calls of one principal may be under way at once; 256 by default. One more is answered with `429`.
    ///
    /// Calls that nobody answers for are not counted: without a context provider that names a principal there is no
    /// limit.
    pub fn calls_per_principal(mut self, calls: usize) -> Self {
        self.calls_per_principal = calls;
        self
    }
}
