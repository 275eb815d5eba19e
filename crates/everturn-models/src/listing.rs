//! What a provider lists, for people who choose.

use std::future::Future;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use everturn_core::Result;
use tokio::time::Instant;

/// How long a list is good.
const LIFETIME: Duration = Duration::from_mins(5);

/// A list that is fetched when it is wanted, and kept for a while.
#[derive(Debug)]
pub(crate) struct Listing<T>(Mutex<Option<(Instant, Vec<T>)>>);

impl<T: Clone> Listing<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The list as it was fetched, if that was not long ago.
    pub(crate) fn known(&self) -> Option<Vec<T>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (fetched, entries) = kept.as_ref()?;
        (fetched.elapsed() < LIFETIME).then(|| entries.clone())
    }

    /// The list, fetched if need be. A failure is kept for nobody.
    ///
    /// # Errors
    /// What fetching fails with.
    pub(crate) async fn get(&self, fetch: impl Future<Output = Result<Vec<T>>>) -> Result<Vec<T>> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let entries = fetch.await?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some((Instant::now(), entries.clone()));
        Ok(entries)
    }
}
