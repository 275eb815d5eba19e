//! What becomes of background runs whose worker is lost.

/// What happens to a background run whose worker went silent: its process was killed, or its machine is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerLoss {
    /// Another worker that polls for lost runs takes this one over: from the last state that was committed, with the
    /// inputs that are left.
    TakeOver {
        /// How many workers may begin the same work, the first included, before the run has failed. Every turn that is
        /// finished while others wait counts as progress, and the rest of the run has all attempts again.
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
