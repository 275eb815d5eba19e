//! Collecting emitted chunks.

use std::fmt;
use std::sync::Arc;

use everturn_core::Emitter;
use parking_lot::Mutex;

/// Collects the chunks that are sent to an emitter. A clone is another handle to the same list.
///
/// ```
/// use everturn_testkit::Collector;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> everturn_core::Result<()> {
/// let collector = Collector::new();
/// collector.emitter().send("soup").await?;
///
/// assert_eq!(collector.take(), ["soup"]);
/// # Ok(()) }
/// ```
pub struct Collector<S>(Arc<Mutex<Vec<S>>>);

impl<S: Send + 'static> Collector<S> {
    /// Returns an empty collector.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an emitter whose chunks are collected.
    pub fn emitter(&self) -> Emitter<S> {
        let collector = self.clone();
        Emitter::new(move |chunk| {
            collector.keep(chunk);
            std::future::ready(Ok(()))
        })
    }

    /// Returns an emitter whose chunks are collected and passed on to another. It is silent if the other is.
    pub fn tee(&self, emitter: &Emitter<S>) -> Emitter<S>
    where
        S: Clone,
    {
        let collector = self.clone();
        emitter.map_from(move |chunk: S| {
            collector.keep(chunk.clone());
            Ok(chunk)
        })
    }

    /// Takes the chunks that were collected since the last call, in order.
    pub fn take(&self) -> Vec<S> {
        std::mem::take(&mut *self.0.lock())
    }

    fn keep(&self, chunk: S) {
        self.0.lock().push(chunk);
    }
}

impl<S> Default for Collector<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S> Clone for Collector<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: fmt::Debug> fmt::Debug for Collector<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Collector").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tee_keeps_and_passes_on() {
        let (here, there) = (Collector::new(), Collector::new());

        here.tee(&there.emitter()).send(1).await.unwrap();

        assert_eq!(here.take(), [1]);
        assert_eq!(there.take(), [1]);
        assert!(here.take().is_empty());
    }

    #[tokio::test]
    async fn a_tee_of_a_silent_emitter_is_silent() {
        let collector = Collector::<u8>::new();

        assert!(!collector.tee(&Emitter::silent()).is_streaming());
    }
}
