//! A point at which a scripted reply waits for the test.

use tokio_util::sync::CancellationToken;

/// Holds a reply at one point until the test opens the gate, so that a race is reproduced without sleeping.
///
/// A clone is another handle to the same gate. Once open, a gate stays open.
///
/// ```
/// use everturn_ai::{Model, ModelRequest};
/// use everturn_core::{Context, Emitter};
/// use everturn_testkit::{Gate, Reply, ScriptedModel};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> everturn_core::Result<()> {
/// let gate = Gate::new();
/// let model = ScriptedModel::new().reply(Reply::text("Soup.").wait(&gate));
///
/// let asked = model.clone();
/// let call = tokio::spawn(async move {
///     asked.generate(ModelRequest::default(), Emitter::silent(), Context::new()).await
/// });
/// gate.reached().await; // the model is in the middle of its answer
/// gate.open();
///
/// assert_eq!(call.await??.text(), "Soup.");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Gate {
    reached: CancellationToken,
    opened: CancellationToken,
}

impl Gate {
    /// Returns a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until a reply has reached the gate.
    pub async fn reached(&self) {
        self.reached.cancelled().await;
    }

    /// Returns whether a reply has reached the gate.
    pub fn is_reached(&self) -> bool {
        self.reached.is_cancelled()
    }

    /// Lets every reply through, now and later.
    pub fn open(&self) {
        self.opened.cancel();
    }

    /// Waits until the gate is open; for tools and other code of a test.
    pub async fn pass(&self) {
        self.reached.cancel();
        self.opened.cancelled().await;
    }
}
