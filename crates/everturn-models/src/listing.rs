//! What a provider lists, for people who choose.

use std::future::Future;
use std::time::Duration;

use everturn_core::Result;
use parking_lot::Mutex;
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

    fn known(&self) -> Option<Vec<T>> {
        let kept = self.0.lock();
        let (fetched, entries) = kept.as_ref()?;
        (fetched.elapsed() < LIFETIME).then(|| entries.clone())
    }

    /// An entry of the list as it was fetched, if that was not long ago.
    pub(crate) fn find(&self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.known()?.into_iter().find(is_wanted)
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
        let mut kept = self.0.lock();
        *kept = Some((Instant::now(), entries.clone()));
        Ok(entries)
    }

    /// The list, fetched if need be; empty if that fails. A list is a help for people, and models are there without it.
    pub(crate) async fn get_or_empty(
        &self,
        provider: &str,
        fetch: impl Future<Output = Result<Vec<T>>>,
    ) -> Vec<T> {
        self.get(fetch).await.unwrap_or_else(|error| {
            tracing::debug!(provider, %error, "the models cannot be listed");
            Vec::new()
        })
    }
}
