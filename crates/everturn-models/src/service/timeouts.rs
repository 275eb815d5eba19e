//! Timeouts of a provider.

use std::time::Duration;

/// The timeouts. A whole call is limited only by the deadline of its context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// Until there is a connection.
    pub(crate) connect: Duration,
    /// From the request to the first byte of the response. Reasoning models may be silent for minutes.
    pub(crate) first_byte: Duration,
    /// Between two bytes of the answer. Keep-alive comments count.
    pub(crate) between_bytes: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(5),
            between_bytes: Duration::from_mins(2),
        }
    }
}
