//! The files that all agents share.

use std::path::Path;

use everturn::Result;
use everturn::prelude::SqliteStore;
use everturn::sqlite::SqliteStreamLog;

/// Where conversations are kept and, beside them, what was streamed.
pub(crate) struct Database {
    pub(crate) sessions: SqliteStore,
    pub(crate) streams: SqliteStreamLog,
}

impl Database {
    /// Opens the files, or makes them.
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            sessions: SqliteStore::open(path).await?,
            streams: SqliteStreamLog::open(path.with_extension("streams.db")).await?,
        })
    }
}
