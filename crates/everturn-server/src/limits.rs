//! Limits on what clients may ask for.

use std::time::Duration;

/// The limits of a server on its clients. Every limit has a default.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Limits {
    pub(crate) body_bytes: usize,
    pub(crate) lines_bytes: u64,
    pub(crate) body_time: Duration,
    pub(crate) header_time: Duration,
    pub(crate) write_time: Duration,
    pub(crate) request_time: Option<Duration>,
    pub(crate) calls_per_principal: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 4 * 1024 * 1024,
            lines_bytes: 1024 * 1024 * 1024,
            body_time: Duration::from_secs(30),
            header_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            request_time: None,
            calls_per_principal: 256,
        }
    }
}

impl Limits {
    /// Sets how large a body may be; 4 MiB by default. A larger body is answered with `413`.
    ///
    /// The limit on the nesting of its JSON is fixed: [`everturn_core::MAX_DEPTH`].
    pub fn body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// Sets how large a body of JSON lines may be, such as an import; 1 GiB by default. Each line may be as large as another
    /// body. A larger body is answered with `413`.
    pub fn lines_bytes(mut self, bytes: u64) -> Self {
        self.lines_bytes = bytes;
        self
    }

    /// Sets how long a body may take to arrive; 30 seconds by default. A slower body is answered with `408`.
    pub fn body_time(mut self, time: Duration) -> Self {
        self.body_time = time;
        self
    }

    /// Sets how long the head of a request may take to arrive, and how long a connection may be idle; 30 seconds by default.
    /// A slower connection is closed.
    pub fn header_time(mut self, time: Duration) -> Self {
        self.header_time = time;
        self
    }

    /// Sets how long a client may read nothing of an answer or a WebSocket that has more for it; 30 seconds by default. Its
    /// connection is then closed, and what was held for it is freed. A client that reads slowly is not affected.
    pub fn write_time(mut self, time: Duration) -> Self {
        self.write_time = time;
        self
    }

    /// Sets how long a call may take; unlimited by default. A longer call fails with `DEADLINE_EXCEEDED`.
    pub fn request_time(mut self, time: Duration) -> Self {
        self.request_time = Some(time);
        self
    }

    /// Sets how many calls of one principal may run at once; 256 by default. Further calls are answered with `429`.
    ///
    /// Anonymous calls are not counted: without a context provider that names a principal there is no limit.
    pub fn calls_per_principal(mut self, calls: usize) -> Self {
        self.calls_per_principal = calls;
        self
    }
}
