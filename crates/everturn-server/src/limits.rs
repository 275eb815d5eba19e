//! Limits on what clients may ask for.

mod request_size;

use std::time::Duration;

/// The limits of a server on its clients. Every limit has a default.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Limits {
    pub(crate) body_bytes: usize,
    pub(crate) json_bytes: usize,
    pub(crate) lines_bytes: u64,
    pub(crate) body_time: Duration,
    pub(crate) header_time: Duration,
    pub(crate) write_time: Duration,
    pub(crate) request_time: Option<Duration>,
    pub(crate) calls_per_principal: usize,
    pub(crate) bytes_per_caller: usize,
    pub(crate) bytes_in_flight: usize,
    messages: usize,
    parts: usize,
    tool_requests: usize,
    answers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 4 * 1024 * 1024,
            json_bytes: 32 * 1024 * 1024,
            lines_bytes: 1024 * 1024 * 1024,
            body_time: Duration::from_secs(30),
            header_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            request_time: None,
            calls_per_principal: 256,
            bytes_per_caller: 96 * 1024 * 1024,
            bytes_in_flight: 128 * 1024 * 1024,
            messages: 10_000,
            parts: 50_000,
            tool_requests: 10_000,
            answers: 1_000,
        }
    }
}

impl Limits {
    everturn_core::setters! {
        /// Sets how large a body may be; 4 MiB by default. A larger body is answered with `413`.
        ///
        /// The limit on the nesting of its JSON is fixed: [`everturn_core::MAX_DEPTH`].
        pub fn body_bytes(mut self, bytes: usize) { self.body_bytes = bytes }

        /// Sets how much memory the parsed values of a request may take; about 32 MiB by default. Parsing
        /// many small objects can take a hundred times the size of their text. A larger request is answered
        /// with `400` before it is parsed.
        pub fn json_bytes(mut self, bytes: usize) { self.json_bytes = bytes }

        /// Sets how large a body of JSON lines may be, such as an import; 1 GiB by default. Each line may be
        /// as large as a normal [body](Self::body_bytes). A larger body is answered with `413`.
        pub fn lines_bytes(mut self, bytes: u64) { self.lines_bytes = bytes }

        /// Sets how long a body may take to arrive; 30 seconds by default. A slower body is answered with
        /// `408`.
        pub fn body_time(mut self, time: Duration) { self.body_time = time }

        /// Sets how long the head of a request may take to arrive, and how long a connection may be idle; 30
        /// seconds by default. A slower connection is closed.
        pub fn header_time(mut self, time: Duration) { self.header_time = time }

        /// Sets how long a client may leave a response or a WebSocket unread while more data waits; 30
        /// seconds by default. Its connection is then closed and its buffers are freed. A slow reader is not
        /// affected.
        pub fn write_time(mut self, time: Duration) { self.write_time = time }

        /// Sets how long a call may take; unlimited by default. A longer call fails with `DEADLINE_EXCEEDED`.
        pub fn request_time(mut self, time: Duration) { self.request_time = Some(time) }

        /// Sets how many calls of one principal may run at once; 256 by default. Further calls are answered
        /// with `429`.
        ///
        /// Anonymous calls are not counted. Without a context provider that names a principal, only their
        /// bytes are limited, not their number.
        pub fn calls_per_principal(mut self, calls: usize) { self.calls_per_principal = calls }

        /// Sets how many bytes of requests and answers one caller may have in flight; 96 MiB by default. A
        /// request counts until it is answered; the memory of its parsed values counts until they are
        /// decoded. An answer counts until its last byte is sent. Further calls are answered with `429`.
        ///
        /// Callers without a principal are distinguished by their address, and count as one where the address
        /// is unknown. A caller with nothing in flight may always have one response of any size.
        pub fn bytes_per_caller(mut self, bytes: usize) { self.bytes_per_caller = bytes }

        /// Sets how many bytes of requests and answers all callers together may have in flight; 128 MiB by
        /// default. Further calls are answered with `429`.
        pub fn bytes_in_flight(mut self, bytes: usize) { self.bytes_in_flight = bytes }

        /// Sets how many messages a request to an agent may have, including those in its state; 10,000 by
        /// default. A larger request is answered with `400`; the same holds for the next three limits.
        pub fn messages(mut self, messages: usize) { self.messages = messages }

        /// Sets how many parts the messages and answers of a request to an agent may have together; 50,000 by
        /// default.
        pub fn parts(mut self, parts: usize) { self.parts = parts }

        /// Sets how many tool requests the messages and answers of a request to an agent may have together;
        /// 10,000 by default.
        pub fn tool_requests(mut self, requests: usize) { self.tool_requests = requests }

        /// Sets how many answers to interrupts a request to an agent may have; 1,000 by default.
        pub fn answers(mut self, answers: usize) { self.answers = answers }
    }
}
