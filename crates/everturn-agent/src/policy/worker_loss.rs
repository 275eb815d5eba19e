//! The policy for background runs whose worker is lost.

/// The policy for a background run whose worker sends no heartbeats: its process was killed, or its machine
/// failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerLoss {
    /// Another worker that polls for lost runs takes this one over: it continues from the last committed
    /// state with the inputs that are left.
    TakeOver {
        /// How many workers may begin the same work, including the first, before the run has failed. Every
        /// turn that ends while inputs are left counts as progress: the rest of the run then has all attempts
        /// again.
        attempts: u32,
    },
    /// The run is reported as expired and left alone.
    Expire,
}

impl Default for WorkerLoss {
    fn default() -> Self {
        Self::TakeOver { attempts: 3 }
    }
}
