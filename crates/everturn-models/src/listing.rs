//! Lists of a provider's models.

use std::future::Future;
use std::time::Duration;

use everturn_core::{ActionType, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The time for which a list is cached.
const LIFETIME: Duration = Duration::from_mins(5);

/// An entry of a provider's list.
pub(crate) trait Entry {
    /// Returns the name of the model, without the plugin's prefix.
    fn id(&self) -> &str;

    /// Returns the type of the entry's action; `None` if there is none.
    fn kind(&self) -> Option<ActionType>;
}

/// A list that is fetched on demand and cached.
#[derive(Debug)]
pub(crate) struct Listing<T>(Mutex<Option<(Instant, Vec<T>)>>);

impl<T: Entry + Clone> Listing<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn known(&self) -> Option<Vec<T>> {
        let kept = self.0.lock();
        let (fetched, entries) = kept.as_ref()?;
        (fetched.elapsed() < LIFETIME).then(|| entries.clone())
    }

    /// Returns an entry of the list, if it was fetched recently.
    pub(crate) fn find(&self, id: &str) -> Option<T> {
        self.known()?.into_iter().find(|entry| entry.id() == id)
    }

    /// Returns the list, and fetches it if necessary. Failures are not cached.
    ///
    /// # Errors
    /// The error of `fetch`.
    pub(crate) async fn get(&self, fetch: impl Future<Output = Result<Vec<T>>>) -> Result<Vec<T>> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let entries = fetch.await?;
        let mut kept = self.0.lock();
        *kept = Some((Instant::now(), entries.clone()));
        Ok(entries)
    }
}
