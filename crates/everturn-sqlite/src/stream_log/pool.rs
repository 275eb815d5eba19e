//! A few connections that reads share.

use std::sync::{Mutex, PoisonError};

use everturn_core::Result;
use rusqlite::Connection;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::options::SqliteStreamLogOptions;
use crate::connection::open_reader;
use crate::fault::Outcome;

/// A bounded number of connections for reading, opened as they are needed.
pub(super) struct Pool {
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Pool {
    /// Opens the first of them, so that the first read does not wait for it.
    pub(super) fn open(options: &SqliteStreamLogOptions) -> Outcome<Self> {
        let first = open_reader(&options.path, options.busy_timeout)?;
        Ok(Self {
            idle: Mutex::new(vec![first]),
            permits: Semaphore::new(options.readers),
        })
    }

    /// Waits until one more read may start.
    pub(super) async fn permit(&self) -> Result<SemaphorePermit<'_>> {
        Ok(self.permits.acquire().await?)
    }

    /// Does something with a connection; the caller has a permit.
    pub(super) fn with<T>(
        &self,
        options: &SqliteStreamLogOptions,
        work: impl FnOnce(&mut Connection) -> Outcome<T>,
    ) -> Outcome<T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => open_reader(&options.path, options.busy_timeout)?,
        };
        let outcome = work(&mut connection);
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        outcome
    }
}
